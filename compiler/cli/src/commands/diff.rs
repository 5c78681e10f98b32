//! `driftc diff`: what changed between two bundles.
//!
//! Weights and shaders are compared by hash, dispatches by the node they come from, everything that is a plain value
//! by its path.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use drift_runtime::Bundle;
use drift_runtime::codec::read_header;
use drift_runtime::format::{Dispatch, Function, Hash, Manifest, Variant};
use serde::Serialize;
use serde_json::Value;

use super::inspect::{Sections, expression, sections};
use crate::failure::{Failure, Result};
use crate::output::{Out, bytes};
use crate::specialize::function_labels;

/// Changed dispatches that are listed without `--all`.
const LISTED: usize = 40;

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The bundle of before
    #[arg(value_name = "A.drift")]
    a: PathBuf,
    /// The bundle of after
    #[arg(value_name = "B.drift")]
    b: PathBuf,
    /// List every changed dispatch
    #[arg(long)]
    all: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    identical: bool,
    a: Side,
    b: Side,
    provenance: Vec<Change>,
    sections: Vec<Change>,
    weights: Contents,
    shaders: Contents,
    attachments: Vec<Change>,
    /// Targets of one bundle only.
    only_in_a: Vec<String>,
    only_in_b: Vec<String>,
    variants: Vec<VariantDiff>,
}

#[derive(Debug, Serialize)]
struct Side {
    bundle: String,
    hash: String,
    bytes: u64,
}

/// A value that differs; none where one side has no such thing.
#[derive(Debug, Serialize)]
struct Change {
    what: String,
    a: Option<String>,
    b: Option<String>,
}

/// Contents that are the same by hash, and those of one side.
#[derive(Debug, Default, Serialize)]
struct Contents {
    shared: usize,
    shared_bytes: u64,
    removed: usize,
    removed_bytes: u64,
    added: usize,
    added_bytes: u64,
}

#[derive(Debug, Serialize)]
struct VariantDiff {
    target: String,
    changes: Vec<Change>,
    requirements: Vec<Change>,
    weights: Contents,
    functions: Vec<FunctionDiff>,
}

#[derive(Debug, Serialize)]
struct FunctionDiff {
    name: String,
    /// Ports, symbols and memory.
    changes: Vec<Change>,
    /// Dispatches of each kernel, where their number differs.
    kernels: Vec<Change>,
    dispatches: Vec<DispatchDiff>,
}

#[derive(Debug, Serialize)]
struct DispatchDiff {
    node: String,
    /// `added`, `removed` or `changed`.
    kind: &'static str,
    changes: Vec<Change>,
}

impl VariantDiff {
    fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.requirements.is_empty()
            && self.functions.iter().all(FunctionDiff::is_empty)
            && self.weights.is_unchanged()
    }
}

impl FunctionDiff {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.kernels.is_empty() && self.dispatches.is_empty()
    }
}

impl Contents {
    fn is_unchanged(&self) -> bool {
        self.added == 0 && self.removed == 0
    }
}

pub(crate) fn run(args: &DiffArgs, out: &mut Out) -> Result<()> {
    let (a, b) = (Opened::open(&args.a)?, Opened::open(&args.b)?);
    let report = report(&a, &b);
    if args.json { out.json(&report) } else { print(&report, args.all, out) }
}

struct Opened {
    side: Side,
    bundle: Bundle,
    sections: Sections,
}

impl Opened {
    fn open(path: &Path) -> Result<Self> {
        let within = |e: drift_runtime::Error| match e {
            e @ drift_runtime::Error::Io { .. } => Failure::from(e),
            e => Failure::from(e).context(path.display().to_string()),
        };
        let bundle = Bundle::open(path).map_err(within)?;
        bundle.verify().map_err(within)?;
        let header = read_header(bundle.bytes()).map_err(within)?;
        let side = Side {
            bundle: path.display().to_string(),
            hash: bundle.hash().to_string(),
            bytes: header.file_size,
        };
        Ok(Self { side, sections: sections(&header, bundle.manifest()), bundle })
    }
}

