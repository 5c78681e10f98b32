//! Table of `driftc explain`: one row for each node, most expensive first.

use std::io::Write;

use super::report::{Candidate, Function, Node};
use crate::failure::Result;
use crate::output::{Out, nanoseconds};

/// Maximum number of characters of a reason.
const MAX_REASON: usize = 60;

/// Prints one row for each node with a kernel, most expensive first, and the number of nodes without a kernel.
pub(super) fn print_table(report: &Function, out: &mut Out) -> Result<()> {
    let selected = report.nodes.iter().filter_map(|node| Some((node, node.candidates.first()?)));
    let mut selected: Vec<(&Node, &Candidate)> = selected.collect();
    // The order of nodes with equal costs is the graph's.
    selected.sort_by(|(_, a), (_, b)| b.cost_ns.total_cmp(&a.cost_ns));
    let total: f64 = selected.iter().map(|(_, candidate)| candidate.cost_ns).sum();
    let head = ["time", "share", "node", "operator", "kernel", "candidates", "reason"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (node, candidate) in &selected {
        rows.push(vec![
            nanoseconds(candidate.cost_ns),
            format!("{:.1} %", 100.0 * candidate.cost_ns / total.max(1e-9)),
            node.node.clone(),
            operator(&node.what).to_owned(),
            candidate.kernel.to_owned(),
            node.candidates.len().to_string(),
            first_words(&candidate.reason),
        ]);
    }
    out.table(&[true, true, false, false, false, true, false], &rows)?;
    let views = report.nodes.len() - selected.len();
    let n = selected.len();
    writeln!(out, "{n} nodes in {} by estimate, and {views} views without a kernel", nanoseconds(total))?;
    Ok(())
}

/// Name of the operator: the first word of a node's description.
fn operator(what: &str) -> &str {
    what.split([' ', '(', '[']).next().unwrap_or_default()
}

/// Beginning of a reason, up to the first semicolon or the maximum length.
fn first_words(reason: &str) -> String {
    let clause = reason.lines().next().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match clause.char_indices().nth(MAX_REASON) {
        None => clause.to_owned(),
        Some((end, _)) => {
            let start = clause.get(..end).unwrap_or_default();
            let whole_words = start.rsplit_once(' ').map_or(start, |(words, _)| words);
            format!("{whole_words} ...")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{first_words, operator};

    #[test]
    fn reasons_are_cut_at_words() {
        assert_eq!(first_words("reads once; writes twice"), "reads once");
        let long = "one two three four five six seven eight nine ten eleven twelve thirteen";
        assert_eq!(first_words(long), "one two three four five six seven eight nine ten eleven ...");
        assert_eq!(operator("conv(3x3) f32[1]"), "conv");
    }
}
