//! A small test bundle built by hand: three functions, three kernels, weights, a state, a symbol.

#![allow(dead_code)]

pub(crate) mod language;

use drift_runtime::Bundle;
use drift_runtime::codec::BundleWriter;
use drift_runtime::format::{
    Binding, BindingKind, DeviceType, Dispatch, Expr, ExprOp, Feature, Features, Function, Hash, HostType,
    Manifest, Pipeline, Port, Provenance, Slot, SlotKind, StateSlot, Symbol, Variant, WeightPlacement,
    WeightSlot,
};
use std::path::Path;

pub(crate) const WEIGHTS: [f32; 4] = [10.0, 20.0, 30.0, 40.0];
const ALIGNMENT: u32 = 256;

/// Function that modifies the variants of the test bundle before the bundle is written.
pub(crate) type Edit<'a> = &'a dyn Fn(&mut Vec<Variant>);

/// Writes the small test bundle, modified by `edit`, and returns its bytes.
pub(crate) fn write_bundle(path: &Path, edit: Edit<'_>) -> Result<Vec<u8>, drift_runtime::Error> {
    write_bundle_with(path, &mut |_| Ok(()), edit)
}

/// Like [`write_bundle`], but `add_more` adds chunks and artifacts after the chunks and artifacts of the bundle.
pub(crate) fn write_bundle_with(
    path: &Path,
    add_more: &mut dyn FnMut(&mut BundleWriter) -> Result<(), drift_runtime::Error>,
    edit: Edit<'_>,
) -> Result<Vec<u8>, drift_runtime::Error> {
    let mut writer = BundleWriter::create(path)?;
    let add = writer.spirv(&words(include_bytes!("../kernels/add_weights.spv")))?;
    let scale = writer.spirv(&words(include_bytes!("../kernels/scale.spv")))?;
    let accumulate = writer.spirv(&words(include_bytes!("../kernels/accumulate.spv")))?;
    writer.attach("vocabulary.txt", b"one\ntwo\n")?;
    let chunk = writer.chunk(|out| {
        // Two slices, as a compiler would stream them.
        let bytes = WEIGHTS.map(f32::to_le_bytes).concat();
        let (first, second) = bytes.split_at(6);
        out.write_all(first)?;
        out.write_all(second)
    })?;
    add_more(&mut writer)?;
    let mut variants = vec![variant([add, scale, accumulate], chunk)];
    edit(&mut variants);
    let provenance = Provenance { compiler_version: "test".to_owned(), ..Provenance::default() };
    writer.finish(provenance, variants)?;
    Ok(std::fs::read(path).unwrap())
}

/// Returns the bytes of the small test bundle.
pub(crate) fn small_bundle() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    write_bundle(&folder.path().join("small.drift"), &|_| ()).unwrap()
}

/// Returns the bytes of the small test bundle, modified by `edit`.
pub(crate) fn edited_bundle(edit: Edit<'_>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    write_bundle(&folder.path().join("edited.drift"), edit).unwrap()
}

/// Replaces the manifest of a bundle file. Header and hashes are valid, so only the manifest can be rejected.
pub(crate) fn with_manifest(file: &[u8], manifest: &[u8]) -> Vec<u8> {
    let offset = u64::from_le_bytes(file[24..32].try_into().unwrap());
    let mut file = file[..usize::try_from(offset).unwrap()].to_vec();
    file.extend(manifest);
    let size = file.len() as u64;
    file[16..24].copy_from_slice(&size.to_le_bytes());
    file[32..40].copy_from_slice(&(manifest.len() as u64).to_le_bytes());
    file[40..72].copy_from_slice(&Hash::digest(manifest).0);
    let hash = Hash::digest(&file[..96]);
    file[96..128].copy_from_slice(&hash.0);
    file
}

/// Returns the bundle with another minor version in its header.
pub(crate) fn with_minor(file: &[u8], minor: u16) -> Vec<u8> {
    let mut file = file.to_vec();
    file[10..12].copy_from_slice(&minor.to_le_bytes());
    let hash = Hash::digest(&file[..96]);
    file[96..128].copy_from_slice(&hash.0);
    file
}

pub(crate) fn encode(manifest: &Manifest) -> Vec<u8> {
    bincode::serde::encode_to_vec(manifest, bincode::config::standard()).unwrap()
}

/// Returns the bundle with its first variant replaced.
pub(crate) fn with_variant(file: &[u8], variant: Variant) -> Bundle {
    let mut manifest = drift_runtime::codec::read_manifest(file).unwrap();
    manifest.variants[0] = variant;
    Bundle::from_vec(with_manifest(file, &encode(&manifest))).unwrap()
}

