//! Specialising a kernel: whole top-level declarations of its WGSL are replaced by name, marked loops are
//! unrolled, and declarations that nothing uses any more are dropped. Nothing else is edited.
//!
//! A kernel file is a complete, valid WGSL module. What may vary is a `const`, an `alias` or a `fn`; a replacement
//! may hold several declarations, so that a hook brings its own bindings. Marked loops are the subject of `unroll`.

use std::collections::{BTreeMap, BTreeSet};

use super::unroll::{next_marker, unroll};

/// A top-level declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declaration {
    /// Declared name; empty for directives and assertions.
    pub(super) name: String,
    /// Text without comments before it.
    pub(super) text: String,
}

/// The kernel's text with `replacements` applied and `extra` declarations appended; where it is to be `short`, loops that
/// may stay do.
///
/// # Errors
/// A replaced name that the kernel does not declare, or a marked loop without constant bounds.
pub fn specialize(
    source: &str,
    replacements: &BTreeMap<String, String>,
    extra: &str,
    short: bool,
) -> Result<String, String> {
    let own = self::declarations(source)?;
    if let Some(name) = replacements.keys().find(|name| !own.iter().any(|d| d.name == **name)) {
        return Err(format!("the kernel does not declare `{name}`"));
    }
    let mut declarations = Vec::with_capacity(own.len());
    for declaration in own {
        match replacements.get(&declaration.name) {
            Some(text) => declarations.extend(self::declarations(text)?),
            None => declarations.push(declaration),
        }
    }
    declarations.extend(self::declarations(extra)?);
    let mut known = BTreeSet::new();
    if let Some(twice) = declarations.iter().find(|d| !d.name.is_empty() && !known.insert(&d.name)) {
        return Err(format!("`{}` is declared twice", twice.name));
    }
    let constants: BTreeMap<String, String> = declarations
        .iter()
        .filter_map(|d| Some((d.name.clone(), d.text.strip_prefix("const ")?.split_once('=')?.1.to_string())))
        .collect();
    for declaration in &mut declarations {
        if next_marker(&declaration.text, 0).is_some() {
            declaration.text = unroll(&declaration.text, &constants, short)?;
        }
        declaration.text = strip_comments(&declaration.text);
    }
    prune(&mut declarations);
    let texts: Vec<String> = declarations.into_iter().map(|d| d.text).collect();
    Ok(texts.join("\n") + "\n")
}

/// Names of the top-level declarations, in order.
///
/// # Errors
/// Text that is not a sequence of declarations.
pub fn names(source: &str) -> Result<Vec<String>, String> {
    Ok(declarations(source)?.into_iter().map(|d| d.name).filter(|n| !n.is_empty()).collect())
}

/// Splits a module into its top-level declarations.
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

/// The byte after the declaration that starts at `start`: its `;` at depth zero, or the brace that closes it.
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

/// The name after `const`, `alias`, `fn`, `struct`, `override` or `var<..>`, past any attributes.
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

/// Whether a byte is of an identifier or a number.
fn of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Bytes of the identifier or number that a text starts with.
fn word(text: &str) -> usize {
    let mut length = 0;
    while text.as_bytes().get(length).is_some_and(|byte| of_word(*byte)) {
        length += 1;
    }
    length
}

/// The text in parts: identifiers, numbers, and single other characters, spaces among them.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let length = match word(rest) {
            0 => rest.chars().next()?.len_utf8(),
            length => length,
        };
        let (part, after) = rest.split_at(length);
        rest = after;
        Some(part)
    })
}

/// Identifiers, numbers and single punctuation characters.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = &str> {
    parts(text).filter(|part| part.starts_with(|c: char| c.is_ascii_graphic()))
}

/// The text with another name or value for an identifier that is no member's.
pub(super) fn renamed(text: &str, from: &str, to: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in text.match_indices(from) {
        let end = at + from.len();
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let begins = before.is_none_or(|byte| !of_word(*byte) && *byte != b'.');
        if begins && bytes.get(end).is_none_or(|byte| !of_word(*byte)) {
            out.push_str(&text[done..at]);
            out.push_str(to);
            done = end;
        }
    }
    out.push_str(&text[done..]);
    out
}

/// Where the next comment begins, from a byte on.
pub(super) fn comment(text: &str, from: usize) -> Option<usize> {
    let mut slashes = text.get(from..)?.match_indices('/').map(|(at, _)| from + at);
    let bytes = text.as_bytes();
    slashes.find(|at| bytes.get(at + 1) == Some(&b'/'))
}

fn strip_comments(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(|l| comment(l, 0).map_or(l, |at| &l[..at]).trim_end())
        .filter(|l| !l.trim().is_empty())
        .collect();
    lines.join("\n")
}

/// Drops declarations that no entry point, directive or assertion reaches.
fn prune(declarations: &mut Vec<Declaration>) {
    let names: BTreeMap<&str, usize> = declarations
        .iter()
        .enumerate()
        .map(|(i, d)| (d.name.as_str(), i))
        .filter(|(n, _)| !n.is_empty())
        .collect();
    let mut live: BTreeSet<usize> = BTreeSet::new();
    let mut stack: Vec<usize> = declarations
        .iter()
        .enumerate()
        .filter(|(_, d)| d.name.is_empty() || d.text.contains("@compute"))
        .map(|(i, _)| i)
        .collect();
    while let Some(i) = stack.pop() {
        if live.insert(i) {
            let named = |part: &&str| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let used = parts(&declarations[i].text).filter(named);
            stack.extend(used.filter_map(|part| names.get(part).copied()));
        }
    }
    let mut index = 0;
    declarations.retain(|_| {
        index += 1;
        live.contains(&(index - 1))
    });
}

#[cfg(test)]
mod tests {
    use super::specialize;
    use std::collections::BTreeMap;

    const KERNEL: &str = "
/// Knob.
const N = 2u;
const M = N * 2u; // derived
alias elem = f32;
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> o: array<f32>;
fn load(i: u32) -> f32 { return a[i]; }
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    // unroll
    for (var i = 0u; i < M / 2u; i++) {
        o[id.x * M + i] = load(i);
    }
}
";

    #[test]
    fn replaces_unrolls_and_prunes() {
        let with =
            BTreeMap::from([("load".to_string(), "fn load(i: u32) -> f32 { return f32(i); }".to_string())]);
        let text = specialize(KERNEL, &with, "", false).unwrap();
        assert!(text.contains("{\n        o[id.x * M + 0u] = load(0u);"), "{text}");
        assert!(text.contains("load(1u)") && !text.contains("load(2u)"));
        assert!(!text.contains("array<f32>;\n@group(0) @binding(1)"), "the unused binding goes: {text}");
        assert!(!text.contains("elem"));
    }

    #[test]
    fn unknown_names_are_errors() {
        let with = BTreeMap::from([("nothing".to_string(), String::new())]);
        assert!(specialize(KERNEL, &with, "", false).is_err());
        assert!(specialize(KERNEL, &BTreeMap::new(), "alias elem = u32;", false).is_err());
    }
}
