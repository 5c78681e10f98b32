//! Checks of the tokenizer files that a compiled model carries.

use drift_text::{ChatTemplate, Tokenizer};
use driftc::compile::Model;

fn is_below(id: u32, vocabulary: usize) -> bool {
    usize::try_from(id).is_ok_and(|id| id < vocabulary)
}

/// Problems of the tokenizer files, as notes for the compile command. The bundle still works with token ids.
pub(crate) fn tokenizer_notes(model: &Model) -> Vec<String> {
    let file = |name| model.attachments.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes.as_slice());
    let (Some(entry), Some(tokenizer)) = (model.entry_points.first(), file("tokenizer.json")) else {
        return Vec::new();
    };
    let logits = entry.graph.outputs().iter().find(|output| output.name == "logits");
    let vocabulary = logits.and_then(|output| entry.graph.tensor(output.node).shape.last()?.as_known());
    let vocabulary = vocabulary.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
    let config = file("tokenizer_config.json");
    let mut notes = Vec::new();
    match Tokenizer::new(tokenizer, config, file("generation_config.json")) {
        Err(error) => notes.push(format!("the bundle accepts only token ids, no text: {error}")),
        Ok(tokenizer) => {
            if let Some(id) = tokenizer.highest().filter(|id| !is_below(*id, vocabulary)) {
                notes.push(format!(
                    "tokenizer.json has ids up to {id}, but the model's vocabulary has {vocabulary} tokens: texts with ids outside the vocabulary are refused"
                ));
            }
            if let Some(id) = tokenizer.ends().iter().find(|id| !is_below(**id, vocabulary)) {
                notes.push(format!(
                    "the end token {id} is outside the model's vocabulary of {vocabulary} tokens, so the model never generates it"
                ));
            }
        }
    }
    if let Err(error) = ChatTemplate::new(file("chat_template.jinja"), config) {
        notes.push(format!("the bundle refuses chats: {error}"));
    }
    notes
}