fn report(a: &Opened, b: &Opened) -> Report {
    let (before, after) = (a.bundle.manifest(), b.bundle.manifest());
    let chunks = |m: &Manifest| m.chunks.iter().map(|c| (c.hash, c.size)).collect();
    let shaders = |m: &Manifest| m.artifacts.iter().map(|s| (s.hash, s.size)).collect();
    let attached = |m: &Manifest| {
        let hash = |i: u32| m.artifacts.get(i as usize).map_or_else(String::new, |a| a.hash.to_string());
        m.attachments.iter().map(|a| (a.name.clone(), hash(a.artifact))).collect()
    };
    let find = |m: &Manifest, target: &str| m.variants.iter().position(|v| v.target == target);
    let only = |these: &Manifest, those: &Manifest| {
        let alone = these.variants.iter().filter(|v| find(those, &v.target).is_none());
        alone.map(|v| v.target.clone()).collect()
    };
    let pairs = before.variants.iter().filter_map(|v| {
        let other = after.variants.get(find(after, &v.target)?)?;
        Some(variant(v, other, before, after))
    });
    Report {
        identical: a.bundle.hash() == b.bundle.hash(),
        provenance: changes(&values(&before.provenance), &values(&after.provenance)),
        sections: changes(&values(&a.sections), &values(&b.sections)),
        weights: contents(&chunks(before), &chunks(after)),
        shaders: contents(&shaders(before), &shaders(after)),
        attachments: changes(&attached(before), &attached(after)),
        only_in_a: only(before, after),
        only_in_b: only(after, before),
        variants: pairs.collect(),
        a: Side { bundle: a.side.bundle.clone(), hash: a.side.hash.clone(), bytes: a.side.bytes },
        b: Side { bundle: b.side.bundle.clone(), hash: b.side.hash.clone(), bytes: b.side.bytes },
    }
}

fn variant(a: &Variant, b: &Variant, before: &Manifest, after: &Manifest) -> VariantDiff {
    let facts = |v: &Variant| {
        let weights: u64 = v.weights.iter().map(|w| w.size).sum();
        BTreeMap::from([
            ("profile".to_owned(), v.profile_hash.to_string()),
            ("pipelines".to_owned(), v.pipelines.len().to_string()),
            ("weight bytes".to_owned(), weights.to_string()),
            ("device memory".to_owned(), v.device_memory().to_string()),
        ])
    };
    let weights = |v: &Variant, m: &Manifest| {
        let placed = v.placements.iter().filter_map(|p| m.chunks.get(p.chunk as usize));
        placed.map(|c| (c.hash, c.size)).collect()
    };
    let labels: BTreeSet<String> = [a, b].into_iter().flat_map(function_labels).collect();
    let functions = labels.iter().map(|name| {
        let find = |v: &Variant| function_labels(v).iter().position(|label| label == name);
        let at = |v: &'_ Variant| find(v).and_then(|i| v.functions.get(i)).cloned();
        let side = |v: &Variant, m: &Manifest| at(v).map_or_else(Described::default, |f| described(&f, v, m));
        function(name, &side(a, before), &side(b, after))
    });
    VariantDiff {
        target: a.target.clone(),
        changes: changes(&facts(a), &facts(b)),
        requirements: changes(&needs(a), &needs(b)),
        weights: contents(&weights(a, before), &weights(b, after)),
        functions: functions.collect(),
    }
}

fn needs(variant: &Variant) -> BTreeMap<String, String> {
    let mut facts = values(&variant.requirements);
    let names: Vec<&str> =
        variant.requirements.features.iter().map(drift_runtime::format::Feature::name).collect();
    facts.insert("features".to_owned(), names.join(", "));
    facts
}

/// A function in comparable form.
#[derive(Debug, Default)]
struct Described {
    facts: BTreeMap<String, String>,
    kernels: BTreeMap<String, String>,
    /// By node and the number of the dispatch within it, in order.
    dispatches: Vec<((String, usize), BTreeMap<String, String>)>,
}

