//! Chat templates, which turn a conversation into the text of a prompt.
//!
//! Templates are Jinja with the additions of `transformers`: `raise_exception`, `strftime_now`, `tojson` with Python's
//! formatting, methods of Python strings and dictionaries, `break` and `continue`, `trim_blocks` and `lstrip_blocks`.

use std::io::{self, Write};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::Value as Json;

use crate::tokenizer::{json, special};
use crate::{Clock, Error, Result};

/// Maximum number of interpreter steps for rendering a chat template.
const MAX_STEPS: u64 = 50_000_000;
/// Maximum bytes of a rendered conversation.
const MAX_BYTES: usize = 1 << 24;

/// Message of a chat conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Role of the author: `system`, `user` or `assistant`.
    pub role: String,
    /// Text of the message.
    pub content: String,
}

impl Message {
    /// Creates a message.
    pub fn new(role: &str, content: &str) -> Self {
        Self { role: role.to_owned(), content: content.to_owned() }
    }
}

/// Chat template with the special tokens that it may use.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    tokens: Vec<(&'static str, String)>,
}

impl ChatTemplate {
    /// Reads the template from `chat_template.jinja`, or else from `tokenizer_config.json`. Returns `None` if there is
    /// no template.
    ///
    /// # Errors
    /// If a file is malformed or the template is not valid Jinja.
    pub fn new(file: Option<&[u8]>, config: Option<&[u8]>) -> Result<Option<Self>> {
        let config = json("tokenizer_config.json", config)?;
        let source = match file {
            Some(bytes) => String::from_utf8(bytes.to_vec())
                .map(Some)
                .map_err(|e| Error::File { file: "chat_template.jinja", reason: e.to_string() })?,
            None => configured_template(&config),
        };
        let Some(source) = source else { return Ok(None) };
        let names = ["bos_token", "eos_token", "unk_token", "pad_token"];
        let tokens = names.into_iter().filter_map(|name| Some((name, special(&config, name)?))).collect();
        let template = Self { source: without_generation_blocks(&source), tokens };
        template.environment(Clock(0))?;
        Ok(Some(template))
    }

    /// Renders a conversation to a prompt. If `answer` is set, the prompt ends where the assistant's next answer starts.
    ///
    /// # Errors
    /// If the template rejects the conversation or fails.
    pub fn render(&self, messages: &[Message], answer: bool, now: Clock) -> Result<String> {
        let environment = self.environment(now)?;
        let template = environment.get_template("chat").map_err(|e| template_error(&e))?;
        let mut context: Vec<(&str, Value)> =
            self.tokens.iter().map(|(name, token)| (*name, Value::from(token.as_str()))).collect();
        let fields =
            |m: &Message| Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())]);
        context.push(("messages", messages.iter().map(fields).collect::<Vec<Value>>().into()));
        context.push(("add_generation_prompt", Value::from(answer)));
        let mut text = Bounded(Vec::new());
        let written = template.render_captured_to(Value::from_pairs(context), &mut text).map(|_| ());
        written.map_err(|e| match e.kind() {
            ErrorKind::WriteFailure => {
                Error::Template(format!("the template writes more than {MAX_BYTES} bytes"))
            }
            _ => template_error(&e),
        })?;
        String::from_utf8(text.0).map_err(|e| Error::Template(e.to_string()))
    }

    fn environment(&self, now: Clock) -> Result<Environment<'_>> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| template_error(&e))?);
        environment.set_fuel(Some(MAX_STEPS));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise);
        environment.add_function("strftime_now", move |form: &str| now.format(form));
        environment.add_filter("tojson", tojson);
        environment.add_template("chat", &self.source).map_err(|e| template_error(&e))?;
        Ok(environment)
    }
}

/// Output buffer that refuses more than [`MAX_BYTES`] bytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > MAX_BYTES - self.0.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the chat template in `tokenizer_config.json`: a string, or in a list of templates the one named `default`, else the
/// first.
fn configured_template(config: &Json) -> Option<String> {
    let template = config.get("chat_template")?;
    if let Some(text) = template.as_str() {
        return Some(text.to_owned());
    }
    let list = template.as_array()?;
    let default = list.iter().find(|t| t.get("name").and_then(Json::as_str) == Some("default"));
    default.or(list.first())?.get("template")?.as_str().map(str::to_owned)
}

