//! Input of a bundle: the plans of a target's functions.

use crate::plan::Plan;
use crate::target::TargetProfile;

/// The functions of one target with their plans: dispatches, memory offsets and packed weights.
#[derive(Debug)]
pub struct Planned<'a> {
    /// The target.
    pub target: &'a TargetProfile,
    /// Functions with their names. The functions of a target share their packed weights. Functions of one name are
    /// specializations for different bounds of the symbols; the first one is for all bounds.
    pub functions: Vec<(String, &'a Plan)>,
}
