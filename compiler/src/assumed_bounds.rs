//! The note about assumed bounds of symbolic sizes.

use crate::error::Within;

/// Bounds that are assumed for a symbolic size without bounds from the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumedBounds {
    /// Symbol and its bounds.
    pub within: Within,
    /// The quantity that the symbol counts, such as `batch`. `None` if the symbol's name says it.
    pub role: Option<&'static str>,
}

/// Returns one note for the user about all assumed bounds, with the options to copy. Returns `None` without assumed
/// bounds.
pub fn note(assumed: &[AssumedBounds]) -> Option<String> {
    if assumed.is_empty() {
        return None;
    }
    let symbol = |a: &AssumedBounds| match a.role {
        Some(role) => format!("`{}` ({role})", a.within.symbol),
        None => format!("`{}`", a.within.symbol),
    };
    let symbols: Vec<String> = assumed.iter().map(symbol).collect();
    let options: Vec<String> = assumed.iter().map(|a| a.within.to_string()).collect();
    Some(format!(
        "no bounds are given for {}: assuming {}; these options set other bounds",
        symbols.join(", "),
        options.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::{AssumedBounds, note};
    use crate::error::Within;

    #[test]
    fn one_note_has_all_options() {
        let assumed = |symbol: &str, low, high, role| AssumedBounds {
            within: Within { symbol: symbol.into(), low, high },
            role,
        };
        let text = note(&[assumed("n", 1, 1, Some("batch")), assumed("h", 32, 672, None)]).unwrap();
        assert!(text.contains("`n` (batch), `h`: assuming --dim n=1 --dim h=32..672;"), "{text}");
        assert_eq!(note(&[]), None);
    }
}