fn described(function: &Function, variant: &Variant, manifest: &Manifest) -> Described {
    let mut facts = BTreeMap::new();
    for (key, value) in values(&function.memory) {
        facts.insert(format!("memory {key}"), value);
    }
    for s in &function.symbols {
        facts.insert(format!("symbol {}", s.name), format!("{}..={}", s.min, s.max));
    }
    for (kind, ports) in [("input", &function.inputs), ("output", &function.outputs)] {
        for port in ports {
            let shape: Vec<String> = port.shape.iter().map(|e| expression(e, &function.symbols)).collect();
            let text = format!("{}[{}]", port.host_type, shape.join(", "));
            facts.insert(format!("{kind} {}", port.name), text);
        }
    }
    facts.insert("dispatches".to_owned(), function.dispatches.len().to_string());
    let barriers = function.dispatches.iter().filter(|d| d.barrier_before).count();
    facts.insert("barriers".to_owned(), barriers.to_string());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut of_node: BTreeMap<&str, usize> = BTreeMap::new();
    let mut dispatches = Vec::with_capacity(function.dispatches.len());
    for dispatch in &function.dispatches {
        let facts = dispatch_facts(dispatch, function, variant, manifest);
        *counts.entry(facts.get("kernel").cloned().unwrap_or_default()).or_default() += 1;
        let number = of_node.entry(&dispatch.label).or_default();
        dispatches.push(((dispatch.label.clone(), *number), facts));
        *number += 1;
    }
    let kernels = counts.into_iter().map(|(kernel, n)| (kernel, n.to_string())).collect();
    Described { facts, kernels, dispatches }
}

fn dispatch_facts(
    dispatch: &Dispatch,
    function: &Function,
    variant: &Variant,
    manifest: &Manifest,
) -> BTreeMap<String, String> {
    let pipeline = variant.pipelines.get(dispatch.pipeline as usize);
    let shader = pipeline.and_then(|p| manifest.artifacts.get(p.artifact as usize));
    let short = |hash: &Hash| hash.to_string().chars().take(8).collect::<String>();
    let text = |e| expression(e, &function.symbols);
    let grid: Vec<String> = dispatch.grid.iter().map(text).collect();
    BTreeMap::from([
        ("kernel".to_owned(), pipeline.map_or_else(String::new, |p| p.name.clone())),
        ("shader".to_owned(), shader.map_or_else(String::new, |s| short(&s.hash))),
        ("workgroup".to_owned(), pipeline.map_or_else(String::new, |p| format!("{:?}", p.workgroup_size))),
        ("grid".to_owned(), grid.join(" x ")),
        ("barrier".to_owned(), dispatch.barrier_before.to_string()),
        ("flops".to_owned(), text(&dispatch.flops)),
        ("bytes".to_owned(), text(&dispatch.bytes)),
    ])
}

fn function(name: &str, a: &Described, b: &Described) -> FunctionDiff {
    let of = |side: &Described| -> BTreeMap<(String, usize), BTreeMap<String, String>> {
        side.dispatches.iter().cloned().collect()
    };
    let (before, after) = (of(a), of(b));
    let mut dispatches = Vec::new();
    for (key, facts) in &a.dispatches {
        let node = key.0.clone();
        match after.get(key) {
            None => dispatches.push(DispatchDiff {
                node,
                kind: "removed",
                changes: changes(facts, &BTreeMap::new()),
            }),
            Some(other) if other != facts => {
                dispatches.push(DispatchDiff { node, kind: "changed", changes: changes(facts, other) });
            }
            Some(_) => {}
        }
    }
    for (key, facts) in b.dispatches.iter().filter(|(key, _)| !before.contains_key(key)) {
        let (node, changes) = (key.0.clone(), changes(&BTreeMap::new(), facts));
        dispatches.push(DispatchDiff { node, kind: "added", changes });
    }
    FunctionDiff {
        name: name.to_owned(),
        changes: changes(&a.facts, &b.facts),
        kernels: changes(&a.kernels, &b.kernels),
        dispatches,
    }
}

