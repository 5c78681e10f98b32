//! `--tuning`: a database of measured times that steers the choice of kernels.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use driftc::compile::{Lowered, Options};
use driftc::plan::tuning::Database;
use driftc::target::TargetProfile;

use crate::failure::Result;
use crate::output::note;

/// Whether measured times override estimates.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TuningArgs {
    /// A database that `driftc tune` wrote: its measured times override the estimates
    #[arg(long, value_name = "FILE")]
    tuning: Option<PathBuf>,
}

impl TuningArgs {
    /// Reads the database; a target that it knows nothing about is worth a note.
    pub(crate) fn apply(&self, options: &mut Options, targets: &[TargetProfile]) -> Result<()> {
        let Some(path) = &self.tuning else { return Ok(()) };
        let database = Database::load(path)?;
        for target in targets.iter().filter(|t| database.problems(&t.name) == 0) {
            note(&format!("{} has measured nothing for {}: estimates decide", path.display(), target.name));
        }
        options.plan.tuning = Some(Arc::new(database));
        Ok(())
    }
}

/// Nodes whose kernel was picked by measured times, and all that have a kernel.
pub(crate) fn measured_nodes(lowered: &Lowered) -> (usize, usize) {
    let picks = lowered.plan.decisions.iter().filter_map(|d| d.choices.first());
    picks.fold((0, 0), |(hits, all), pick| (hits + usize::from(pick.measured.is_some()), all + 1))
}
