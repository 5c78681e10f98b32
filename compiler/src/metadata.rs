//! Metadata of a model that its bundle carries: text by key from the model's files.
//!
//! Examples are the `metadata_props` of an ONNX file, the strings `general.*` of a GGUF file, and the labels of classes.
//! The compiler does not interpret them. Every runtime reads the whole metadata when it opens a bundle, so its size is
//! limited.

use std::collections::BTreeMap;

/// Maximum bytes of a model's metadata, keys and values together.
pub const MAX_BYTES: usize = 4 << 20;
/// Maximum bytes of a key.
pub const MAX_KEY_BYTES: usize = 256;

/// Key of the labels of a classifier's classes, one a line in the order of the class numbers.
pub const LABELS: &str = "labels";

/// Metadata of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Values by key.
    pub entries: BTreeMap<String, String>,
    /// Notes for the user about entries that exceed the limits.
    pub notes: Vec<String>,
}

impl Metadata {
    /// Adds an entry unless there is one with this key. An entry that exceeds the limits is left out, with a note.
    pub fn add(&mut self, key: &str, value: &str) {
        if self.entries.contains_key(key) {
            return;
        }
        let used: usize = self.entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        let bytes = key.len().saturating_add(value.len());
        if key.len() > MAX_KEY_BYTES || bytes > MAX_BYTES.saturating_sub(used) {
            let shown: String = key.chars().take(40).collect();
            self.notes.push(format!(
                "the bundle leaves out the metadata `{shown}` of {bytes} bytes: a key may have {MAX_KEY_BYTES} bytes, \
                 and the metadata of a model {} MiB",
                MAX_BYTES >> 20
            ));
            return;
        }
        self.entries.insert(key.to_owned(), value.to_owned());
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Metadata {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(entries: T) -> Self {
        let mut metadata = Self::default();
        entries.into_iter().for_each(|(key, value)| metadata.add(key, value));
        metadata
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, Metadata};

    #[test]
    fn entries_beyond_the_limits_are_left_out() {
        let half = "x".repeat(MAX_BYTES / 2);
        let long = "k".repeat(257);
        let entries =
            [("a", half.as_str()), ("b", half.as_str()), ("a", "again"), ("c", "short"), (long.as_str(), "")];
        let metadata: Metadata = entries.into_iter().collect();
        assert_eq!(metadata.entries.keys().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(metadata.entries["a"], half);
        assert_eq!(metadata.notes.len(), 2, "{:?}", metadata.notes);
        assert!(metadata.notes[0].contains("`b`"), "{:?}", metadata.notes);
    }
}
