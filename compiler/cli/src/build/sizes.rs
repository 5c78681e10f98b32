//! Sizes, values and amounts in a manifest.

use serde::de::{Deserialize, Deserializer, Error};

/// Size: a number, a range `"LOW..HIGH"`, or the name of a symbolic dimension.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Size {
    Number(u64),
    Text(String),
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Values of a constant input.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Values {
    Flag(bool),
    Integer(i64),
    Float(f64),
    /// Numbers for all elements.
    List(Vec<Number>),
    /// Path of a .npy file, or numbers with commas.
    Text(String),
}

/// Number of a list of values.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x:?}"),
        }
    }
}

/// Number of bytes: an integer, or text with a unit, such as `"40 MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(n) => Ok(Self(n)),
            Written::Text(text) => parse_bytes(&text).map(Self).ok_or_else(|| {
                D::Error::custom(format!("`{text}` is no number of bytes; write for example \"40 MiB\""))
            }),
        }
    }
}

/// Parses a number with a unit of bytes: B, kB, MB, GB, KiB, MiB or GiB.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: f64 = match unit.trim() {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => f64::from(1u32 << 10),
        "MiB" => f64::from(1u32 << 20),
        "GiB" => f64::from(1u32 << 30),
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    // Every integer below 2^53 is exact.
    (bytes.fract() == 0.0 || factor > 1.0).then_some(bytes as u64).filter(|_| bytes < 9e15)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn bytes_have_units() {
        for (text, bytes) in
            [("7", 7), ("7 B", 7), ("1.5 KiB", 1536), ("40MiB", 40 << 20), ("2 GB", 2_000_000_000)]
        {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for bad in ["", "MiB", "-1", "1.5", "4 mib", "1e3", "9999999999 GiB", "1 2"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }
}
