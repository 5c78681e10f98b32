//! Report of `driftc diff`: the structs of its JSON, and the comparison of two bundles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drift_runtime::Bundle;
use drift_runtime::codec::read_header;
use drift_runtime::format::{Dispatch, Function, Hash, Manifest, Variant};
use serde::Serialize;
use serde_json::Value;

use crate::bundle_sizes::SectionSizes;
use crate::expression::format_expression;
use crate::failure::{Failure, Result};
use crate::specialize::function_labels;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) identical: bool,
    pub(super) a: Side,
    pub(super) b: Side,
    pub(super) provenance: Vec<Change>,
    pub(super) sections: Vec<Change>,
    pub(super) weights: Contents,
    pub(super) shaders: Contents,
    pub(super) attachments: Vec<Change>,
    /// Targets of variants that only bundle `a` has; `only_in_b` lists targets that only bundle `b` has.
    pub(super) only_in_a: Vec<String>,
    pub(super) only_in_b: Vec<String>,
    pub(super) variants: Vec<VariantDiff>,
}

#[derive(Debug, Serialize)]
pub(super) struct Side {
    pub(super) bundle: String,
    pub(super) hash: String,
    pub(super) bytes: u64,
}

/// A value that differs between bundles `a` and `b`. `None` stands for a bundle that does not have the value.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    pub(super) what: String,
    pub(super) a: Option<String>,
    pub(super) b: Option<String>,
}

/// Counts and total bytes of weight chunks or shaders that both bundles have (`shared`, compared by hash), that only
/// the first has (`removed`), and that only the second has (`added`).
#[derive(Debug, Default, Serialize)]
pub(super) struct Contents {
    pub(super) shared: usize,
    pub(super) shared_bytes: u64,
    pub(super) removed: usize,
    pub(super) removed_bytes: u64,
    pub(super) added: usize,
    pub(super) added_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct VariantDiff {
    pub(super) target: String,
    pub(super) changes: Vec<Change>,
    pub(super) requirements: Vec<Change>,
    pub(super) weights: Contents,
    pub(super) functions: Vec<FunctionDiff>,
}

#[derive(Debug, Serialize)]
pub(super) struct FunctionDiff {
    pub(super) name: String,
    /// Changes of the inputs, outputs, symbols and memory sizes of a function.
    pub(super) changes: Vec<Change>,
    /// Kernels whose number of dispatches differs between the bundles, with both numbers.
    pub(super) kernels: Vec<Change>,
    pub(super) dispatches: Vec<DispatchDiff>,
}

#[derive(Debug, Serialize)]
pub(super) struct DispatchDiff {
    pub(super) node: String,
    /// Kind of the difference of a dispatch: `added`, `removed` or `changed`.
    pub(super) kind: &'static str,
    pub(super) changes: Vec<Change>,
}

impl VariantDiff {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.requirements.is_empty()
            && self.functions.iter().all(FunctionDiff::is_empty)
            && self.weights.is_unchanged()
    }
}

impl FunctionDiff {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.kernels.is_empty() && self.dispatches.is_empty()
    }
}

impl Contents {
    pub(super) fn is_unchanged(&self) -> bool {
        self.added == 0 && self.removed == 0
    }
}

/// One of the two bundles that are compared, opened and verified.
pub(super) struct Opened {
    side: Side,
    bundle: Bundle,
    sections: SectionSizes,
}

impl Opened {
    /// Opens and verifies a bundle.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let with_path = |e: drift_runtime::Error| match e {
            e @ drift_runtime::Error::Io { .. } => Failure::from(e),
            e => Failure::from(e).context(path.display().to_string()),
        };
        let bundle = Bundle::open(path).map_err(with_path)?;
        bundle.verify().map_err(with_path)?;
        let header = read_header(bundle.bytes()).map_err(with_path)?;
        let side = Side {
            bundle: path.display().to_string(),
            hash: bundle.hash().to_string(),
            bytes: header.file_size,
        };
        Ok(Self { side, sections: SectionSizes::from_bundle(&header, &bundle), bundle })
    }
}

/// Compares two bundles.
pub(super) fn report(a: &Opened, b: &Opened) -> Report {
    let (before, after) = (a.bundle.manifest(), b.bundle.manifest());
    let chunks = |m: &Manifest| m.chunks.iter().map(|c| (c.hash, c.size)).collect();
    let shaders = |m: &Manifest| m.artifacts.iter().map(|s| (s.hash, s.size)).collect();
    let attached = |m: &Manifest| {
        let hash = |i: u32| m.artifacts.get(i as usize).map_or_else(String::new, |a| a.hash.to_string());
        m.attachments.iter().map(|a| (a.name.clone(), hash(a.artifact))).collect()
    };
    let find = |m: &Manifest, target: &str| m.variants.iter().position(|v| v.target == target);
    let only_in = |this: &Manifest, other: &Manifest| {
        let unmatched = this.variants.iter().filter(|v| find(other, &v.target).is_none());
        unmatched.map(|v| v.target.clone()).collect()
    };
    let pairs = before.variants.iter().filter_map(|v| {
        let other = after.variants.get(find(after, &v.target)?)?;
        Some(variant_diff(v, other, before, after))
    });
    Report {
        identical: a.bundle.hash() == b.bundle.hash(),
        provenance: changes(&values(&before.provenance), &values(&after.provenance)),
        sections: changes(&values(&a.sections), &values(&b.sections)),
        weights: contents(&chunks(before), &chunks(after)),
        shaders: contents(&shaders(before), &shaders(after)),
        attachments: changes(&attached(before), &attached(after)),
        only_in_a: only_in(before, after),
        only_in_b: only_in(after, before),
        variants: pairs.collect(),
        a: Side { bundle: a.side.bundle.clone(), hash: a.side.hash.clone(), bytes: a.side.bytes },
        b: Side { bundle: b.side.bundle.clone(), hash: b.side.hash.clone(), bytes: b.side.bytes },
    }
}

