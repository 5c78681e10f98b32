//! Comparison of a command's output with the output that a document shows.
//!
//! Times, byte sizes, numbers with a decimal point, hashes and driver versions differ between machines and are not compared. In
//! a document, a line `...` stands for any number of lines, ` ...` at the end of a line for the rest of the line, and `[..]` for
//! any text within a line.

/// Units of times, rates and sizes. A number before them is not compared.
const UNITS: &[&str] =
    &["ns", "µs", "us", "ms", "s", "min", "bytes", "B", "KiB", "MiB", "GiB", "KB", "MB", "GB", "tokens/s"];

/// Compares output with the output that a document shows.
///
/// # Errors
/// If they differ. The message has both.
pub(crate) fn compare(shown: &str, output: &str) -> Result<(), String> {
    let lines = |text: &str| text.trim_end().lines().map(mask).collect::<Vec<String>>();
    let (expected, found) = (lines(shown), lines(output));
    if matches(&expected, &found) {
        return Ok(());
    }
    Err(format!("the document shows\n{}\nbut the output is\n{}", shown.trim_end(), output.trim_end()))
}

fn matches(expected: &[String], found: &[String]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((first, rest)) if first.trim() == "..." => {
            (0..=found.len()).any(|skipped| matches(rest, &found[skipped..]))
        }
        Some((first, rest)) => {
            found.split_first().is_some_and(|(line, found)| line_matches(first, line) && matches(rest, found))
        }
    }
}

/// True if a line equals a line of a document, in which `[..]` and a last ` ...` stand for any text.
fn line_matches(expected: &str, found: &str) -> bool {
    if let Some((start, rest)) = expected.split_once("[..]") {
        let Some(found) = found.strip_prefix(start) else { return false };
        return (0..=found.len())
            .filter(|at| found.is_char_boundary(*at))
            .any(|at| line_matches(rest, &found[at..]));
    }
    match expected.strip_suffix(" ...") {
        Some(start) => found.starts_with(start),
        None => expected == found,
    }
}

/// Replaces everything in a line that differs between machines.
fn mask(line: &str) -> String {
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    let mut masked = Vec::with_capacity(words.len());
    for (i, word) in words.iter().enumerate() {
        let unit = words.get(i + 1).map(|next| next.trim_matches(['(', ')', ',', ';', ':', '.']));
        let before_unit = unit.is_some_and(|unit| UNITS.contains(&unit));
        let is_unit = i > 0 && UNITS.contains(&word.trim_matches(['(', ')', ',', ';', ':', '.']));
        let ends = word.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "µ/".contains(c));
        match (number(word), before_unit) {
            (Some(number), before_unit) if before_unit || number.contains(['.', 'e']) => {
                masked.push(word.replacen(number, "<number>", 1));
            }
            _ if is_unit && i > 0 && number(words[i - 1]).is_some() => masked.push(format!("<unit>{ends}")),
            _ => masked.push(without_hash(word)),
        }
    }
    let masked = masked.join(" ");
    match masked.split_once("(LLVM ") {
        Some((start, rest)) => {
            format!("{start}(LLVM <version>){}", rest.split_once(')').map_or("", |(_, end)| end))
        }
        None => masked,
    }
}

/// Returns the number in a word that is a number within punctuation.
fn number(word: &str) -> Option<&str> {
    let number = word.trim_matches(['(', ')', ',', ';', ':', '[', ']', '.']);
    (number.starts_with(|c: char| c.is_ascii_digit() || c == '-') && number.parse::<f64>().is_ok())
        .then_some(number)
}

/// Replaces a hash, which has at least 12 hexadecimal digits and follows `-`.
fn without_hash(word: &str) -> String {
    let parts = word.split('-').map(|part| {
        let end = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
        if end >= 12 { format!("<hash>{}", &part[end..]) } else { part.to_owned() }
    });
    parts.collect::<Vec<String>>().join("-")
}

/// Checks this file on examples.
///
/// # Errors
/// If a pair that must match does not match, or the reverse.
pub(crate) fn check() -> Result<(), String> {
    let alike = [
        ("load 79.2 ms, first run 2.40 s", "load 1.2 s, first run 90.0 ms"),
        ("cached as ~/a-158d08d2614cd9e4.drift", "cached as ~/a-0123456789abcdef.drift"),
        ("main: 111 µs (51.6 µs to 237 µs) in 29 dispatches", "main: 2 ms (1 ms to 3 ms) in 29 dispatches"),
        ("f32[1] = 0.7, -0.2", "f32[1] = 0.8, 1.2e-5"),
        ("on x (LLVM 15.0.6, 256 bits)", "on x (LLVM 19.1.0, 512 bits)"),
        ("a\n...\nd", "a\nb\nc\nd"),
        ("a [..] c", "a b b c"),
        ("f32[9] = 0.5, 0.25, ...", "f32[9] = 0.5, 0.25, 0.5, 1, ..."),
    ];
    let different = [
        ("in 29 dispatches", "in 28 dispatches"),
        ("f32[1] = 0.7", "f32[2] = 0.7"),
        ("a\n...\nd", "a\nb"),
        ("a", "a\nb"),
        ("verified", "failed"),
    ];
    let pairs = alike.iter().map(|pair| (pair, true)).chain(different.iter().map(|pair| (pair, false)));
    for ((shown, output), expected) in pairs {
        if compare(shown, output).is_ok() != expected {
            return Err(format!("`{shown}` and `{output}`: expected {expected}"));
        }
    }
    Ok(())
}
