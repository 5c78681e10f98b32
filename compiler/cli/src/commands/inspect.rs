//! `driftc inspect`: what is in a bundle.

mod html;
pub(crate) mod lifetimes;
pub(crate) mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use drift_runtime::Bundle;
use drift_runtime::codec::{Header, read_header};
use drift_runtime::format::{
    DeviceHints, Expr, ExprOp, Function, Image, Limits, Manifest, MemoryReport, Port, Provenance, SlotKind,
    Symbol, Variant,
};
use serde::Serialize;

use crate::failure::Result;
use crate::output::{Out, bytes, write_file};
use reads::Reads;

/// How many of the largest weights are listed.
const TOP: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The bundle
    #[arg(value_name = "OUT.drift")]
    bundle: PathBuf,
    /// List every dispatch
    #[arg(long)]
    dispatches: bool,
    /// Write one page for a browser: sections, memory over time, dispatches
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    bundle: String,
    format: String,
    hash: String,
    provenance: &'a Provenance,
    bytes: Sections,
    attachments: Vec<Attachment>,
    /// Weights of all variants if none were shared, and as they are stored.
    weights_apart: u64,
    weights_stored: u64,
    variants: Vec<VariantReport<'a>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Sections {
    file: u64,
    header: u64,
    chunks: u64,
    artifacts: u64,
    manifest: u64,
    padding: u64,
}

#[derive(Debug, Serialize)]
struct Attachment {
    name: String,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct VariantReport<'a> {
    target: &'a str,
    profile_hash: String,
    requirements: RequirementsReport<'a>,
    pipelines: usize,
    weight_bytes: u64,
    /// Of the stored weights, those that no other variant uses and those that another one uses too.
    own_weight_bytes: u64,
    shared_weight_bytes: u64,
    shader_bytes: u64,
    device_memory: u64,
    functions: Vec<FunctionReport<'a>>,
    largest_weights: Vec<Weight>,
}

#[derive(Debug, Serialize)]
struct RequirementsReport<'a> {
    interface: &'static str,
    api_version: String,
    features: Vec<&'static str>,
    limits: &'a Limits,
    subgroup_sizes: &'a [u32],
    matrix_shapes: Vec<String>,
    hints: &'a DeviceHints,
}

#[derive(Debug, Serialize)]
struct FunctionReport<'a> {
    name: &'a str,
    symbols: &'a [Symbol],
    inputs: Vec<PortReport<'a>>,
    outputs: Vec<PortReport<'a>>,
    dispatches: usize,
    barriers: usize,
    memory: &'a MemoryReport,
    reads: Reads,
    /// Bytes of the buffers that intermediate results lie in.
    arenas: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dispatch_list: Vec<DispatchReport<'a>>,
}

#[derive(Debug, Serialize)]
struct PortReport<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    host_type: &'static str,
    device_type: &'static str,
    shape: Vec<String>,
}

#[derive(Debug, Serialize)]
struct DispatchReport<'a> {
    index: usize,
    kernel: &'a str,
    node: &'a str,
    grid: Vec<String>,
    barrier_before: bool,
    flops: String,
    bytes: String,
}

#[derive(Debug, Serialize)]
struct Weight {
    /// The node that first reads it.
    node: String,
    bytes: u64,
    /// Texels along x and y, where it lies in a texture.
    texture: Option<[u32; 2]>,
}

pub(crate) fn run(args: &InspectArgs, out: &mut Out) -> Result<()> {
    let bundle = Bundle::open(&args.bundle)?;
    bundle.verify()?;
    let header = read_header(bundle.bytes())?;
    let manifest = bundle.manifest();
    let report = Report {
        bundle: args.bundle.display().to_string(),
        format: format!("{}.{}", header.major, header.minor),
        hash: bundle.hash().to_string(),
        provenance: &manifest.provenance,
        bytes: sections(&header, manifest),
        attachments: attachments(manifest),
        weights_apart: apart_and_stored(manifest).0,
        weights_stored: apart_and_stored(manifest).1,
        variants: manifest.variants.iter().map(|v| variant(v, manifest, args.dispatches)).collect(),
    };
    if let Some(path) = &args.html {
        let page = html::page(&report, &manifest.variants);
        return write_file(path, |file| file.write_all(page.as_bytes()));
    }
    if args.json { out.json(&report) } else { print(&report, out) }
}

