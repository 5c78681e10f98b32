//! JSON as Python writes it, with `NaN`, `Infinity` and `-Infinity`.

/// Words of Python's JSON that are not JSON.
const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];

/// Puts quotes around the numbers of Python's JSON that are not JSON.
pub(super) fn quote_numbers(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 16);
    let mut rest = bytes;
    let mut in_string = false;
    while let Some((&byte, tail)) = rest.split_first() {
        let word = WORDS.iter().find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            out.push(b'"');
            out.extend_from_slice(word);
            out.push(b'"');
            rest = rest.get(word.len()..).unwrap_or_default();
            continue;
        }
        out.push(byte);
        rest = tail;
        if byte == b'"' {
            in_string = !in_string;
        }
        if in_string && byte == b'\\' {
            // The character after a backslash cannot end the string.
            out.extend(rest.first());
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::quote_numbers;

    #[test]
    fn quotes_numbers_outside_strings() {
        let text = br#"{"a": -Infinity, "NaN \" NaN": [NaN, Infinity, 1], "b\\": NaN}"#;
        let expected = br#"{"a": "-Infinity", "NaN \" NaN": ["NaN", "Infinity", 1], "b\\": "NaN"}"#;
        assert_eq!(quote_numbers(text), expected);
        assert_eq!(quote_numbers(b"\"\\"), b"\"\\");
    }
}
