//! `--specialize`: which sizes get kernels of their own; and what functions for them are called.

use clap::Args;
use drift_runtime::format::Variant;
use driftc::compile::Options;
use driftc::functions::{Specialize, label};

use crate::failure::{Failure, Result};

#[derive(Debug, Clone, Args)]
pub(crate) struct SpecializeArgs {
    /// Sizes that get kernels of their own beside those for all sizes: the lower bounds of symbolic sizes where that is
    /// estimated to save time (auto, the default), none (never), or the ones named; may be repeated
    #[arg(long = "specialize", value_name = "auto|never|NAME=N[,NAME=N]")]
    specialize: Vec<Specialize>,
}

impl SpecializeArgs {
    pub(crate) fn apply(&self, options: &mut Options) -> Result<()> {
        options.flags.extend(self.specialize.iter().map(|s| format!("--specialize {s}")));
        options.specialize = match self.specialize.as_slice() {
            [] => Specialize::Worthwhile,
            [one] => one.clone(),
            several => {
                let mut sizes = Vec::new();
                for one in several {
                    let Specialize::Sizes(named) = one else {
                        let what = format!("--specialize {one} cannot be combined with others");
                        return Err(Failure::usage(what).help("name sizes, or give it once"));
                    };
                    sizes.extend_from_slice(named);
                }
                Specialize::Sizes(sizes)
            }
        };
        Ok(())
    }
}

/// What the functions of a variant are called: by name, and with their sizes where they are for some of a function's.
pub(crate) fn function_labels(variant: &Variant) -> Vec<String> {
    let functions = variant.functions.iter().enumerate();
    let name = |(index, function): (usize, &drift_runtime::format::Function)| {
        let bounds = function.symbols.iter().map(|s| (s.name.clone(), (s.min, s.max))).collect();
        if variant.is_special(index) { label(&function.name, &bounds) } else { function.name.clone() }
    };
    functions.map(name).collect()
}