pub(crate) fn sections(header: &Header, manifest: &Manifest) -> Sections {
    const HEADER: u64 = 128;
    let chunks: u64 = manifest.chunks.iter().map(|c| c.size).sum();
    let artifacts: u64 = manifest.artifacts.iter().map(|a| a.size).sum();
    let used = HEADER + chunks + artifacts + header.manifest_size;
    Sections {
        file: header.file_size,
        header: HEADER,
        chunks,
        artifacts,
        manifest: header.manifest_size,
        padding: header.file_size.saturating_sub(used),
    }
}

fn attachments(manifest: &Manifest) -> Vec<Attachment> {
    let size = |index: u32| manifest.artifacts.get(index as usize).map_or(0, |a| a.size);
    let one =
        |a: &drift_runtime::format::Attachment| Attachment { name: a.name.clone(), bytes: size(a.artifact) };
    manifest.attachments.iter().map(one).collect()
}

fn variant<'a>(variant: &'a Variant, manifest: &'a Manifest, list: bool) -> VariantReport<'a> {
    let needs = &variant.requirements;
    let own = own_and_shared(variant, manifest);
    VariantReport {
        target: &variant.target,
        profile_hash: variant.profile_hash.to_string(),
        requirements: RequirementsReport {
            interface: manifest.language(variant).interface().unwrap_or("none"),
            api_version: needs.api_version.to_string(),
            features: needs.features.iter().map(drift_runtime::format::Feature::name).collect(),
            limits: &needs.limits,
            subgroup_sizes: &needs.subgroup_sizes,
            matrix_shapes: needs.matrix_shapes.iter().map(ToString::to_string).collect(),
            hints: &needs.hints,
        },
        pipelines: variant.pipelines.len(),
        weight_bytes: variant.weights.iter().map(|w| w.size).sum(),
        own_weight_bytes: own.0,
        shared_weight_bytes: own.1,
        shader_bytes: shader_bytes(variant, manifest),
        device_memory: variant.device_memory(),
        functions: variant.functions.iter().map(|f| function(f, variant, list)).collect(),
        largest_weights: largest_weights(variant, manifest),
    }
}

fn function<'a>(function: &'a Function, variant: &'a Variant, list: bool) -> FunctionReport<'a> {
    let symbols = &function.symbols;
    let port = |p: &'a Port| PortReport {
        name: &p.name,
        host_type: p.host_type.name(),
        device_type: p.device_type.name(),
        shape: p.shape.iter().map(|e| expression(e, symbols)).collect(),
    };
    let listed = if list { function.dispatches.as_slice() } else { &[] };
    FunctionReport {
        name: &function.name,
        symbols,
        inputs: function.inputs.iter().map(port).collect(),
        outputs: function.outputs.iter().map(port).collect(),
        dispatches: function.dispatches.len(),
        barriers: function.dispatches.iter().filter(|d| d.barrier_before).count(),
        memory: &function.memory,
        reads: Reads::of(function, variant),
        arenas: function.slots.iter().filter(|s| s.kind == SlotKind::Arena).map(|s| s.size).collect(),
        dispatch_list: listed
            .iter()
            .enumerate()
            .map(|(index, d)| DispatchReport {
                index,
                kernel: variant.pipelines.get(d.pipeline as usize).map_or("", |p| p.name.as_str()),
                node: &d.label,
                grid: d.grid.iter().map(|e| expression(e, symbols)).collect(),
                barrier_before: d.barrier_before,
                flops: expression(&d.flops, symbols),
                bytes: expression(&d.bytes, symbols),
            })
            .collect(),
    }
}

