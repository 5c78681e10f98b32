//! Suggestions for misspelled names in error messages.

/// Minimum similarity, from 0 to 1, of a suggested name.
const MIN_SIMILARITY: f64 = 0.8;
/// Similarity of an abbreviation, such as `ctx` of `context`.
const ABBREVIATION: f64 = 0.85;

/// Returns the candidate that is most similar to a name, ignoring case. Returns `None` if no candidate is similar.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        let score = similarity(&name, &candidate.to_lowercase());
        if score >= MIN_SIMILARITY && best.is_none_or(|(most, _)| score > most) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Returns the start of a help text: a question that suggests the most similar candidate, or an empty text.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    closest(name, candidates).map_or_else(String::new, |found| format!("did you mean `{found}`? "))
}

fn similarity(name: &str, candidate: &str) -> f64 {
    let score = strsim::jaro_winkler(name, candidate);
    let abbreviates = |short: &str, long: &str| {
        let mut letters = long.chars();
        short.len() >= 2
            && short.chars().next() == long.chars().next()
            && short.chars().all(|letter| letters.any(|other| other == letter))
    };
    match abbreviates(name, candidate) || abbreviates(candidate, name) {
        true => score.max(ABBREVIATION),
        false => score,
    }
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn misspelled_and_abbreviated_names_are_found() {
        let sizes = ["batch", "seq", "context", "chunk", "long"];
        assert_eq!(closest("ctx", sizes), Some("context"));
        assert_eq!(closest("Contexts", sizes), Some("context"));
        assert_eq!(closest("sequence", sizes), Some("seq"));
        assert_eq!(closest("foo", sizes), None);
        assert_eq!(closest("nvidia-hoper", ["lavapipe", "nvidia-hopper"]), Some("nvidia-hopper"));
    }
}
