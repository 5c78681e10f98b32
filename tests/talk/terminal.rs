//! Tests of `driftc chat` on a terminal: line editing, history, pasted text, Ctrl-C and commands.
//!
//! Each test drives the program through a pseudo terminal. Messages are checked in the file that `/save` writes.

use std::fs;
use std::process::Command;
use std::sync::LazyLock;

use rexpect::process::WaitStatus;
use rexpect::reader::Options;
use rexpect::session::{PtySession, spawn_with_options};
use serde_json::{Value, json};

use super::{PLACE, target};

/// Time in milliseconds after which a test fails because the program printed nothing expected.
const PATIENCE: u64 = 180_000;
/// Number of tokens that the model `ENDLESS` reads in one run.
const CHUNK: usize = 4;
const LEFT: &str = "\x1b[D";
const UP: &str = "\x1b[A";
const BACKSPACE: &str = "\x7f";

/// Bundle whose answers go on until the context is full: `zag zig zag ...`. It reads prompts in short chunks. So there is
/// time to stop it.
static ENDLESS: LazyLock<String> = LazyLock::new(|| {
    let (from, to) = (PLACE.path("model"), PLACE.path("zigzag"));
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(&from).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        fs::copy(format!("{from}/{name}"), format!("{to}/{name}")).unwrap();
    }
    let edit = |file: &str, field: &str, value: Value| {
        let path = format!("{to}/{file}");
        let mut content: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        content[field] = value;
        fs::write(path, content.to_string()).unwrap();
    };
    edit("config.json", "max_position_embeddings", json!(1 << 14));
    let template = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}zig";
    edit("tokenizer_config.json", "chat_template", json!(template));
    let (bundle, chunk) = (PLACE.path("zigzag.drift"), format!("chunk={CHUNK}"));
    let dims = ["--dim", "context=16384", "--dim", &chunk, "--dim", "long=0"];
    PLACE.done(&[&["compile", &to, "-t", &target(), "-o", &bundle], &dims[..]].concat());
    bundle
});

/// Running `driftc chat` on a pseudo terminal.
struct Terminal(PtySession);

impl Terminal {
    /// Starts a chat with the cache folder `cache`, and waits for the prompt.
    fn open(bundle: &str, cache: &str, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftc"));
        command.env("XDG_CACHE_HOME", PLACE.path(cache)).env("TERM", "xterm").env_remove("NO_COLOR");
        command.args(["chat", bundle]).args(options);
        let reading = Options::new().timeout_ms(Some(PATIENCE)).strip_ansi_escape_codes(true);
        let mut terminal = Self(spawn_with_options(command, reading).unwrap());
        terminal.wait_for("/help lists the commands");
        terminal.wait_for("> ");
        terminal
    }

    fn send(&mut self, keys: &str) {
        self.0.send(keys).unwrap();
        self.0.flush().unwrap();
    }

    /// Waits for a text on the terminal, and returns what stands before it.
    fn wait_for(&mut self, text: &str) -> String {
        self.0.exp_string(text).unwrap_or_else(|error| panic!("no `{text}`: {error}"))
    }

    /// Sends keys and the enter key, waits for the note `note`, and then for the next prompt.
    fn enter(&mut self, keys: &str, note: &str) -> String {
        self.send(&format!("{keys}\r"));
        let before = self.wait_for(note);
        self.wait_for("> ");
        before
    }

    /// Sends a message, and returns what the terminal shows up to the note of the speed.
    fn say(&mut self, keys: &str) -> String {
        self.enter(keys, "decode")
    }

    /// Returns the messages of the conversation.
    fn messages(&mut self, file: &str) -> Vec<(String, String)> {
        let path = PLACE.path(file);
        self.enter(&format!("/save {path}"), "note: saved");
        let saved: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        saved.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
    }

    /// Returns the last message of the user.
    fn last_said(&mut self, file: &str) -> String {
        let messages = self.messages(file);
        messages.into_iter().rfind(|(role, _)| role == "user").unwrap().1
    }

    /// Waits for the end of the program, which must succeed.
    fn ended(mut self) {
        self.0.exp_eof().unwrap();
        let status = self.0.process().wait().unwrap();
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    }
}

#[test]
fn lines_are_edited_and_recalled() {
    let (bundle, cache, file) = (PLACE.path("model.drift"), "cache-edit", "edit.json");
    let mut terminal = Terminal::open(&bundle, cache, &[]);
    let shown = terminal.say(&format!("two{LEFT}{LEFT}{LEFT}one {BACKSPACE} \x05 fourr{BACKSPACE}"));
    assert!(shown.contains(" aye captain"), "{shown}");
    assert_eq!(terminal.last_said(file), "one two four");
    // The last entry of the history is the command that saved the conversation.
    terminal.say(&format!("{UP}{UP} five"));
    assert_eq!(terminal.last_said(file), "one two four five");
    terminal.enter("/he\t", "/regen");
    terminal.send("\x04");
    terminal.ended();
    let history = fs::read_to_string(PLACE.path(&format!("{cache}/driftc/chat_history"))).unwrap();
    assert!(history.contains("one two four five"), "{history}");
    // Another chat finds the inputs in the history file, unless the user asks for none.
    let mut terminal = Terminal::open(&bundle, cache, &[]);
    terminal.say(&UP.repeat(3));
    assert_eq!(terminal.last_said(file), "one two four five");
    terminal.send("/exit\r");
    terminal.ended();
    let mut terminal = Terminal::open(&bundle, cache, &["--no-history"]);
    terminal.say(&format!("{}six", UP.repeat(3)));
    assert_eq!(terminal.last_said(file), "six");
    terminal.send("\x04");
    terminal.ended();
    let unchanged = fs::read_to_string(PLACE.path(&format!("{cache}/driftc/chat_history"))).unwrap();
    assert!(!unchanged.contains("six"), "{unchanged}");
}

