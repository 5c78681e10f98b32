//! `--tuning`: measured times that override the estimates of kernels.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use driftc::compile::{Lowered, Options};
use driftc::plan::tuning::Database;
use driftc::target::TargetProfile;

use crate::failure::Result;
use crate::output::note;

/// Tuning database selection.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TuningArgs {
    /// Select kernels by the measured times of this `driftc tune` database
    #[arg(long, value_name = "FILE")]
    tuning: Option<PathBuf>,
}

impl TuningArgs {
    /// Reads the tuning database that `--tuning` names into the compile options. Prints a note for each target without
    /// measurements.
    pub(crate) fn apply(&self, options: &mut Options, targets: &[TargetProfile]) -> Result<()> {
        let Some(path) = &self.tuning else { return Ok(()) };
        let database = Database::load(path)?;
        for target in targets.iter().filter(|t| database.problems(&t.name) == 0) {
            note(&format!(
                "{} has no measurements for {}: kernels are selected by estimates",
                path.display(),
                target.name
            ));
        }
        options.plan.tuning = Some(Arc::new(database));
        Ok(())
    }
}

/// Counts nodes whose kernel was selected by a measured time, and all nodes with a kernel.
pub(crate) fn count_measured_nodes(lowered: &Lowered) -> (usize, usize) {
    let selected = lowered.plan.decisions.iter().filter_map(|d| d.choices.first());
    selected
        .fold((0, 0), |(measured, all), choice| (measured + usize::from(choice.measured.is_some()), all + 1))
}