/// The plain values of something, by their paths.
fn values(of: &impl Serialize) -> BTreeMap<String, String> {
    fn walk(value: &Value, path: &str, out: &mut BTreeMap<String, String>) {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, v)| walk(v, &below(key), out)),
            Value::Array(items) if items.iter().any(|v| v.is_object() || v.is_array()) => {
                items.iter().enumerate().for_each(|(i, v)| walk(v, &below(&i.to_string()), out));
            }
            Value::String(text) => {
                out.insert(path.to_owned(), text.clone());
            }
            plain => {
                out.insert(path.to_owned(), plain.to_string());
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(&serde_json::to_value(of).unwrap_or(Value::Null), "", &mut out);
    out
}

fn changes(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<Change> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differ = keys.into_iter().filter(|key| a.get(*key) != b.get(*key));
    differ.map(|key| Change { what: key.clone(), a: a.get(key).cloned(), b: b.get(key).cloned() }).collect()
}

fn contents(a: &BTreeMap<Hash, u64>, b: &BTreeMap<Hash, u64>) -> Contents {
    let mut all = Contents::default();
    for (hash, size) in a {
        match b.contains_key(hash) {
            true => (all.shared, all.shared_bytes) = (all.shared + 1, all.shared_bytes + size),
            false => (all.removed, all.removed_bytes) = (all.removed + 1, all.removed_bytes + size),
        }
    }
    for (_, size) in b.iter().filter(|(hash, _)| !a.contains_key(hash)) {
        (all.added, all.added_bytes) = (all.added + 1, all.added_bytes + size);
    }
    all
}

fn print(report: &Report, all: bool, out: &mut Out) -> Result<()> {
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
            writeln!(out, "only {name} has variants for {}", targets.join(", "))?;
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
    let listed = if all { dispatches.len() } else { LISTED };
    for d in dispatches.iter().take(listed) {
        // The kernel and its grid say enough of a dispatch that one side lacks.
        let says = |c: &&Change| d.kind == "changed" || ["kernel", "grid"].contains(&c.what.as_str());
        let parts: Vec<String> = d.changes.iter().filter(says).map(line).collect();
        writeln!(out, "    {:<8} {}: {}", d.kind, d.node, parts.join(", "))?;
    }
    match dispatches.len().saturating_sub(listed) {
        0 => Ok(()),
        more => Ok(writeln!(out, "    and {more} more dispatches; --all lists them")?),
    }
}

fn line(change: &Change) -> String {
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
    let of = |n: usize, size: u64| format!("{n} ({})", bytes(size));
    Ok(writeln!(
        out,
        "{indent}{title}: {} shared, {} removed, {} added",
        of(c.shared, c.shared_bytes),
        of(c.removed, c.removed_bytes),
        of(c.added, c.added_bytes)
    )?)
}

#[cfg(test)]
mod tests {
    use super::{changes, contents, values};
    use drift_runtime::format::Hash;
    use std::collections::BTreeMap;

    #[test]
    fn values_are_compared_by_path() {
        let value = |n: u32| values(&serde_json::json!({ "x": { "y": n, "z": [1, 2] }, "w": [{ "v": n }] }));
        let changed = changes(&value(1), &value(2));
        let paths: Vec<&str> = changed.iter().map(|c| c.what.as_str()).collect();
        assert_eq!(paths, ["w.0.v", "x.y"]);
        assert!(changes(&value(1), &value(1)).is_empty());
    }

    #[test]
    fn contents_are_compared_by_hash() {
        let (x, y, z) = (Hash::of(b"x"), Hash::of(b"y"), Hash::of(b"z"));
        let all = contents(&BTreeMap::from([(x, 1), (y, 2)]), &BTreeMap::from([(y, 2), (z, 4)]));
        assert_eq!((all.shared_bytes, all.removed_bytes, all.added_bytes), (2, 1, 4));
    }
}
