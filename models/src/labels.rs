//! Labels of a classifier's classes, from files beside the model.

use std::path::Path;

use driftc::metadata::{LABELS, MAX_BYTES, Metadata};
use serde_json::Value;

/// Files with one label a line, in order of preference.
pub(crate) const FILES: &[&str] = &["labels.txt", "classes.txt"];

/// Adds the labels of a model in `folder` to its metadata: the lines of `labels.txt` or `classes.txt`, else `id2label` of
/// `config.json`. Files that cannot be used are left out, with a note.
pub fn add_labels(folder: &Path, metadata: &mut Metadata) {
    for name in FILES {
        match read_text(&folder.join(name)) {
            Ok(None) => {}
            Ok(Some(text)) => {
                let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
                metadata.add(LABELS, &lines.join("\n"));
            }
            Err(reason) => {
                metadata.notes.push(format!("the bundle leaves out the labels of {name}: {reason}"));
            }
        }
    }
    if let Ok(Some(text)) = read_text(&folder.join("config.json"))
        && let Ok(config) = serde_json::from_str(&text)
    {
        add_config_labels(&config, metadata);
    }
}

/// Adds the labels of the field `id2label` of a Hugging Face configuration to a model's metadata. Generated labels such
/// as `LABEL_0` are left out.
pub(crate) fn add_config_labels(config: &Value, metadata: &mut Metadata) {
    let Some(map) = config.get("id2label").and_then(Value::as_object) else { return };
    let mut labels = vec![None; map.len()];
    for (id, label) in map {
        let place = id.parse().ok().and_then(|id: usize| labels.get_mut(id));
        if let (Some(place), Some(label)) = (place, label.as_str()) {
            *place = Some(label.replace('\n', " "));
        }
    }
    // Numbers with gaps cannot be a list of lines.
    let Some(labels) = labels.into_iter().collect::<Option<Vec<String>>>() else { return };
    if !labels.iter().enumerate().all(|(id, label)| *label == format!("LABEL_{id}")) {
        metadata.add(LABELS, &labels.join("\n"));
    }
}

/// Reads a file of text. Returns `None` if there is no such file.
fn read_text(path: &Path) -> Result<Option<String>, String> {
    let Ok(file) = std::fs::metadata(path) else { return Ok(None) };
    if !file.is_file() {
        return Ok(None);
    }
    if file.len() > MAX_BYTES as u64 {
        return Err(format!("it has {} bytes; the maximum is {MAX_BYTES} bytes", file.len()));
    }
    std::fs::read_to_string(path).map(Some).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::add_labels;
    use driftc::metadata::Metadata;

    fn labels(files: &[(&str, &str)]) -> (Option<String>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let mut metadata = Metadata::default();
        add_labels(folder.path(), &mut metadata);
        (metadata.entries.remove("labels"), metadata.notes)
    }

    #[test]
    fn labels_come_from_a_list_or_from_the_configuration() {
        let config = ("config.json", r#"{"id2label": {"1": "dog", "0": "cat", "10": "no"}}"#);
        assert_eq!(labels(&[config]).0, None);
        let config = ("config.json", r#"{"id2label": {"1": "dog\nhound", "0": "cat"}}"#);
        assert_eq!(labels(&[config]).0.as_deref(), Some("cat\ndog hound"));
        assert_eq!(labels(&[config, ("labels.txt", "one\r\ntwo\r\n\r\n")]).0.as_deref(), Some("one\ntwo"));
        assert_eq!(labels(&[("config.json", r#"{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}"#)]).0, None);
        assert_eq!(labels(&[("config.json", r#"{"id2label": 3}"#)]), (None, Vec::new()));
        assert_eq!(labels(&[]), (None, Vec::new()));
        let (none, notes) = labels(&[("classes.txt", &"x\n".repeat(3 << 20))]);
        assert!(none.is_none() && notes[0].contains("classes.txt"), "{notes:?}");
    }
}
