//! Parsing of WGSL source, as far as specialization needs it: top-level declarations, tokens and comments.

/// A top-level declaration of a WGSL module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declaration {
    /// Name that is declared. Empty for directives and assertions.
    pub(super) name: String,
    /// WGSL source of the declaration, without the comments before it.
    pub(super) text: String,
}

/// Splits a WGSL module into its top-level declarations.
pub(super) fn declarations(source: &str) -> Result<Vec<Declaration>, String> {
    let bytes = source.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at].is_ascii_whitespace() || bytes[at] == b';' {
            at += 1;
            continue;
        }
        if bytes[at..].starts_with(b"//") {
            at += source[at..].find('\n').unwrap_or(bytes.len() - at);
            continue;
        }
        let end = declaration_end(source, at)?;
        let text = source[at..end].to_string();
        out.push(Declaration { name: declared_name(&text), text });
        at = end;
    }
    Ok(out)
}

/// Returns the end, as a byte offset, of the declaration that starts at `start`: after a `;` that is in no brackets, or
/// after the closing brace.
pub(super) fn declaration_end(source: &str, start: usize) -> Result<usize, String> {
    let bytes = source.as_bytes();
    let mut depth = 0i32;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += source[at..].find('\n').unwrap_or(bytes.len() - at);
                continue;
            }
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            b';' if depth == 0 => return Ok(at + 1),
            _ => {}
        }
        at += 1;
    }
    Err(format!("unfinished declaration at byte {start}"))
}

/// Returns the name that a WGSL declaration declares: the name after `const`, `alias`, `fn`, `struct`, `override` or
/// `var<..>`. Attributes are skipped.
fn declared_name(text: &str) -> String {
    let mut tokens = tokens(text).peekable();
    let mut depth = 0i32;
    while let Some(token) = tokens.next() {
        match token {
            "(" => depth += 1,
            ")" => depth -= 1,
            "const" | "alias" | "fn" | "struct" | "override" if depth == 0 => {
                return tokens.next().unwrap_or_default().to_string();
            }
            "var" if depth == 0 => {
                if tokens.peek() == Some(&"<") {
                    for t in tokens.by_ref() {
                        if t == ">" {
                            break;
                        }
                    }
                }
                return tokens.next().unwrap_or_default().to_string();
            }
            "enable" | "requires" | "diagnostic" | "const_assert" if depth == 0 => return String::new(),
            _ => {}
        }
    }
    String::new()
}

/// True for bytes that occur in WGSL identifiers and numbers.
fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the length of the identifier or number at the start of a text.
fn word_length(text: &str) -> usize {
    let mut length = 0;
    while text.as_bytes().get(length).is_some_and(|byte| is_word_byte(*byte)) {
        length += 1;
    }
    length
}

/// Splits a text into identifiers, numbers, and single other characters, including whitespace.
pub(super) fn lexemes(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let length = match word_length(rest) {
            0 => rest.chars().next()?.len_utf8(),
            length => length,
        };
        let (part, after) = rest.split_at(length);
        rest = after;
        Some(part)
    })
}

/// Splits a text into identifiers, numbers and punctuation characters.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = &str> {
    lexemes(text).filter(|part| part.starts_with(|c: char| c.is_ascii_graphic()))
}

/// Replaces an identifier by another name or a value. Member accesses (`.name`) are not replaced.
pub(super) fn rename_identifier(text: &str, from: &str, to: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in text.match_indices(from) {
        let end = at + from.len();
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let begins = before.is_none_or(|byte| !is_word_byte(*byte) && *byte != b'.');
        if begins && bytes.get(end).is_none_or(|byte| !is_word_byte(*byte)) {
            out.push_str(&text[done..at]);
            out.push_str(to);
            done = end;
        }
    }
    out.push_str(&text[done..]);
    out
}

/// Returns the byte offset of the next comment at or after byte `from`.
pub(super) fn find_comment(text: &str, from: usize) -> Option<usize> {
    let mut slashes = text.get(from..)?.match_indices('/').map(|(at, _)| from + at);
    let bytes = text.as_bytes();
    slashes.find(|at| bytes.get(at + 1) == Some(&b'/'))
}
