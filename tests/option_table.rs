//! Test of every option that commands on models and bundles have: for each kind of input, the option acts, warns or
//! fails. The list of options comes from the help texts, so an option without a row in the table fails the test.

#[path = "option_table/rows.rs"]
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use drift_runtime::Bundle;
use drift_tests::onnx::{bytes, floats, graph, input, ints, model, node, with};
use rows::rows;

/// Commands whose options the table lists.
const COMMANDS: [&str; 7] = ["compile", "run", "generate", "chat", "verify", "estimate", "bench"];
const KINDS: [&str; 4] = ["ONNX", "GGUF", "folder", "bundle"];

/// Expected result of a command with an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The compiled functions, weights or shaders differ, or the output text does.
    Acts,
    /// The command succeeds, and its output contains this text.
    Shows(&'static str),
    /// The command creates the file or folder that the option names.
    Creates,
    /// The command succeeds with a note that contains this text.
    Warns(&'static str),
    /// The command fails with an error that contains this text.
    Fails(&'static str),
    /// The option acts as for another command, kind of input or value, through the same code. Only the help text is
    /// compared.
    Like(&'static str),
    /// Another test checks the option.
    Elsewhere(&'static str),
}

/// Temporary folder with the inputs of the tests.
struct Place(tempfile::TempDir);

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let place = Place(tempfile::tempdir().unwrap());
    fs::write(place.path("m.onnx"), network()).unwrap();
    fs::write(place.path("tuning.txt"), "driftc tuning 1\n").unwrap();
    let ones = |n: usize| std::iter::repeat_n(1f32.to_le_bytes(), n).flatten().collect::<Vec<u8>>();
    place.array("x.npy", "<f4", "(2, 3, 4, 4)", &[0; 96 * 4]);
    place.array("y.npy", "<f4", "(2, 4, 4, 5)", &ones(160));
    place.array("scale.npy", "<f4", "(1,)", &ones(1));
    place.array("ids.npy", "<i8", "(6,)", &[0; 48]);
    place.array("batch.npy", "<i8", "(1, 6)", &[0; 48]);
    let bundle = place.path("m.drift");
    let model = place.path("m.onnx");
    let args = ["compile", &model, "-t", "lavapipe", "-o", &bundle, "--dim", "N=1..4"];
    assert!(place.driftc(&args).status.success());
    place
});

/// Compiled models of each kind, without options of the table.
static PLAIN: LazyLock<BTreeMap<&str, String>> = LazyLock::new(|| {
    let plain = |kind: &&'static str| {
        let out = PLACE.path(&format!("{kind}.drift"));
        let args = PLACE.base("compile", kind, &out, false);
        let done = PLACE.driftc(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(done.status.success(), "{}", text(&done.stderr));
        (*kind, compiled(&out))
    };
    KINDS[..3].iter().map(plain).collect()
});

/// Returns an ONNX model: a convolution of `x [N, 3, 4, 4]`, a matmul, and a multiplication by an input of one element.
fn network() -> prost::bytes::Bytes {
    let conv = with(node("Conv", &["x", "w"], &["c"]), ints("pads", &[1, 1, 1, 1]));
    let nodes = vec![conv, node("MatMul", &["c", "head"], &["m"]), node("Mul", &["m", "scale"], &["y"])];
    let mut g = graph(vec![input("x", &["N", "3", "4", "4"]), input("scale", &["1"])], nodes, &["y"]);
    let weights = |n: u8| (0..n).map(|i| f32::from(i) / 64.0 - 0.7).collect::<Vec<_>>();
    g.initializer = vec![floats("w", &[4, 3, 3, 3], &weights(108)), floats("head", &[4, 5], &weights(20))];
    bytes(&model(17, g))
}

impl Place {
    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a `.npy` file with this element type, shape and data.
    fn array(&self, name: &str, descr: &str, shape: &str, data: &[u8]) {
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        header += &" ".repeat(63 - (10 + header.len()) % 64);
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(data);
        fs::write(self.path(name), file).unwrap();
    }

    fn driftc(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftc"));
        command.env("XDG_CACHE_HOME", self.path("cache")).args(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Returns the path of an input of a kind.
    fn input(&self, kind: &str) -> String {
        match kind {
            "ONNX" => self.path("m.onnx"),
            "GGUF" => language("llama.gguf"),
            "folder" => language("llama"),
            _ => self.path("m.drift"),
        }
    }

    /// Returns the arguments of a command without the option of a row. `constant` is true if the option replaces the input
    /// of a language model.
    fn base(&self, command: &str, kind: &str, out: &str, constant: bool) -> Vec<String> {
        let mut args = vec![command.to_owned(), self.input(kind)];
        let mut add = |more: &str| args.extend(more.split_whitespace().map(|word| self.filled(word)));
        match command {
            "compile" => {
                add("-t lavapipe -o");
                args.push(out.to_owned());
            }
            "estimate" | "verify" => add("-t lavapipe"),
            "run" if matches!(kind, "ONNX" | "bundle") => add("--input {x} --input scale={scale}"),
            "run" if constant => {}
            "run" => add("--input input_ids={batch}"),
            "generate" => add("--ids {ids} --max-tokens 1"),
            "chat" | "bench" => {}
            other => panic!("no arguments for {other}"),
        }
        args
    }

    /// Replaces `{..}` by paths.
    fn filled(&self, word: &str) -> String {
        let x = format!("x={}", self.path("x.npy"));
        word.replace("{x}", &x)
            .replace("{y}", &self.path("y.npy"))
            .replace("{scale}", &self.path("scale.npy"))
            .replace("{ids}", &self.path("ids.npy"))
            .replace("{batch}", &self.path("batch.npy"))
            .replace("{tuning}", &self.path("tuning.txt"))
    }
}

/// Path of a file in `tests/language`.
fn language(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/language").join(name);
    path.to_str().unwrap().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Options of a command, each with its help text, from `driftc COMMAND --help`.
fn options(command: &str) -> BTreeMap<String, String> {
    let help = text(&PLACE.driftc(&[command, "--help"]).stdout);
    let mut options = BTreeMap::new();
    let mut last = None;
    for line in help.lines() {
        if !line.starts_with(' ') {
            // A heading.
            last = None;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let long = words.iter().take(2).find(|word| word.starts_with("--"));
        match long.filter(|_| line.trim_start().starts_with('-')) {
            Some(long) => {
                last = Some((*long).to_owned());
                options.insert((*long).to_owned(), String::new());
            }
            None => {
                if let Some(text) = last.as_ref().and_then(|last| options.get_mut(last)) {
                    text.push_str(line.trim());
                }
            }
        }
    }
    options.remove("--help");
    options
}

#[test]
fn every_option_has_a_row() {
    let rows = rows();
    for command in COMMANDS {
        let listed: BTreeSet<&str> =
            rows.iter().filter(|row| row.commands.contains(&command)).map(|row| row.option).collect();
        let options = options(command);
        let known: BTreeSet<&str> = options.keys().map(String::as_str).collect();
        assert!(known.len() > 5, "the help of {command} lists {known:?}");
        assert_eq!(known, listed, "options of `driftc {command}`, and rows in tests/option_table/rows.rs");
    }
}

/// Options that act through the same code have the same help text, and tests that are named use the option.
#[test]
fn rows_refer_to_what_exists() {
    let compile = options("compile");
    for row in rows() {
        for command in row.commands {
            let options = options(command);
            for outcome in row.outcomes {
                match outcome {
                    Outcome::Like("compile") => {
                        assert_eq!(options[row.option], compile[row.option], "{command}");
                    }
                    Outcome::Elsewhere(test) => {
                        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(test);
                        let source = fs::read_to_string(path).unwrap();
                        assert!(
                            source.contains(&format!("\"{}\"", row.option)),
                            "{test} has no {}",
                            row.option
                        );
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn options_of_compile_act_warn_or_fail() {
    check_all(&["compile"]);
}

#[test]
fn options_of_other_commands_act_warn_or_fail() {
    check_all(&["run", "verify", "estimate", "bench"]);
}

#[test]
fn options_of_text_generation_act_warn_or_fail() {
    check_all(&["generate", "chat"]);
}

fn check_all(commands: &[&str]) {
    let mut faults = Vec::new();
    for row in rows() {
        for command in commands.iter().filter(|command| row.commands.contains(command)) {
            for (kind, (args, outcome)) in KINDS.iter().zip(row.args.iter().zip(row.outcomes)) {
                if let Err(fault) = check(command, kind, args, outcome) {
                    faults.push(format!("{command} {kind} {args}: {outcome:?}: {fault}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Runs a command with an option and compares with the outcome in the table.
fn check(command: &str, kind: &str, args: &str, outcome: Outcome) -> Result<(), String> {
    if matches!(outcome, Outcome::Like(_) | Outcome::Elsewhere(_)) {
        return Ok(());
    }
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (out, new) = (path("out.drift"), path("new"));
    let mut given = PLACE.base(command, kind, &out, args.contains("--const input_ids"));
    let more: Vec<String> =
        args.split_whitespace().map(|word| PLACE.filled(word).replace("{new}", &new)).collect();
    if more.iter().any(|word| word == "-t") {
        // The option replaces the target.
        if let Some(at) = given.iter().position(|word| word == "-t") {
            given.drain(at..at + 2);
        }
    }
    given.extend(more);
    let output = PLACE.driftc(&given.iter().map(String::as_str).collect::<Vec<_>>());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let failed = |what: &str| Err(format!("{what}\n{stdout}{stderr}"));
    let success = output.status.success();
    let contains = |wanted: &str| format!("{stdout}{stderr}").contains(wanted);
    match outcome {
        Outcome::Fails(wanted) if success || !contains(wanted) => failed("no such error"),
        Outcome::Fails(_) => Ok(()),
        _ if !success => failed("the command failed"),
        Outcome::Shows(wanted) if !contains(wanted) => failed("no such text"),
        Outcome::Warns(wanted) if !stderr.contains("note: ") || !contains(wanted) => failed("no such note"),
        Outcome::Creates if !Path::new(if args.contains("{new}") { &new } else { &out }).exists() => {
            failed("nothing was created")
        }
        Outcome::Acts if command == "compile" => match PLAIN.get(kind) {
            Some(plain) if *plain != compiled(&out) => Ok(()),
            _ => failed("equal bundles"),
        },
        Outcome::Acts => {
            let without = PLACE.base(command, kind, &out, false);
            let done = PLACE.driftc(&without.iter().map(String::as_str).collect::<Vec<_>>());
            if text(&done.stdout) == stdout { failed("equal output") } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Returns what a bundle was compiled to, without its provenance: functions, and hashes of weights and shaders.
fn compiled(path: &str) -> String {
    let bundle = Bundle::open(Path::new(path)).unwrap();
    let manifest = bundle.manifest();
    let chunks: Vec<_> = manifest.chunks.iter().map(|chunk| &chunk.hash).collect();
    let artifacts: Vec<_> = manifest.artifacts.iter().map(|artifact| &artifact.hash).collect();
    format!("{:?} {chunks:?} {artifacts:?}", manifest.variants)
}
