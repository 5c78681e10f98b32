//! Unrolling of marked loops in a kernel's WGSL. It is needed because arrays stay in registers only if all their
//! indices are literals, and drivers do not unroll the loops that naga emits. The markers are comments before a loop:
//!
//! - `// unroll`: the loop has constant bounds. Its body is repeated for each value of the loop variable, which becomes
//!   a literal.
//! - `// unroll or loop`: like `// unroll`, but with `short_shaders` (the target prefers short shaders) the loop stays.
//! - `// unroll or shift A`: like `// unroll`, but with `short_shaders` the loop stays, and each iteration ends by
//!   moving all elements of array A down by one. The loop and its enclosing loops must visit the elements of A once, in
//!   order, and no later code may read A. Each iteration then finds its element at index 0, which is a literal.
//!
//! Code that runs once per result, such as an epilogue, makes up most of an unrolled shader but little of its time.
//! With `short_shaders` the loops around such code therefore stay loops.

use std::collections::BTreeMap;

use super::wgsl_syntax::{declaration_end, find_comment, rename_identifier, tokens};

/// Maximum size of a WGSL declaration during unrolling, in bytes.
const MAX_TEXT: usize = 1 << 20;

const MARKER: &str = "// unroll";

/// Unrolls the marked loops of a WGSL declaration, or keeps them as loops where `short_shaders` and the marker allow
/// it, until no marker is left.
///
/// # Errors
/// If a marker has no loop, a loop has no constant bounds, or the array of a marker `or shift` has no constant size.
pub(super) fn unroll(
    text: &str,
    constants: &BTreeMap<String, String>,
    short_shaders: bool,
) -> Result<String, String> {
    let mut text = text.to_string();
    let mut done = 0;
    while let Some(marker) = next_marker(&text, done) {
        if text.len() > MAX_TEXT {
            return Err("unrolling makes the kernel too large".into());
        }
        let line_end = marker + text[marker..].find('\n').ok_or("a marker without a loop")?;
        let head_start = line_end + text[line_end..].find("for").ok_or("a marker without a loop")?;
        let brace = head_start + text[head_start..].find('{').ok_or("a loop without a body")?;
        let end = declaration_end(&text, brace)?;
        let alternative = text[marker + MARKER.len()..line_end].trim();
        let (head, body) = (&text[head_start..brace], &text[brace + 1..end - 1]);
        let loop_text = match (short_shaders, alternative) {
            (_, "") | (false, _) => unrolled_body(head, body, constants)?,
            (true, "or loop") => text[head_start..end].to_string(),
            (true, _) => {
                let array = alternative
                    .strip_prefix("or shift ")
                    .ok_or_else(|| format!("`// unroll {alternative}` is not a known loop marker"))?;
                format!(
                    "{head}{{{}}}",
                    shifting_body(body, array, array_length(&text[..marker], array, constants)?)?
                )
            }
        };
        text.replace_range(marker..end, &loop_text);
        done = marker;
    }
    Ok(text)
}

/// True if a comment is the marker of a loop to unroll.
pub(super) fn is_marker(comment: &str) -> bool {
    comment.starts_with(MARKER)
}

/// Returns the byte offset of the next loop marker at or after byte `from`.
pub(super) fn next_marker(text: &str, from: usize) -> Option<usize> {
    let mut comments = std::iter::successors(find_comment(text, from), |at| find_comment(text, at + 2));
    comments.find(|at| is_marker(&text[*at..]))
}

/// Returns the body of a loop, repeated once for each value of the loop variable.
fn unrolled_body(head: &str, body: &str, constants: &BTreeMap<String, String>) -> Result<String, String> {
    let (variable, values, suffix) = loop_values(head, constants)?;
    let mut out = String::new();
    for value in values {
        out.push('{');
        out.push_str(&rename_identifier(body, &variable, &format!("{value}{suffix}")));
        out.push_str("}\n");
    }
    Ok(out)
}

