//! Report of `driftc inspect`: the structs of its JSON, and their values, collected from the manifest of a bundle.

use std::collections::{BTreeMap, BTreeSet};

use drift_runtime::Bundle;
use drift_runtime::codec::read_header;
use drift_runtime::format::{
    DeviceHints, Function, Image, Limits, METADATA_PREFIX, Manifest, MemoryReport, Port, Provenance,
    SlotKind, Symbol, Variant,
};
use serde::Serialize;

use crate::bundle_sizes::{SectionSizes, own_and_shared_weights, stored_weights, undeduplicated_weights};
use crate::bytes_read::BytesRead;
use crate::expression::format_expression;
use crate::failure::Result;

/// Maximum number of weights to list, largest first.
const MAX_LISTED_WEIGHTS: usize = 8;
/// Maximum number of characters to show of the key or value of a metadata entry.
const MAX_SHOWN_CHARS: usize = 60;

#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    pub(super) bundle: String,
    pub(super) format: String,
    pub(super) hash: String,
    /// Id of the key that the bundle names as its signer. The signature is not checked.
    pub(super) signer: Option<String>,
    /// Origin of the bundle, with the notes that are not metadata.
    pub(super) provenance: Provenance,
    /// Metadata of the source model, by key.
    pub(super) metadata: BTreeMap<&'a str, &'a str>,
    pub(super) bytes: SectionSizes,
    pub(super) attachments: Vec<Attachment>,
    /// Bytes that the weights of all variants would take without deduplication.
    pub(super) undeduplicated_weight_bytes: u64,
    /// Bytes of weights that the file stores.
    pub(super) stored_weight_bytes: u64,
    pub(super) variants: Vec<VariantReport<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Attachment {
    pub(super) name: String,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct VariantReport<'a> {
    pub(super) target: &'a str,
    pub(super) profile_hash: String,
    pub(super) requirements: RequirementsReport<'a>,
    pub(super) pipelines: usize,
    pub(super) weight_bytes: u64,
    /// Bytes of stored weights that only this variant uses.
    pub(super) own_weight_bytes: u64,
    /// Bytes of stored weights that another variant also uses.
    pub(super) shared_weight_bytes: u64,
    pub(super) shader_bytes: u64,
    pub(super) device_memory: u64,
    pub(super) functions: Vec<FunctionReport<'a>>,
    pub(super) largest_weights: Vec<Weight>,
}

#[derive(Debug, Serialize)]
pub(super) struct RequirementsReport<'a> {
    pub(super) api: &'static str,
    pub(super) api_version: String,
    pub(super) features: Vec<&'static str>,
    pub(super) limits: &'a Limits,
    pub(super) subgroup_sizes: &'a [u32],
    pub(super) matrix_shapes: Vec<String>,
    pub(super) hints: &'a DeviceHints,
}

#[derive(Debug, Serialize)]
pub(super) struct FunctionReport<'a> {
    pub(super) name: &'a str,
    pub(super) symbols: &'a [Symbol],
    pub(super) inputs: Vec<PortReport<'a>>,
    pub(super) outputs: Vec<PortReport<'a>>,
    pub(super) dispatches: usize,
    pub(super) barriers: usize,
    pub(super) memory: &'a MemoryReport,
    pub(super) reads: BytesRead,
    /// Sizes of the arenas for intermediate tensors, in bytes.
    pub(super) arenas: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) dispatch_list: Vec<DispatchReport<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct PortReport<'a> {
    pub(super) name: &'a str,
    #[serde(rename = "type")]
    pub(super) host_type: &'static str,
    pub(super) device_type: &'static str,
    pub(super) shape: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct DispatchReport<'a> {
    pub(super) index: usize,
    pub(super) kernel: &'a str,
    pub(super) node: &'a str,
    pub(super) grid: Vec<String>,
    pub(super) barrier_before: bool,
    pub(super) flops: String,
    pub(super) bytes: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Weight {
    /// Name of the first node that reads the weight.
    pub(super) node: String,
    pub(super) bytes: u64,
    /// Number of texels along x and y, if the weight is stored in a texture.
    pub(super) texture: Option<[u32; 2]>,
}

