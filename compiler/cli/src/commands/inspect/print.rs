//! Text output of `driftc inspect`.

use std::io::Write;

use super::report::{Report, VariantReport, shown_value};
use crate::failure::Result;
use crate::output::{Out, bytes};

/// Prints a report.
pub(super) fn print(report: &Report<'_>, out: &mut Out) -> Result<()> {
    let p = &report.provenance;
    writeln!(out, "{}: bundle format {}", report.bundle, report.format)?;
    writeln!(out, "hash        {}", report.hash)?;
    match &report.signer {
        Some(id) => writeln!(out, "signed      by key {id}, not checked: driftc check --key PUBLIC")?,
        None => writeln!(out, "signed      no")?,
    }
    writeln!(out, "model       {} ({})", p.model_name, p.model_hash)?;
    writeln!(out, "compiler    driftc {} {}", p.compiler_version, p.flags.join(" "))?;
    for (key, value) in &p.notes {
        writeln!(out, "{key:<11} {value}")?;
    }
    for (key, value) in &report.metadata {
        writeln!(out, "metadata    {} = {}", shown_value(key), shown_value(value))?;
    }
    let b = &report.bytes;
    writeln!(
        out,
        "bytes       {} = header {} + chunks {} + artifacts {} + manifest {} + padding {} + signature {}",
        b.file, b.header, b.chunks, b.artifacts, b.manifest, b.padding, b.signature
    )?;
    for a in &report.attachments {
        writeln!(out, "attached    {} ({})", a.name, bytes(a.bytes))?;
    }
    if report.variants.len() > 1 {
        let (stored, undeduplicated) =
            (bytes(report.stored_weight_bytes), bytes(report.undeduplicated_weight_bytes));
        writeln!(
            out,
            "shared      {} variants store {stored} of weights; without deduplication {undeduplicated}",
            report.variants.len()
        )?;
    }
    for v in &report.variants {
        print_variant(v, out)?;
    }
    Ok(())
}

fn print_variant(v: &VariantReport<'_>, out: &mut Out) -> Result<()> {
    writeln!(out, "\nvariant {}", v.target)?;
    let r = &v.requirements;
    writeln!(out, "  requires    {} {}", r.api, r.api_version)?;
    if !r.features.is_empty() {
        writeln!(out, "              features {}", r.features.join(", "))?;
    }
    let l = r.limits;
    writeln!(
        out,
        "              {} device memory, bindings up to {}, workgroups of {} invocations with {} of memory, grid {:?}",
        bytes(l.device_memory),
        bytes(l.max_storage_buffer_range),
        l.max_workgroup_invocations,
        bytes(l.max_workgroup_memory.into()),
        l.max_grid
    )?;
    if !r.hints.device_names.is_empty() {
        writeln!(out, "  made for    {}", r.hints.device_names.join(", "))?;
    }
    writeln!(out, "  pipelines   {}", v.pipelines)?;
    let (own, shared) = (bytes(v.own_weight_bytes), bytes(v.shared_weight_bytes));
    writeln!(
        out,
        "  weights     {}: {own} only in this variant, {shared} shared with other variants",
        bytes(v.weight_bytes)
    )?;
    writeln!(out, "  shaders     {}", bytes(v.shader_bytes))?;
    for f in &v.functions {
        writeln!(out, "  function {}", f.name)?;
        for s in f.symbols {
            writeln!(out, "    symbol    {} in {}..{}", s.name, s.min, s.max)?;
        }
        for (kind, ports) in [("input ", &f.inputs), ("output", &f.outputs)] {
            for (i, port) in ports.iter().enumerate() {
                let shape = port.shape.join(", ");
                writeln!(out, "    {kind} {i}  {}: {}[{shape}]", port.name, port.host_type)?;
            }
        }
        writeln!(out, "    dispatches {}, barriers {}", f.dispatches, f.barriers)?;
        let m = f.memory;
        let (peak, bound, naive) = (bytes(m.peak), bytes(m.lower_bound), bytes(m.naive));
        let strategy = &m.strategy;
        let gap = 100.0 * m.peak.saturating_sub(m.lower_bound) as f64 / m.lower_bound.max(1) as f64;
        writeln!(
            out,
            "    memory    {peak} peak, {gap:.1} % above the lower bound {bound}; {naive} without reuse; strategy {strategy}"
        )?;
        writeln!(out, "    reads     {}", f.reads)?;
        if f.arenas.len() > 1 {
            let sizes: Vec<String> = f.arenas.iter().map(|size| bytes(*size)).collect();
            writeln!(
                out,
                "    arenas    {}: several, because no dispatch may read and write the same arena",
                sizes.join(" + ")
            )?;
        }
        for d in &f.dispatch_list {
            let barrier = if d.barrier_before { "|" } else { " " };
            let (grid, index) = (d.grid.join(" x "), d.index);
            writeln!(out, "    {barrier}{index:>4}  {:<14} {grid:<16} {}", d.kernel, d.node)?;
        }
    }
    writeln!(out, "  largest weights")?;
    for w in &v.largest_weights {
        let texture = w.texture.map_or_else(String::new, |[x, y]| format!(", a texture of {x} x {y}"));
        writeln!(out, "    {:>9}  {}{texture}", bytes(w.bytes), w.node)?;
    }
    Ok(())
}
