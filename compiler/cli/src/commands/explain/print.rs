//! Text output of `driftc explain`.

use std::collections::BTreeMap;
use std::io::Write;

use super::report::{DECOMPOSITION_STAGE, Function, LAYOUT_STAGES, Node, Note, Place};
use crate::failure::Result;
use crate::output::{Out, bytes, nanoseconds};

/// Prints the report of a function. `single` is true if `--node` selects one node.
pub(super) fn print(report: &Function, single: bool, out: &mut Out) -> Result<()> {
    for node in &report.nodes {
        writeln!(out, "{}\n  {}", node.node, node.what)?;
        if let Some(reason) = &node.layout {
            writeln!(out, "  layout: {reason}")?;
        }
        if let Some(what) = &node.alternatives {
            writeln!(out, "  alternatives: {what}")?;
        }
        if node.candidates.is_empty() {
            writeln!(out, "  a view of the operand's memory: no dispatch")?;
        }
        for (i, c) in node.candidates.iter().enumerate() {
            let knobs: Vec<String> = c.knobs.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let mark = if i == 0 { "->" } else { "  " };
            let cost = if c.cost_ns == f64::MAX { "failed".to_owned() } else { nanoseconds(c.cost_ns) };
            let knobs = knobs.join(" ");
            writeln!(out, "  {mark} {:<12} {cost:>8}  {knobs}\n     {}", c.kernel, c.reason)?;
        }
        print_memory(node, out)?;
        let shown = |pass| LAYOUT_STAGES.contains(&pass) || pass == DECOMPOSITION_STAGE;
        let extra = |n: &&Note| n.node == node.node && !shown(n.pass);
        for note in report.passes.iter().filter(|n| single && extra(n)) {
            writeln!(out, "  pass {}: {}", note.pass, note.what)?;
        }
    }
    // Passes removed these nodes, so no entry above shows their notes.
    let removed = |n: &&Note| report.nodes.iter().all(|node| node.node != n.node);
    if single {
        for note in report.passes.iter().filter(removed) {
            writeln!(out, "{}\n  pass {}: {}", note.node, note.pass, note.what)?;
        }
    }
    Ok(())
}

fn print_memory(node: &Node, out: &mut Out) -> Result<()> {
    for d in &node.dispatches {
        let what = if d.copy { "copy to row-major" } else { d.kernel };
        let (grid, [x, y, z]) = (d.grid.join(" x "), d.workgroup);
        let wait = if d.barrier_before { ", after a barrier" } else { "" };
        let (index, flops, moved) = (d.index, &d.flops, &d.bytes);
        writeln!(
            out,
            "  dispatch {index}: {what}, {grid} workgroups of {x} x {y} x {z}, {flops} flops, {moved} bytes{wait}"
        )?;
        for w in &d.weights {
            writeln!(out, "    weights {} in a {}: {}", bytes(w.bytes), w.kind, w.order)?;
        }
    }
    match &node.result {
        Some(Place::Output { name }) => writeln!(out, "  result: output `{name}`")?,
        Some(Place::Arena { offset, bytes: size, first, last, shares_with }) => writeln!(
            out,
            "  result: {} at offset {offset} of the arena during dispatches {first} to {last}, shares bytes with {shares_with} other tensors",
            bytes(*size)
        )?,
        Some(Place::Texture { kind, extent: [x, y, z], shares_with }) => {
            writeln!(
                out,
                "  result: a {kind} of {x} x {y} x {z} texels, which {shares_with} other tensors reuse"
            )?;
        }
        None => {}
    }
    Ok(())
}

/// Prints, for each source of cost parameters, the groups of parameters that come from it.
pub(super) fn print_parameters(parameters: &BTreeMap<&'static str, String>, out: &mut Out) -> Result<()> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (group, source) in parameters {
        groups.entry(source).or_default().push(group);
    }
    for (source, groups) in groups {
        writeln!(out, "cost parameters of {}: {source}", groups.join(", "))?;
    }
    Ok(())
}
