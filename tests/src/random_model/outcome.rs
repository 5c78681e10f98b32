//! Compiles a model with random changes and classifies the outcome: a bundle, a refusal with a reason, or a defect of the
//! compiler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use driftc::compile::{self, Model};
use driftc::import::onnx;
use driftc::passes::Precision;
use driftc::target::{TargetProfile, names};
use driftc::{Error, Result};

use crate::device;
use crate::random_graph::Rng;

/// Class of the outcome of compiling a model, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The compiler wrote a bundle.
    Compiled,
    /// The compiler refused the model with an error that names a node, a tensor or a size.
    Refused,
    /// The compiler refused the model with an error that names nothing in the model, which is a defect.
    Unnamed,
    /// The compiler reported an internal error, which is a defect.
    Internal,
    /// The compiler panicked, which is a defect.
    Panicked,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 5] = [Self::Compiled, Self::Refused, Self::Unnamed, Self::Internal, Self::Panicked];

    /// Name of the class in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compiled => "compiled",
            Self::Refused => "refused",
            Self::Unnamed => "unnamed",
            Self::Internal => "internal",
            Self::Panicked => "panicked",
        }
    }

    /// True if the outcome shows a defect of the compiler.
    pub fn is_defect(self) -> bool {
        matches!(self, Self::Unnamed | Self::Internal | Self::Panicked)
    }
}

/// Every precision.
pub const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::F16, Precision::Mixed];

/// Loads all built-in target profiles.
///
/// # Errors
/// If a profile cannot be read.
pub fn profiles() -> Result<Vec<TargetProfile>> {
    names().map(|name| Ok(TargetProfile::load(name)?)).collect()
}

/// Returns the target profile and the precision that a seed determines.
pub fn drawn(profiles: &[TargetProfile], seed: u64) -> (&TargetProfile, Precision) {
    let mut rng = Rng::new(seed ^ 0x7a59e7);
    (&profiles[rng.below(profiles.len())], rng.pick(&PRECISIONS))
}

/// Imports a model and compiles it for each profile and precision in `wanted`. Returns the worst outcome with its message.
/// Bundles are written to `folder`.
pub fn compiled(bytes: &[u8], wanted: &[(&TargetProfile, Precision)], folder: &Path) -> (Class, String) {
    let import = || onnx::load_bytes(bytes.to_vec().into(), &onnx::Options::default());
    let imported = match guarded(import) {
        Ok(imported) => imported,
        Err(outcome) => return outcome,
    };
    let model = Model { graph: imported.graph, name: "random".into(), ..Model::default() };
    let mut worst = (Class::Compiled, String::new());
    for (target, precision) in wanted {
        let options = compile::Options { precision: *precision, ..compile::Options::default() };
        let options = device::validated(&options);
        let targets = std::slice::from_ref(*target);
        let write = || compile::compile(&model, targets, &options, &folder.join("random.drift"));
        if let Err((class, message)) = guarded(write)
            && class > worst.0
        {
            worst = (class, format!("[{} {precision}] {message}", target.name));
        }
    }
    worst
}

fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T, (Class, String)> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err((class(&error), error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()));
            Err((Class::Panicked, text.unwrap_or_default()))
        }
    }
}

fn class(error: &Error) -> Class {
    match error {
        Error::Internal { .. } => Class::Internal,
        Error::Request { reason, .. } if !reason.contains('`') => Class::Unnamed,
        Error::Node { node, .. } if node.is_empty() => Class::Unnamed,
        Error::Unsupported { nodes } if nodes.is_empty() => Class::Unnamed,
        _ => Class::Refused,
    }
}