#[test]
fn inputs_have_several_lines() {
    let (bundle, file) = (PLACE.path("model.drift"), "lines.json");
    let mut terminal = Terminal::open(&bundle, "cache-lines", &[]);
    terminal.send("one \\\r");
    terminal.wait_for(". ");
    terminal.say("two");
    assert_eq!(terminal.last_said(file), "one \ntwo");
    terminal.say("\x1b[200~three\nfour\x1b[201~ five");
    assert_eq!(terminal.last_said(file), "three\nfour five");
    // Ctrl-C drops the lines before.
    terminal.send("one \\\r");
    terminal.wait_for(". ");
    terminal.send("\x03");
    terminal.wait_for("> ");
    terminal.say("six");
    assert_eq!(terminal.last_said(file), "six");
    terminal.send("\x03");
    terminal.ended();
}

#[test]
fn the_first_interrupt_clears_the_line_and_the_second_quits() {
    let mut terminal = Terminal::open(&PLACE.path("model.drift"), "cache-clear", &[]);
    terminal.send("two");
    terminal.wait_for("two");
    terminal.send("\x03");
    terminal.say("three");
    assert_eq!(terminal.last_said("clear.json"), "three");
    terminal.send("four");
    terminal.wait_for("four");
    terminal.send("\x03\x03");
    terminal.ended();
}

#[test]
fn an_interrupt_stops_an_answer() {
    let mut terminal = Terminal::open(&ENDLESS, "cache-stop", &["--max-tokens", "16000"]);
    let file = "stop.json";
    terminal.send("one two\r");
    terminal.wait_for("zag zig zag zig");
    terminal.send("\x03");
    let shown = terminal.wait_for("decode");
    assert!(!shown.contains("the context is full"), "{shown}");
    terminal.wait_for("> ");
    let messages = terminal.messages(file);
    assert_eq!((messages[0].1.as_str(), messages[1].0.as_str()), ("one two", "assistant"));
    assert!(messages[1].1.starts_with(" zag zig zag zig"), "{messages:?}");
    // The chat continues with the stopped answer, and a second Ctrl-C quits.
    terminal.send("three\r");
    terminal.wait_for("zag zig");
    terminal.send("\x03");
    terminal.wait_for("> ");
    assert_eq!(terminal.messages(file).len(), 4);
    terminal.send("three\r");
    terminal.wait_for("zag zig");
    terminal.send("\x03");
    terminal.wait_for("> ");
    terminal.send("\x03");
    terminal.ended();
}

#[test]
fn an_interrupt_stops_the_reading_of_a_prompt() {
    let mut terminal = Terminal::open(&ENDLESS, "cache-read", &["--max-tokens", "16000"]);
    let (long, file) = (PLACE.path("long.json"), "read.json");
    let said = [json!({"role": "user", "content": "one ".repeat(12_000)})];
    fs::write(&long, Value::from(said.to_vec()).to_string()).unwrap();
    terminal.enter(&format!("/load {long}"), "note: loaded 1 messages");
    terminal.send("two\r");
    terminal.wait_for("reading 12004 tokens");
    terminal.send("\x03");
    let shown = terminal.wait_for("the last message is forgotten");
    assert!(!shown.contains("zag"), "{shown}");
    terminal.wait_for("> ");
    assert_eq!(terminal.messages(file).len(), 1);
    // The chat goes on.
    terminal.enter("/reset", "");
    terminal.send("three\r");
    terminal.wait_for("zag zig");
    terminal.send("\x03");
    terminal.wait_for("> ");
    assert_eq!(terminal.messages(file).len(), 2);
    terminal.send("\x04");
    terminal.ended();
}

#[test]
fn commands_work_on_a_terminal() {
    let (bundle, file) = (PLACE.path("model.drift"), "commands.json");
    let mut terminal = Terminal::open(&bundle, "cache-commands", &["--no-history"]);
    terminal.enter("/regen", "has no answer yet");
    terminal.enter("/loda x", "did you mean /load?");
    terminal.enter("/load /none.json", "/none.json");
    terminal.say("one");
    let shown = terminal.say("/regen");
    assert!(shown.contains(" aye captain"), "{shown}");
    terminal.enter("/system zig", "the system message is set");
    let talk = [("system", "zig"), ("user", "one"), ("assistant", " aye captain")];
    let talk = talk.map(|(role, content)| (role.to_owned(), content.to_owned()));
    assert_eq!(terminal.messages(file), talk);
    terminal.enter("/reset", "");
    terminal.enter("/system", "no system message");
    assert_eq!(terminal.messages("none.json"), []);
    terminal.enter(&format!("/load {}", PLACE.path(file)), "note: loaded 3 messages");
    assert_eq!(terminal.messages("again.json"), talk);
    terminal.send("/exit\r");
    terminal.ended();
}