/// Returns the body of a loop with all indices of an array replaced by 0, followed by statements that move the array's
/// elements down by one.
fn shifting_body(body: &str, array: &str, length: i64) -> Result<String, String> {
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find(&format!("{array}[")) {
        let bracket = at + array.len();
        // `array[` may be the end of a longer name.
        let other = rest[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        out.push_str(&rest[..bracket]);
        rest = &rest[bracket..];
        if !other {
            let mut depth = 0i32;
            let closing = rest.find(|c| {
                depth += i32::from(c == '[') - i32::from(c == ']');
                depth == 0
            });
            out.push_str("[0]");
            rest = &rest[closing.ok_or("an array index has no closing bracket")? + 1..];
        }
    }
    out.push_str(rest);
    for i in 1..length {
        out.push_str(&format!("{array}[{}] = {array}[{i}];\n", i - 1));
    }
    Ok(out)
}

/// Returns the length of an array from its last declaration `var A: array<T, N>` in the WGSL before the loop.
fn array_length(before: &str, array: &str, constants: &BTreeMap<String, String>) -> Result<i64, String> {
    let bad = || format!("`{array}` is not declared as an array of constant size");
    let (_, declared) = before.rsplit_once(&format!("var {array}: array<")).ok_or_else(bad)?;
    let (kind, _) = declared.split_once(';').ok_or_else(bad)?;
    let (_, size) = kind.strip_suffix('>').and_then(|kind| kind.rsplit_once(',')).ok_or_else(bad)?;
    constant_value(size, constants, 0).ok_or_else(bad)
}

/// Returns the loop variable, its values and its literal suffix (such as `u`), from a loop head `for (var i = A; i < B;
/// i++)` or one with `i += C`.
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
    let value = |t: &str| constant_value(t, constants, 0).ok_or_else(bad);
    let (first, last, by) = (value(start)?, value(end)?, value(by)?);
    if by <= 0 || last.saturating_sub(first) / by > 4096 {
        return Err(bad());
    }
    let suffix = if start.trim().ends_with('u') { "u" } else { "" };
    let values = (first..last).step_by(usize::try_from(by).map_err(|e| e.to_string())?).collect();
    Ok((name, values, suffix))
}

/// Returns the value of a WGSL integer expression of literals and constants, or `None` if it cannot be evaluated.
pub(super) fn constant_value(text: &str, constants: &BTreeMap<String, String>, depth: u32) -> Option<i64> {
    let tokens: Vec<&str> = tokens(text.trim().trim_end_matches(';')).collect();
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
    constant_value(constants.get(token)?, constants, depth + 1)
}

#[cfg(test)]
mod tests {
    use super::unroll;
    use std::collections::BTreeMap;

    const BODY: &str = "
    var acc: array<vec4<f32>, ROWS * COLS>;
    // unroll or loop
    for (var r = 0u; r < ROWS; r++) {
        // unroll or shift acc
        for (var c = 0u; c < COLS; c++) { store(r, c, my_acc[c], acc[r * last[COLS - 1u] + c]); }
    }";

    fn constants() -> BTreeMap<String, String> {
        BTreeMap::from([("ROWS".to_string(), "2u;".to_string()), ("COLS".to_string(), "2u;".to_string())])
    }

    #[test]
    fn marked_loops_are_unrolled() {
        let text = unroll(BODY, &constants(), false).unwrap();
        assert!(text.contains("store(1u, 0u, my_acc[0u], acc[1u * last[COLS - 1u] + 0u]);"), "{text}");
        assert!(!text.contains("for") && !text.contains("unroll"), "{text}");
    }

    #[test]
    fn short_shaders_shift_the_array_in_a_loop() {
        let text = unroll(BODY, &constants(), true).unwrap();
        assert_eq!(text.matches("for").count(), 2, "{text}");
        assert!(text.contains("store(r, c, my_acc[c], acc[0]);"), "{text}");
        assert!(text.contains("acc[0] = acc[1];\nacc[1] = acc[2];\nacc[2] = acc[3];\n"), "{text}");
        assert!(!text.contains("acc[4]") && !text.contains("unroll"), "{text}");
    }

    #[test]
    fn invalid_markers_are_errors() {
        let other = BODY.replace("or shift acc", "or shift sum");
        assert!(unroll(&other, &constants(), true).is_err());
        let other = BODY.replace("or shift acc", "or else");
        assert!(unroll(&other, &constants(), true).is_err());
        assert!(unroll("// unroll", &constants(), false).is_err());
    }
}
