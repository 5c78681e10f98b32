//! Saved conversations: a JSON list of messages, as in requests of chat servers.
//!
//! ```json
//! [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
//! ```

use std::io::Write;
use std::path::Path;

use drift_text::Message;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Maximum bytes of a saved conversation.
const MAX_BYTES: u64 = 1 << 24;

/// Message as it stands in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    role: String,
    content: String,
}

/// Writes a conversation to a file. The file is complete or unchanged.
pub(crate) fn save(path: &Path, messages: &[Message]) -> Result<()> {
    let failed = |reason: String| Error::Transcript { path: path.to_owned(), reason };
    let saved = |m: &Message| Saved { role: m.role.clone(), content: m.content.clone() };
    let saved: Vec<Saved> = messages.iter().map(saved).collect();
    let mut json = serde_json::to_vec_pretty(&saved).map_err(|e| failed(e.to_string()))?;
    json.push(b'\n');
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|e| failed(e.to_string()))?;
    file.write_all(&json).map_err(|e| failed(e.to_string()))?;
    file.persist(path).map_err(|e| failed(e.error.to_string()))?;
    Ok(())
}

/// Reads a conversation from a file.
pub(crate) fn load(path: &Path) -> Result<Vec<Message>> {
    let failed = |reason: String| Error::Transcript { path: path.to_owned(), reason };
    let length = std::fs::metadata(path).map_err(|e| failed(e.to_string()))?.len();
    if length > MAX_BYTES {
        return Err(failed(format!("the file has {length} bytes; a conversation has at most {MAX_BYTES}")));
    }
    let bytes = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    let saved: Vec<Saved> = serde_json::from_slice(&bytes).map_err(|e| {
        failed(format!("not a conversation, which is a list of messages with `role` and `content`: {e}"))
    })?;
    Ok(saved.into_iter().map(|m| Message { role: m.role, content: m.content }).collect())
}
