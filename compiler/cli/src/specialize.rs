//! `--specialize`: sizes of symbols for which specialized functions are compiled, and labels of these functions.

use clap::Args;
use drift_runtime::format::Variant;
use driftc::compile::Options;
use driftc::entry_points::{Specialize, function_label};

use crate::failure::{Failure, Result};

#[derive(Debug, Clone, Args)]
pub(crate) struct SpecializeArgs {
    /// Specialize functions for sizes NAME=N (repeatable), for size 1 except picture sides if estimated faster (auto,
    /// default), or not at all (never)
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
                        let what = format!("--specialize {one} cannot be combined with another --specialize");
                        return Err(Failure::usage(what)
                            .help("give --specialize once, or only with sizes such as seq=1"));
                    };
                    sizes.extend_from_slice(named);
                }
                Specialize::Sizes(sizes)
            }
        };
        Ok(())
    }
}

/// Labels of a variant's functions: the name, and the sizes of a specialized function.
pub(crate) fn function_labels(variant: &Variant) -> Vec<String> {
    let functions = variant.functions.iter().enumerate();
    let name = |(index, function): (usize, &drift_runtime::format::Function)| {
        let bounds = function.symbols.iter().map(|s| (s.name.clone(), (s.min, s.max))).collect();
        if variant.is_specialization(index) {
            function_label(&function.name, &bounds)
        } else {
            function.name.clone()
        }
    };
    functions.map(name).collect()
}
