//! Stop strings: a generated text ends before the first of them.

/// Filter that passes a text on until a stop string occurs. It holds back text that may be the start of a stop string.
#[derive(Debug, Default)]
pub(crate) struct StopFilter {
    stops: Vec<String>,
    held: String,
    found: Option<String>,
}

impl StopFilter {
    /// Creates a filter. Empty stop strings are ignored.
    pub(crate) fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Self { stops, ..Self::default() }
    }

    /// Adds text and returns the text that can be passed on. After a stop string was found, returns nothing.
    pub(crate) fn push(&mut self, text: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        self.held.push_str(text);
        let first = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)));
        // The longer one of two stop strings at the same place is reported.
        let first = first.min_by_key(|(at, stop)| (*at, std::cmp::Reverse(stop.len())));
        if let Some((at, stop)) = first.map(|(at, stop)| (at, stop.clone())) {
            self.found = Some(stop);
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let kept = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        std::mem::replace(&mut self.held, rest)
    }

    /// Returns the stop string that was found.
    pub(crate) fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Returns the text that was held back, at the end of the generation.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Returns the number of bytes at the end of `text` that are the start of `stop`, but not all of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let lengths = stop.char_indices().map(|(at, _)| at).skip(1).collect::<Vec<usize>>();
    let starts = lengths.into_iter().rev();
    let mut starts = starts.filter(|length| stop.get(..*length).is_some_and(|start| text.ends_with(start)));
    starts.next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::StopFilter;

    /// Pushes pieces, and returns the pieces passed on, with the rest at the end.
    fn filtered(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut filter = StopFilter::new(&stops);
        let mut passed: Vec<String> = pieces.iter().map(|piece| filter.push(piece)).collect();
        passed.push(filter.finish());
        (passed, filter.found().map(str::to_owned))
    }

    #[test]
    fn text_ends_before_the_first_stop_string() {
        let (passed, found) = filtered(&["END", "\n\n"], &["ab", "cE", "ND x"]);
        assert_eq!((passed.concat().as_str(), found.as_deref()), ("abc", Some("END")));
        let (passed, found) = filtered(&["END", "\n\n"], &["a\n", "\nEND"]);
        assert_eq!((passed.concat().as_str(), found.as_deref()), ("a", Some("\n\n")));
        let (passed, found) = filtered(&["b", "bc"], &["abc"]);
        assert_eq!((passed.concat().as_str(), found.as_deref()), ("a", Some("bc")));
    }

    #[test]
    fn only_possible_starts_are_held_back() {
        let (passed, found) = filtered(&["\u{e9}\u{e9}x"], &["a\u{e9}", "\u{e9}", "b", "\u{e9}"]);
        assert_eq!(passed, ["a", "", "\u{e9}\u{e9}b", "", "\u{e9}"]);
        assert_eq!(found, None);
        let (passed, _) = filtered(&[""], &["a", "b"]);
        assert_eq!(passed, ["a", "b", ""]);
        // A longer possible start wins: `aab` after `aa`.
        let (passed, found) = filtered(&["aab"], &["aa", "a", "b"]);
        assert_eq!((passed.concat().as_str(), found.as_deref()), ("a", Some("aab")));
    }
}
