//! Selection of a candidate that the target can run. A candidate that reads weights already packed for another function is
//! preferred if it costs little more.

use crate::error::OpError;
use crate::plan::choice::Choice;
use crate::plan::params::Params;
use crate::plan::{device_limits, faults};
use crate::shader::launch::specialize_all;
use crate::shader::problem::Problem;
use crate::shader::{Launch, LaunchDraft};

/// Returns the launches of the selected candidate and moves the candidate to the front. The cheapest candidate is
/// selected, with these exceptions:
///
/// - A candidate whose constants are packed already (`reuses_constants`) may cost up to `reuse_cost_ratio` times as
///   much.
/// - On drivers that fail on long shaders, a candidate with a short shader may cost up to
///   `short_shader_max_cost_ratio` times as much.
/// - A candidate that writes partial texels cannot write a texture. The result is `None` if such a candidate, plus a
///   copy from a buffer to the texture, is cheaper than all others.
///
/// With `forced`, the result is `None` if the search reaches a candidate that writes partial texels, whatever the other
/// candidates cost.
pub(super) fn select_launches(
    problem: &Problem<'_>,
    choices: &mut [Choice],
    forced: bool,
    (reuse_cost_ratio, reuses_constants): (f64, impl Fn(&[LaunchDraft]) -> bool),
    params: &Params,
) -> Result<Option<Vec<Launch>>, OpError> {
    let machine = &problem.target.machine;
    let copied_bytes = 2.0 * problem.result.bytes(problem.bounds) as f64;
    let copy = machine.launch_us * 1e3 + copied_bytes / machine.bandwidth_gb_s;
    let mut limit = f64::INFINITY;
    let mut refused = None;
    // The cheapest candidate that needs its own copy of constants.
    let mut copying: Option<(usize, Vec<LaunchDraft>)> = None;
    // The cheapest candidate with a long shader, on drivers that fail on some.
    let mut long: Option<(usize, Vec<LaunchDraft>)> = None;
    for at in 0..choices.len() {
        let choice = &choices[at];
        if choice.candidate.cost > limit {
            break;
        }
        let drafts = (choice.kernel.launches)(problem, &choice.candidate)?;
        let over = device_limits::exceeded(&drafts, problem.bounds, problem.target);
        if let Some(reason) = over.or_else(|| faults::refused(&drafts, problem.target)) {
            refused = Some(reason);
            continue;
        }
        if !drafts.iter().any(|launch| launch.partial_texels) {
            if faults::too_long(&drafts, problem.target, params)? {
                limit = limit.min(choice.candidate.cost * params.short_shader_max_cost_ratio);
                long.get_or_insert((at, drafts));
                continue;
            }
            if reuses_constants(&drafts) {
                choices[..=at].rotate_right(1);
                return specialize_all(drafts).map(Some);
            }
            limit = limit.min(choice.candidate.cost * reuse_cost_ratio);
            copying.get_or_insert((at, drafts));
            continue;
        }
        if forced {
            break;
        }
        limit = limit.min(choice.candidate.cost + copy);
    }
    match (copying.or(long), refused) {
        (Some((at, drafts)), _) => {
            choices[..=at].rotate_right(1);
            specialize_all(drafts).map(Some)
        }
        (None, Some(reason)) if limit == f64::INFINITY => Err(OpError::new(reason)),
        _ => Ok(None),
    }
}
