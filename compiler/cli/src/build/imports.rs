//! Imported models, which actions with the same model and the same sizes share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use driftc::self_test::References;

use crate::build::actions::Action;
use crate::build::stamps::{Looks, check_same};
use crate::failure::Result;
use crate::model::Loaded;

/// Imports by the words of the command line that determine them.
#[derive(Debug)]
pub(crate) struct Imports(BTreeMap<Vec<String>, Import>);

#[derive(Debug)]
struct Import {
    /// The model, while actions use it.
    model: Mutex<Option<Arc<Cell>>>,
    /// Number of actions that still need the model.
    users: AtomicUsize,
}

/// Imported model of an action.
#[derive(Debug)]
pub(crate) struct Shared(Arc<Cell>);

#[derive(Debug, Default)]
struct Cell {
    model: OnceLock<Result<(Loaded, Looks)>>,
    references: References,
}

impl Shared {
    /// Returns the model. `looks` are the looks of the action's files, from before its key was computed.
    ///
    /// # Errors
    /// If the import failed, or a file has changed since the import.
    pub(crate) fn model(&self, action: &Action, looks: &Looks) -> Result<&Loaded> {
        let imported = self.0.model.get_or_init(|| Ok((action.args.load()?, looks.clone())));
        let (model, at_import) = imported.as_ref().map_err(Clone::clone)?;
        check_same(at_import, looks)?;
        Ok(model)
    }

    /// Results of the CPU reference for self-tests.
    pub(crate) fn references(&self) -> &References {
        &self.0.references
    }
}

impl Imports {
    pub(crate) fn new<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Self {
        let mut imports: BTreeMap<Vec<String>, Import> = BTreeMap::new();
        for action in actions {
            let import = imports
                .entry(words(action))
                .or_insert_with(|| Import { model: Mutex::default(), users: AtomicUsize::new(0) });
            *import.users.get_mut() += 1;
        }
        Self(imports)
    }

    /// Returns the model of an action. The first action that asks for its contents imports it, and others wait.
    pub(crate) fn get(&self, action: &Action) -> Shared {
        let Some(import) = self.0.get(&words(action)) else { return Shared(Arc::default()) };
        let mut model = import.model.lock().unwrap_or_else(PoisonError::into_inner);
        Shared(model.get_or_insert_default().clone())
    }

    /// Notes that an action is finished. The model is dropped with its last action.
    pub(crate) fn finish(&self, action: &Action) {
        let Some(import) = self.0.get(&words(action)) else { return };
        if import.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            *import.model.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

fn words(action: &Action) -> Vec<String> {
    let arguments = action.arguments.iter().filter(|argument| argument.is_for_import());
    let paths = action.args.paths().map(|path| path.display().to_string());
    paths.chain(arguments.flat_map(|argument| argument.words())).collect()
}