fn variant_diff(a: &Variant, b: &Variant, before: &Manifest, after: &Manifest) -> VariantDiff {
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
        let side = |v: &Variant, m: &Manifest| {
            at(v).map_or_else(FunctionFacts::default, |f| function_facts(&f, v, m))
        };
        function_diff(name, &side(a, before), &side(b, after))
    });
    VariantDiff {
        target: a.target.clone(),
        changes: changes(&facts(a), &facts(b)),
        requirements: changes(&requirements(a), &requirements(b)),
        weights: contents(&weights(a, before), &weights(b, after)),
        functions: functions.collect(),
    }
}

fn requirements(variant: &Variant) -> BTreeMap<String, String> {
    let mut facts = values(&variant.requirements);
    let names: Vec<&str> =
        variant.requirements.features.iter().map(drift_runtime::format::Feature::name).collect();
    facts.insert("features".to_owned(), names.join(", "));
    facts
}

/// Properties of a function, such as memory sizes and shapes of inputs, as text by name, so that two functions can be
/// compared.
#[derive(Debug, Default)]
struct FunctionFacts {
    facts: BTreeMap<String, String>,
    kernels: BTreeMap<String, String>,
    /// Properties of each dispatch, such as its kernel and grid, in execution order. The key is the name of the
    /// dispatch's node and the dispatch's index among the node's dispatches.
    dispatches: Vec<((String, usize), BTreeMap<String, String>)>,
}

fn function_facts(function: &Function, variant: &Variant, manifest: &Manifest) -> FunctionFacts {
    let mut facts = BTreeMap::new();
    for (key, value) in values(&function.memory) {
        facts.insert(format!("memory {key}"), value);
    }
    for s in &function.symbols {
        facts.insert(format!("symbol {}", s.name), format!("{}..{}", s.min, s.max));
    }
    for (kind, ports) in [("input", &function.inputs), ("output", &function.outputs)] {
        for port in ports {
            let shape: Vec<String> =
                port.shape.iter().map(|e| format_expression(e, &function.symbols)).collect();
            let text = format!("{}[{}]", port.host_type, shape.join(", "));
            facts.insert(format!("{kind} {}", port.name), text);
        }
    }
    facts.insert("dispatches".to_owned(), function.dispatches.len().to_string());
    let barriers = function.dispatches.iter().filter(|d| d.barrier_before).count();
    facts.insert("barriers".to_owned(), barriers.to_string());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut per_node: BTreeMap<&str, usize> = BTreeMap::new();
    let mut dispatches = Vec::with_capacity(function.dispatches.len());
    for dispatch in &function.dispatches {
        let facts = dispatch_facts(dispatch, function, variant, manifest);
        *counts.entry(facts.get("kernel").cloned().unwrap_or_default()).or_default() += 1;
        let number = per_node.entry(&dispatch.label).or_default();
        dispatches.push(((dispatch.label.clone(), *number), facts));
        *number += 1;
    }
    let kernels = counts.into_iter().map(|(kernel, n)| (kernel, n.to_string())).collect();
    FunctionFacts { facts, kernels, dispatches }
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
    let text = |e| format_expression(e, &function.symbols);
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

fn function_diff(name: &str, a: &FunctionFacts, b: &FunctionFacts) -> FunctionDiff {
    let by_key = |side: &FunctionFacts| -> BTreeMap<(String, usize), BTreeMap<String, String>> {
        side.dispatches.iter().cloned().collect()
    };
    let (before, after) = (by_key(a), by_key(b));
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

/// Plain values of a serializable struct as text, by field path such as `limits.max_grid`.
fn values(source: &impl Serialize) -> BTreeMap<String, String> {
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
    walk(&serde_json::to_value(source).unwrap_or(Value::Null), "", &mut out);
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
        let (x, y, z) = (Hash::digest(b"x"), Hash::digest(b"y"), Hash::digest(b"z"));
        let all = contents(&BTreeMap::from([(x, 1), (y, 2)]), &BTreeMap::from([(y, 2), (z, 4)]));
        assert_eq!((all.shared_bytes, all.removed_bytes, all.added_bytes), (2, 1, 4));
    }
}