/// Collects the report of a bundle. With `list_dispatches`, the report lists every dispatch.
pub(super) fn bundle_report(bundle: &Bundle, path: String, list_dispatches: bool) -> Result<Report<'_>> {
    let header = read_header(bundle.bytes())?;
    let manifest = bundle.manifest();
    Ok(Report {
        bundle: path,
        format: format!("{}.{}", header.major, header.minor),
        hash: bundle.hash().to_string(),
        signer: bundle.signer()?.map(|id| id.to_string()),
        provenance: without_metadata(&manifest.provenance),
        metadata: bundle.metadata().collect(),
        bytes: SectionSizes::from_bundle(&header, bundle),
        attachments: attachments(manifest),
        undeduplicated_weight_bytes: undeduplicated_weights(manifest),
        stored_weight_bytes: stored_weights(manifest),
        variants: manifest.variants.iter().map(|v| variant_report(v, manifest, list_dispatches)).collect(),
    })
}

fn without_metadata(provenance: &Provenance) -> Provenance {
    let mut provenance = provenance.clone();
    provenance.notes.retain(|(key, _)| !key.starts_with(METADATA_PREFIX));
    provenance
}

/// Key or value of a metadata entry on one line, cut after [`MAX_SHOWN_CHARS`] characters.
pub(super) fn shown_value(value: &str) -> String {
    let start: String = value.chars().take(MAX_SHOWN_CHARS).collect();
    let cut = if start.len() < value.len() { format!(" ... ({} bytes)", value.len()) } else { String::new() };
    format!("{}{cut}", start.replace(char::is_control, " ").trim_end())
}

fn attachments(manifest: &Manifest) -> Vec<Attachment> {
    let size = |index: u32| manifest.artifacts.get(index as usize).map_or(0, |a| a.size);
    let one =
        |a: &drift_runtime::format::Attachment| Attachment { name: a.name.clone(), bytes: size(a.artifact) };
    manifest.attachments.iter().map(one).collect()
}

fn variant_report<'a>(variant: &'a Variant, manifest: &'a Manifest, list: bool) -> VariantReport<'a> {
    let required = &variant.requirements;
    let (own, shared) = own_and_shared_weights(variant, manifest);
    VariantReport {
        target: &variant.target,
        profile_hash: variant.profile_hash.to_string(),
        requirements: RequirementsReport {
            api: manifest.language(variant).api_name().unwrap_or("none"),
            api_version: required.api_version.to_string(),
            features: required.features.iter().map(drift_runtime::format::Feature::name).collect(),
            limits: &required.limits,
            subgroup_sizes: &required.subgroup_sizes,
            matrix_shapes: required.matrix_shapes.iter().map(ToString::to_string).collect(),
            hints: &required.hints,
        },
        pipelines: variant.pipelines.len(),
        weight_bytes: variant.weights.iter().map(|w| w.size).sum(),
        own_weight_bytes: own,
        shared_weight_bytes: shared,
        shader_bytes: shader_bytes(variant, manifest),
        device_memory: variant.device_memory(),
        functions: variant.functions.iter().map(|f| function_report(f, variant, list)).collect(),
        largest_weights: largest_weights(variant, manifest),
    }
}

fn function_report<'a>(function: &'a Function, variant: &'a Variant, list: bool) -> FunctionReport<'a> {
    let symbols = &function.symbols;
    let port = |p: &'a Port| PortReport {
        name: &p.name,
        host_type: p.host_type.name(),
        device_type: p.device_type.name(),
        shape: p.shape.iter().map(|e| format_expression(e, symbols)).collect(),
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
        reads: BytesRead::from_function(function, variant),
        arenas: function.slots.iter().filter(|s| s.kind == SlotKind::Arena).map(|s| s.size).collect(),
        dispatch_list: listed
            .iter()
            .enumerate()
            .map(|(index, d)| DispatchReport {
                index,
                kernel: variant.pipelines.get(d.pipeline as usize).map_or("", |p| p.name.as_str()),
                node: &d.label,
                grid: d.grid.iter().map(|e| format_expression(e, symbols)).collect(),
                barrier_before: d.barrier_before,
                flops: format_expression(&d.flops, symbols),
                bytes: format_expression(&d.bytes, symbols),
            })
            .collect(),
    }
}

/// Total size in bytes of a variant's distinct shaders.
fn shader_bytes(variant: &Variant, manifest: &Manifest) -> u64 {
    let artifacts: BTreeSet<u32> = variant.pipelines.iter().map(|p| p.artifact).collect();
    artifacts.into_iter().filter_map(|a| manifest.artifacts.get(a as usize)).map(|a| a.size).sum()
}

/// Largest weights, each with the first node that reads it.
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
    weights.truncate(MAX_LISTED_WEIGHTS);
    weights
}