fn variant([add, scale, accumulate]: [u32; 3], chunk: u32) -> Variant {
    use BindingKind::{StorageRead as Read, StorageReadWrite as Write, Uniform};
    let mut variant = Variant {
        target: "any".to_owned(),
        pipelines: vec![
            pipeline("add_weights", add, &[Read, Read, Write], 4),
            pipeline("scale", scale, &[Read, Write, Uniform], 8),
            pipeline("accumulate", accumulate, &[Read, Write, Write], 4),
        ],
        // A gap precedes the weights and must read as zero.
        weights: vec![WeightSlot { size: 256 + 16 + 256 }],
        placements: vec![WeightPlacement { chunk, slot: 0, offset: 256 }],
        states: vec![StateSlot { name: "sum".to_owned(), size: 16 }],
        functions: vec![main_function(), scale_function(), sum_function()],
        ..Variant::default()
    };
    variant.requirements.features = Features::NONE.with(Feature::SubgroupBasic);
    variant.requirements.limits.storage_alignment = ALIGNMENT;
    variant.requirements.limits.uniform_alignment = ALIGNMENT;
    variant.requirements.limits = variant.needed_limits();
    variant
}

/// Function `main`: y = (x + weights) + zeros + weights, with intermediate results in the arena.
fn main_function() -> Function {
    let input = port("x", HostType::F32, DeviceType::F32, vec![Expr::constant(4)], 0);
    let output = port("y", HostType::F32, DeviceType::F32, vec![Expr::constant(2), Expr::constant(2)], 1);
    let (x, y, arena, weights, zeros) = (at(0, 0, 16), at(1, 0, 16), 2, at(3, 256, 16), at(3, 0, 16));
    let mut second = dispatch(0, &[at(arena, 0, 16), zeros, at(arena, 256, 16)], [1, 1, 1]);
    second.barrier_before = true;
    let mut third = dispatch(0, &[at(arena, 256, 16), weights.clone(), y], [1, 1, 1]);
    third.barrier_before = true;
    Function {
        name: "main".to_owned(),
        inputs: vec![input],
        outputs: vec![output],
        slots: vec![
            Slot { kind: SlotKind::Input(0), size: 16 },
            Slot { kind: SlotKind::Output(0), size: 16 },
            Slot { kind: SlotKind::Arena, size: 512 },
            Slot { kind: SlotKind::Weights(0), size: 528 },
        ],
        dispatches: vec![dispatch(0, &[x, weights, at(arena, 0, 16)], [1, 1, 1]), second, third],
        ..Function::default()
    }
}

/// Function `scale`: tripled[n] = ids[1, n] * 3, for n in 1..=100.
fn scale_function() -> Function {
    let n = Expr::symbol(0);
    let input = port("ids", HostType::I64, DeviceType::I32, vec![Expr::constant(1), n.clone()], 0);
    let output = port("tripled", HostType::I64, DeviceType::I32, vec![n.clone()], 1);
    let mut dispatch = dispatch(1, &[at(0, 0, 400), at(1, 0, 400), at(2, 0, 8)], [1, 1, 1]);
    dispatch.grid[0] = n.clone().then(ExprOp::CeilDiv, Expr::constant(8));
    dispatch.params = vec![n, Expr::constant(3)];
    Function {
        name: "scale".to_owned(),
        symbols: vec![Symbol { name: "n".to_owned(), min: 1, max: 100 }],
        inputs: vec![input],
        outputs: vec![output],
        slots: vec![
            Slot { kind: SlotKind::Input(0), size: 400 },
            Slot { kind: SlotKind::Output(0), size: 400 },
            Slot { kind: SlotKind::Params, size: 8 },
        ],
        dispatches: vec![dispatch],
        ..Function::default()
    }
}

/// Function `sum`: running sum of all inputs x, in a state.
fn sum_function() -> Function {
    Function {
        name: "sum".to_owned(),
        inputs: vec![port("x", HostType::F16, DeviceType::F32, vec![Expr::constant(4)], 0)],
        outputs: vec![port("total", HostType::F64, DeviceType::F32, vec![Expr::constant(4)], 2)],
        slots: vec![
            Slot { kind: SlotKind::Input(0), size: 16 },
            Slot { kind: SlotKind::State(0), size: 16 },
            Slot { kind: SlotKind::Output(0), size: 16 },
        ],
        dispatches: vec![dispatch(2, &[at(0, 0, 16), at(1, 0, 16), at(2, 0, 16)], [1, 1, 1])],
        ..Function::default()
    }
}

pub(crate) fn pipeline(name: &str, artifact: u32, bindings: &[BindingKind], threads: u32) -> Pipeline {
    Pipeline {
        name: name.to_owned(),
        artifact,
        entry: "main".to_owned(),
        bindings: bindings.to_vec(),
        required_subgroup_size: None,
        workgroup_size: [threads, 1, 1],
        workgroup_memory: 0,
    }
}

pub(crate) fn port(
    name: &str,
    host_type: HostType,
    device_type: DeviceType,
    shape: Vec<Expr>,
    slot: u32,
) -> Port {
    Port { name: name.to_owned(), host_type, device_type, shape, slot, offset: 0 }
}

pub(crate) fn at(slot: u32, offset: u64, size: u64) -> Binding {
    Binding { slot, offset, size }
}

pub(crate) fn dispatch(pipeline: u32, bindings: &[Binding], grid: [i64; 3]) -> Dispatch {
    Dispatch {
        pipeline,
        bindings: bindings.to_vec(),
        grid: grid.map(Expr::constant),
        params: Vec::new(),
        params_offset: 0,
        barrier_before: false,
        label: "test".to_owned(),
        flops: Expr::default(),
        bytes: Expr::default(),
    }
}

pub(crate) fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