/// Bytes of a variant's weights that only it uses, and of those that it shares with another variant.
pub(crate) fn own_and_shared(variant: &Variant, manifest: &Manifest) -> (u64, u64) {
    let chunks = |v: &Variant| v.placements.iter().map(|p| p.chunk).collect::<BTreeSet<u32>>();
    let others: BTreeSet<u32> =
        manifest.variants.iter().filter(|v| v.target != variant.target).flat_map(chunks).collect();
    chunks(variant).into_iter().fold((0, 0), |(own, shared), chunk| {
        let size = manifest.chunks.get(chunk as usize).map_or(0, |c| c.size);
        if others.contains(&chunk) { (own, shared + size) } else { (own + size, shared) }
    })
}

/// Bytes of the distinct shaders of a variant.
fn shader_bytes(variant: &Variant, manifest: &Manifest) -> u64 {
    let artifacts: BTreeSet<u32> = variant.pipelines.iter().map(|p| p.artifact).collect();
    artifacts.into_iter().filter_map(|a| manifest.artifacts.get(a as usize)).map(|a| a.size).sum()
}

/// Bytes that variants would take with weights of their own, and bytes that are stored.
pub(crate) fn apart_and_stored(manifest: &Manifest) -> (u64, u64) {
    let of = |v: &Variant| own_and_shared(v, manifest);
    let apart = manifest.variants.iter().map(of).map(|(own, shared)| own + shared).sum();
    (apart, manifest.chunks.iter().map(|c| c.size).sum())
}

/// The largest chunks, each with the node that reads it first.
fn largest_weights(variant: &Variant, manifest: &Manifest) -> Vec<Weight> {
    let mut readers: BTreeMap<(u32, u64), &str> = BTreeMap::new();
    let mut textures: BTreeMap<(u32, [u32; 2]), (&str, u64)> = BTreeMap::new();
    for function in &variant.functions {
        for dispatch in &function.dispatches {
            for binding in &dispatch.bindings {
                match function.slots.get(binding.slot as usize).map(|s| s.kind) {
                    Some(SlotKind::Weights(slot)) => {
                        readers.entry((slot, binding.offset)).or_insert(&dispatch.label);
                    }
                    Some(SlotKind::Image(Image { chunk: Some(chunk), extent: [x, y, _], .. })) => {
                        textures.entry((chunk, [x, y])).or_insert((&dispatch.label, binding.size));
                    }
                    _ => {}
                }
            }
        }
    }
    let mut weights: Vec<Weight> = variant
        .placements
        .iter()
        .map(|p| Weight {
            node: readers.get(&(p.slot, p.offset)).map_or_else(|| "?".to_owned(), ToString::to_string),
            bytes: manifest.chunks.get(p.chunk as usize).map_or(0, |c| c.size),
            texture: None,
        })
        .collect();
    weights.extend(textures.into_iter().map(|((_, extent), (node, bytes))| Weight {
        node: node.to_owned(),
        bytes,
        texture: Some(extent),
    }));
    weights.sort_by_key(|w| std::cmp::Reverse(w.bytes));
    weights.truncate(TOP);
    weights
}

/// A size as people write it, with the names of symbols.
pub(crate) fn expression(expr: &Expr, symbols: &[Symbol]) -> String {
    let mut stack: Vec<(String, bool)> = Vec::new();
    for op in &expr.0 {
        let value = match *op {
            ExprOp::Const(value) => (value.to_string(), true),
            ExprOp::Symbol(i) => {
                let name = usize::try_from(i).ok().and_then(|i| symbols.get(i)).map(|s| s.name.clone());
                (name.unwrap_or_else(|| "?".to_owned()), true)
            }
            op => {
                let (right, left) = (operand(stack.pop()), operand(stack.pop()));
                match op {
                    ExprOp::Add => (format!("{left} + {right}"), false),
                    ExprOp::Sub => (format!("{left} - {right}"), false),
                    ExprOp::Mul => (format!("{left} * {right}"), false),
                    ExprOp::FloorDiv => (format!("{left} / {right}"), false),
                    ExprOp::CeilDiv => (format!("ceil({left} / {right})"), true),
                    ExprOp::Mod => (format!("{left} mod {right}"), false),
                    ExprOp::Min => (format!("min({left}, {right})"), true),
                    ExprOp::Max | ExprOp::Const(_) | ExprOp::Symbol(_) => {
                        (format!("max({left}, {right})"), true)
                    }
                }
            }
        };
        stack.push(value);
    }
    stack.pop().map_or_else(|| "?".to_owned(), |(text, _)| text)
}

