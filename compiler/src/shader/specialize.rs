//! Specialising a kernel: whole top-level declarations of its WGSL are replaced by name, marked loops are
//! unrolled, and declarations that nothing uses any more are dropped. Nothing else is edited.
//!
//! A kernel file is a complete, valid WGSL module. What may vary is a `const`, an `alias` or a `fn`; a replacement
//! may hold several declarations, so that a hook brings its own bindings. A loop under a line `// unroll` must have
//! constant bounds; its body is repeated with the variable replaced by a literal, because arrays indexed by literals
//! stay in registers and drivers do not unroll naga's loops.

use std::collections::{BTreeMap, BTreeSet};

/// Most statements that unrolling may produce, as bytes of text.
const MAX_TEXT: usize = 1 << 20;

/// A top-level declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Declaration {
    /// Declared name; empty for directives and assertions.
    name: String,
    /// Text without comments before it.
    text: String,
}

/// The kernel's text with `replacements` applied and `extra` declarations appended.
///
/// # Errors
/// A replaced name that the kernel does not declare, or a marked loop without constant bounds.
pub fn specialize(
    source: &str,
    replacements: &BTreeMap<String, String>,
    extra: &str,
) -> Result<String, String> {
    let mut declarations = declarations(source)?;
    for (name, text) in replacements {
        let Some(found) = declarations.iter_mut().find(|d| d.name == *name) else {
            return Err(format!("the kernel does not declare `{name}`"));
        };
        found.text.clone_from(text);
    }
    let joined: Vec<String> = declarations.into_iter().map(|d| d.text).collect();
    let mut declarations = self::declarations(&format!("{}\n{extra}", joined.join("\n")))?;
    let mut known = BTreeSet::new();
    if let Some(twice) = declarations.iter().find(|d| !d.name.is_empty() && !known.insert(&d.name)) {
        return Err(format!("`{}` is declared twice", twice.name));
    }
    let constants: BTreeMap<String, String> = declarations
        .iter()
        .filter_map(|d| Some((d.name.clone(), d.text.strip_prefix("const ")?.split_once('=')?.1.to_string())))
        .collect();
    for declaration in &mut declarations {
        if declaration.text.contains("// unroll") {
            declaration.text = unroll(&declaration.text, &constants)?;
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
fn declarations(source: &str) -> Result<Vec<Declaration>, String> {
    let bytes = source.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at].is_ascii_whitespace() || bytes[at] == b';' {
            at += 1;
            continue;
        }
        if source[at..].starts_with("//") {
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
fn declaration_end(source: &str, start: usize) -> Result<usize, String> {
    let bytes = source.as_bytes();
    let mut depth = 0i32;
    let mut at = start;
    while at < bytes.len() {
        if source.is_char_boundary(at) && source[at..].starts_with("//") {
            at += source[at..].find('\n').unwrap_or(bytes.len() - at);
            continue;
        }
        match bytes[at] {
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
    let mut tokens = tokens(text).into_iter().peekable();
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

/// Identifiers, numbers and single punctuation characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let c = bytes[at];
        if c.is_ascii_alphanumeric() || c == b'_' {
            let start = at;
            while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                at += 1;
            }
            out.push(&text[start..at]);
        } else if c.is_ascii_whitespace() || !c.is_ascii() {
            at += 1;
        } else {
            out.push(&text[at..=at]);
            at += 1;
        }
    }
    out
}

fn strip_comments(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(|l| l.split_once("//").map_or(l, |(code, _)| code).trim_end())
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
            stack.extend(tokens(&declarations[i].text).into_iter().filter_map(|t| names.get(t).copied()));
        }
    }
    let mut index = 0;
    declarations.retain(|_| {
        index += 1;
        live.contains(&(index - 1))
    });
}

/// Repeats the bodies of the loops under `// unroll` until none is left.
fn unroll(text: &str, constants: &BTreeMap<String, String>) -> Result<String, String> {
    let mut text = text.to_string();
    while let Some(marker) = text.find("// unroll") {
        if text.len() > MAX_TEXT {
            return Err("unrolling makes the kernel too large".into());
        }
        let line_end = marker + text[marker..].find('\n').ok_or("a marker without a loop")?;
        let head_start = line_end + text[line_end..].find("for").ok_or("a marker without a loop")?;
        let brace = head_start + text[head_start..].find('{').ok_or("a loop without a body")?;
        let head = &text[head_start..brace];
        let end = declaration_end(&text, brace)?;
        let body = &text[brace + 1..end - 1];
        let (variable, values, suffix) = loop_values(head, constants)?;
        let mut repeated = String::new();
        for value in values {
            repeated.push('{');
            repeated.push_str(&substitute(body, &variable, &format!("{value}{suffix}")));
            repeated.push_str("}\n");
        }
        text.replace_range(marker..end, &repeated);
    }
    Ok(text)
}

/// Variable, values and literal suffix of `for (var i = A; i < B; i++)` or `i += C`.
fn loop_values(
    head: &str,
    constants: &BTreeMap<String, String>,
) -> Result<(String, Vec<i64>, &'static str), String> {
    let bad = || format!("`{}` has no constant bounds to unroll", head.trim());
    let inner = head.trim().strip_prefix("for").ok_or_else(bad)?.trim();
    let inner = inner.strip_prefix('(').and_then(|s| s.strip_suffix(')')).ok_or_else(bad)?;
    let parts: Vec<&str> = inner.split(';').collect();
    let [init, condition, step] = parts.as_slice() else { return Err(bad()) };
    let (name, start) = init.trim().strip_prefix("var ").and_then(|s| s.split_once('=')).ok_or_else(bad)?;
    let name = name.split(':').next().unwrap_or(name).trim().to_string();
    let (_, end) = condition.split_once('<').ok_or_else(bad)?;
    let step = step.trim();
    let by = if step.ends_with("++") { "1" } else { step.split_once("+=").ok_or_else(bad)?.1 };
    let value = |t: &str| constant(t, constants, 0).ok_or_else(bad);
    let (first, last, by) = (value(start)?, value(end)?, value(by)?);
    if by <= 0 || last.saturating_sub(first) / by > 4096 {
        return Err(bad());
    }
    let suffix = if start.trim().ends_with('u') { "u" } else { "" };
    let values = (first..last).step_by(usize::try_from(by).map_err(|e| e.to_string())?).collect();
    Ok((name, values, suffix))
}

/// `text` with the identifier replaced.
fn substitute(text: &str, name: &str, value: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let c = bytes[at];
        if c.is_ascii_alphanumeric() || c == b'_' {
            let start = at;
            while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                at += 1;
            }
            let token = &text[start..at];
            out.push_str(if token == name && (start == 0 || bytes[start - 1] != b'.') {
                value
            } else {
                token
            });
        } else {
            let start = at;
            at += 1;
            while at < bytes.len() && !text.is_char_boundary(at) {
                at += 1;
            }
            out.push_str(&text[start..at]);
        }
    }
    out
}

