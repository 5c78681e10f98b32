//! Text output of `driftc diff`.

use std::io::Write;

use super::report::{Change, Contents, DispatchDiff, Report};
use crate::failure::Result;
use crate::output::{Out, bytes};

/// Maximum number of changed dispatches to list without `--all`.
const MAX_LISTED: usize = 40;

/// Prints the differences of two bundles. With `all`, lists every dispatch that differs, else only the first
/// dispatches.
pub(super) fn print(report: &Report, all: bool, out: &mut Out) -> Result<()> {
    if report.identical {
        return Ok(writeln!(out, "identical: {}", report.a.hash)?);
    }
    for (name, side) in [("a", &report.a), ("b", &report.b)] {
        writeln!(out, "{name}  {}  {}  {}", side.hash, bytes(side.bytes), side.bundle)?;
    }
    print_changes("provenance", "", &report.provenance, out)?;
    print_changes("sections in bytes", "", &report.sections, out)?;
    print_contents("weights", "", &report.weights, out)?;
    print_contents("shaders and attachments", "", &report.shaders, out)?;
    print_changes("attachments", "", &report.attachments, out)?;
    for (name, targets) in [("a", &report.only_in_a), ("b", &report.only_in_b)] {
        if !targets.is_empty() {
            writeln!(out, "only bundle {name} has variants for {}", targets.join(", "))?;
        }
    }
    for v in &report.variants {
        if v.is_empty() {
            writeln!(out, "\nvariant {}: no change", v.target)?;
            continue;
        }
        writeln!(out, "\nvariant {}", v.target)?;
        print_changes("", "", &v.changes, out)?;
        print_changes("requirements", "  ", &v.requirements, out)?;
        print_contents("weights", "  ", &v.weights, out)?;
        for f in v.functions.iter().filter(|f| !f.is_empty()) {
            writeln!(out, "  function {}", f.name)?;
            print_changes("", "  ", &f.changes, out)?;
            print_changes("dispatches by kernel", "    ", &f.kernels, out)?;
            print_dispatches(&f.dispatches, all, out)?;
        }
    }
    Ok(())
}

fn print_dispatches(dispatches: &[DispatchDiff], all: bool, out: &mut Out) -> Result<()> {
    let listed = if all { dispatches.len() } else { MAX_LISTED };
    for d in dispatches.iter().take(listed) {
        // Show only the kernel and the grid of a dispatch that one bundle does not have.
        let shown = |c: &&Change| d.kind == "changed" || ["kernel", "grid"].contains(&c.what.as_str());
        let changes: Vec<String> = d.changes.iter().filter(shown).map(format_change).collect();
        writeln!(out, "    {:<8} {}: {}", d.kind, d.node, changes.join(", "))?;
    }
    match dispatches.len().saturating_sub(listed) {
        0 => Ok(()),
        more => Ok(writeln!(out, "    {more} more dispatches; list them with --all")?),
    }
}

fn format_change(change: &Change) -> String {
    let what = &change.what;
    match (&change.a, &change.b) {
        (Some(a), Some(b)) => format!("{what} {a} -> {b}"),
        (Some(only), None) | (None, Some(only)) => format!("{what} {only}"),
        (None, None) => what.clone(),
    }
}

fn print_changes(title: &str, indent: &str, changes: &[Change], out: &mut Out) -> Result<()> {
    if !changes.is_empty() && !title.is_empty() {
        writeln!(out, "{indent}{title}")?;
    }
    for c in changes {
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        writeln!(out, "{indent}  {}: {} -> {}", c.what, side(&c.a), side(&c.b))?;
    }
    Ok(())
}

fn print_contents(title: &str, indent: &str, c: &Contents, out: &mut Out) -> Result<()> {
    if c.is_unchanged() {
        return Ok(());
    }
    let count = |n: usize, size: u64| format!("{n} ({})", bytes(size));
    Ok(writeln!(
        out,
        "{indent}{title}: {} in both, {} removed, {} added",
        count(c.shared, c.shared_bytes),
        count(c.removed, c.removed_bytes),
        count(c.added, c.added_bytes)
    )?)
}