/// A part of an expression, in parentheses where it needs them.
fn operand(part: Option<(String, bool)>) -> String {
    match part {
        Some((text, true)) => text,
        Some((text, false)) => format!("({text})"),
        None => "?".to_owned(),
    }
}

fn print(report: &Report<'_>, out: &mut Out) -> Result<()> {
    let p = report.provenance;
    writeln!(out, "{}: bundle format {}", report.bundle, report.format)?;
    writeln!(out, "hash        {}", report.hash)?;
    writeln!(out, "model       {} ({})", p.model_name, p.model_hash)?;
    writeln!(out, "compiler    driftc {} {}", p.compiler_version, p.flags.join(" "))?;
    for (key, value) in &p.notes {
        writeln!(out, "{key:<11} {value}")?;
    }
    let b = &report.bytes;
    writeln!(
        out,
        "bytes       {} = header {} + chunks {} + artifacts {} + manifest {} + padding {}",
        b.file, b.header, b.chunks, b.artifacts, b.manifest, b.padding
    )?;
    for a in &report.attachments {
        writeln!(out, "attached    {} ({})", a.name, bytes(a.bytes))?;
    }
    if report.variants.len() > 1 {
        let (stored, apart) = (bytes(report.weights_stored), bytes(report.weights_apart));
        writeln!(
            out,
            "shared      {} variants store {stored} of weights instead of {apart}",
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
    writeln!(out, "  requires    {} {}", r.interface, r.api_version)?;
    if !r.features.is_empty() {
        writeln!(out, "              features {}", r.features.join(", "))?;
    }
    let l = r.limits;
    writeln!(
        out,
        "              {} device memory, bindings of {}, workgroups of {} with {}, grid {:?}",
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
    writeln!(out, "  weights     {}: {own} of its own, {shared} shared", bytes(v.weight_bytes))?;
    writeln!(out, "  shaders     {}", bytes(v.shader_bytes))?;
    for f in &v.functions {
        writeln!(out, "  function {}", f.name)?;
        for s in f.symbols {
            writeln!(out, "    symbol    {} in {}..={}", s.name, s.min, s.max)?;
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
            "    memory    {peak} peak, {gap:.1} % above the lower bound {bound}; unshared {naive}; strategy {strategy}"
        )?;
        writeln!(out, "    reads     {}", f.reads)?;
        if f.arenas.len() > 1 {
            let sizes: Vec<String> = f.arenas.iter().map(|size| bytes(*size)).collect();
            writeln!(out, "    arenas    {}, as no dispatch reads and writes one", sizes.join(" + "))?;
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

#[cfg(test)]
mod tests {
    use super::expression;
    use drift_runtime::format::{Expr, ExprOp, Symbol};

    #[test]
    fn sizes_read_like_sizes() {
        let symbols = [Symbol { name: "seq".into(), min: 1, max: 9 }];
        let sum = Expr::symbol(0).then(ExprOp::Add, Expr::constant(3));
        let half = sum.then(ExprOp::CeilDiv, Expr::constant(2)).then(ExprOp::Mul, Expr::symbol(0));
        assert_eq!(expression(&half, &symbols), "ceil((seq + 3) / 2) * seq");
        assert_eq!(expression(&Expr::constant(4), &symbols), "4");
        assert_eq!(expression(&Expr(vec![ExprOp::Add]), &symbols), "? + ?");
    }
}