/// Removes the tags of `generation` blocks, which mark answers for training, and keeps the content of the blocks.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest.get(start..).and_then(|tag| tag.find("%}")) else { break };
        let end = start + length + 2;
        let inside = rest.get(start + 2..start + length).unwrap_or_default();
        let name = inside.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        out.push_str(rest.get(..start).unwrap_or_default());
        if matches!(name, "generation" | "endgeneration") {
            // A comment trims whitespace like the block.
            let dash = |at: bool| if at { "-" } else { "" };
            out.push_str(&format!("{{#{} {}#}}", dash(inside.starts_with('-')), dash(inside.ends_with('-'))));
        } else {
            out.push_str(rest.get(start..end).unwrap_or_default());
        }
        rest = rest.get(end..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

fn raise(message: String) -> std::result::Result<String, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// Jinja filter `tojson`: JSON in the format of Python's `json.dumps(ensure_ascii=False)`.
#[expect(clippy::needless_pass_by_value, reason = "minijinja passes the options of a filter by value")]
fn tojson(value: &Value, options: Kwargs) -> std::result::Result<Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    let _: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let fail = |e: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string());
    let json = serde_json::to_value(value).map_err(fail)?;
    let mut out = String::new();
    write(&json, indent, 0, &mut out);
    Ok(Value::from_safe_string(out))
}

fn write(json: &Json, indent: Option<usize>, depth: usize, out: &mut String) {
    let line = |depth: usize| indent.map_or(String::new(), |n| format!("\n{}", " ".repeat(n * depth)));
    let comma = if indent.is_some() { "," } else { ", " };
    match json {
        Json::Array(list) if !list.is_empty() => {
            out.push('[');
            for (i, value) in list.iter().enumerate() {
                out.push_str(if i > 0 { comma } else { "" });
                out.push_str(&line(depth + 1));
                write(value, indent, depth + 1, out);
            }
            out.push_str(&line(depth));
            out.push(']');
        }
        Json::Object(fields) if !fields.is_empty() => {
            out.push('{');
            for (i, (name, value)) in fields.iter().enumerate() {
                out.push_str(if i > 0 { comma } else { "" });
                out.push_str(&line(depth + 1));
                out.push_str(&Json::from(name.as_str()).to_string());
                out.push_str(": ");
                write(value, indent, depth + 1, out);
            }
            out.push_str(&line(depth));
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

fn template_error(error: &minijinja::Error) -> Error {
    let place = error.line().map_or(String::new(), |line| format!("line {line}: "));
    let reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    Error::Template(format!("{place}{reason}"))
}

#[cfg(test)]
mod tests {
    use super::{ChatTemplate, Message};
    use crate::Clock;

    fn render(template: &str, messages: &[Message]) -> Result<String, String> {
        let config =
            serde_json::json!({"chat_template": template, "bos_token": {"content": "<s>"}}).to_string();
        let template = ChatTemplate::new(None, Some(config.as_bytes())).map_err(|e| e.to_string())?;
        template
            .expect("there is one")
            .render(messages, true, Clock(1_735_689_599))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn templates_have_the_additions_of_transformers() {
        let said = [Message::new("user", " Hi <b>\"ü\"</b> "), Message::new("assistant", "Ho")];
        let cases = [
            ("{{ bos_token }}{% for m in messages %}{{ m.role | upper }}{% endfor %}", "<s>USERASSISTANT"),
            (
                "{% for m in messages %}\n    {% if loop.first %}\n{{ m['content'].strip() }}\n    {% endif %}\n{% endfor %}",
                "Hi <b>\"ü\"</b>\n",
            ),
            ("{% for m in messages %}{% if m.role == 'assistant' %}{% break %}{% endif %}x{% endfor %}", "x"),
            ("{{ messages[0] | tojson }}", "{\"content\": \" Hi <b>\\\"ü\\\"</b> \", \"role\": \"user\"}"),
            ("{{ {'a': [1, {}]} | tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    {}\n  ]\n}"),
            ("{{ strftime_now('%d %b %Y') }}", "31 Dec 2024"),
            (
                "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
                "2",
            ),
            ("{% generation %}a{%- endgeneration %}b", "ab"),
            ("{{ messages[0].content.split('<')[0] ~ messages[1:][0].role.startswith('ass') }}", " Hi True"),
            ("{% if tools is defined and tools %}t{% endif %}{% if not system %}s{% endif %}", "s"),
        ];
        for (template, expected) in cases {
            let got = render(template, &said);
            assert_eq!(got.as_deref().map(str::to_lowercase), Ok(expected.to_lowercase()), "{template}");
        }
    }

    #[test]
    fn errors_have_a_reason() {
        let refused = render("{{ raise_exception('roles must alternate') }}", &[]).unwrap_err();
        assert!(refused.contains("roles must alternate"), "{refused}");
        let malformed = render("{% for m in messages %}", &[]).unwrap_err();
        assert!(malformed.contains("the chat template: line 1"), "{malformed}");
        let endless = render(
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}",
            &[],
        );
        assert!(endless.is_err());
        let long = render("{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", &[]).unwrap_err();
        assert!(long.contains("more than"), "{long}");
        assert!(ChatTemplate::new(None, Some(b"{}")).unwrap().is_none());
        assert!(ChatTemplate::new(None, Some(b"{")).is_err());
    }
}