/// The value of an integer expression over constants.
fn constant(text: &str, constants: &BTreeMap<String, String>, depth: u32) -> Option<i64> {
    let tokens = tokens(text.trim().trim_end_matches(';'));
    let mut at = 0;
    let value = sum(&tokens, &mut at, constants, depth)?;
    (at == tokens.len()).then_some(value)
}

fn sum(tokens: &[&str], at: &mut usize, constants: &BTreeMap<String, String>, depth: u32) -> Option<i64> {
    let mut value = term(tokens, at, constants, depth)?;
    while let Some(op @ ("+" | "-")) = tokens.get(*at).copied() {
        *at += 1;
        let right = term(tokens, at, constants, depth)?;
        value = if op == "+" { value.checked_add(right)? } else { value.checked_sub(right)? };
    }
    Some(value)
}

fn term(tokens: &[&str], at: &mut usize, constants: &BTreeMap<String, String>, depth: u32) -> Option<i64> {
    let mut value = atom(tokens, at, constants, depth)?;
    while let Some(op @ ("*" | "/" | "%")) = tokens.get(*at).copied() {
        *at += 1;
        let right = atom(tokens, at, constants, depth)?;
        value = match op {
            "*" => value.checked_mul(right)?,
            "/" => value.checked_div(right)?,
            _ => value.checked_rem(right)?,
        };
    }
    Some(value)
}

fn atom(tokens: &[&str], at: &mut usize, constants: &BTreeMap<String, String>, depth: u32) -> Option<i64> {
    let token = *tokens.get(*at)?;
    *at += 1;
    if token == "(" {
        let value = sum(tokens, at, constants, depth)?;
        (*tokens.get(*at)? == ")").then_some(())?;
        *at += 1;
        return Some(value);
    }
    if token.starts_with(|c: char| c.is_ascii_digit()) {
        return token.trim_end_matches(['u', 'i']).parse().ok();
    }
    if depth > 16 {
        return None;
    }
    constant(constants.get(token)?, constants, depth + 1)
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
        let text = specialize(KERNEL, &with, "").unwrap();
        assert!(text.contains("{\n        o[id.x * M + 0u] = load(0u);"), "{text}");
        assert!(text.contains("load(1u)") && !text.contains("load(2u)"));
        assert!(!text.contains("array<f32>;\n@group(0) @binding(1)"), "the unused binding goes: {text}");
        assert!(!text.contains("elem"));
    }

    #[test]
    fn unknown_names_are_errors() {
        let with = BTreeMap::from([("nothing".to_string(), String::new())]);
        assert!(specialize(KERNEL, &with, "").is_err());
        assert!(specialize(KERNEL, &BTreeMap::new(), "alias elem = u32;").is_err());
    }
}
