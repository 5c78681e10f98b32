//! The bundle format as plain Rust structs. The compiler writes them, the runtime reads them.
//!
//! A [`Manifest`] describes everything except the raw bytes of weights and shaders, which it refers to by
//! offset and hash. [`codec`] encodes and decodes it; `FORMAT.md` specifies the bytes. No type is recursive and
//! no list element encodes to zero bytes, so decoding hostile input is bounded. The field order of every struct
//! and the variant order of every enum are part of the format.
//!
//! This crate has no Cargo features. The compiler is therefore built once, whatever backends the runtime
//! enables.

pub mod codec;
pub mod device;
pub mod error;
mod expr;
mod image;
mod needed_limits;
pub mod order;
mod requirements;
pub mod self_test;
pub mod threads;
mod types;
mod validate;

pub use error::{Error, Unmet};
pub use expr::{Expr, ExprError, ExprOp};
pub use image::{Image, ImageKind, Texture};
pub use requirements::{
    ApiVersion, DeviceHints, FEATURES, Feature, Features, Limits, MatrixScope, MatrixShape, MatrixType,
    Requirements,
};
pub use types::{DeviceType, HostType};
pub use validate::validate;

use serde::{Deserialize, Serialize};

/// A BLAKE3 hash. It serializes as 32 bytes, or as hexadecimal digits in human-readable formats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
pub struct Hash(pub [u8; 32]);

/// The contents of a bundle, except the bytes of its chunks and artifacts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub provenance: Provenance,
    /// Weight data. Equal chunks are stored once; all variants may use them.
    pub chunks: Vec<Chunk>,
    /// Shaders and attached files.
    pub artifacts: Vec<Artifact>,
    /// Files shipped with the model, such as a tokenizer. The runtime does not interpret them.
    pub attachments: Vec<Attachment>,
    /// One variant per target, in order of preference.
    pub variants: Vec<Variant>,
}

/// Origin of a bundle: compiler version, options and source model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    pub compiler_version: String,
    /// Command-line options of the compiler that changed the bundle.
    pub flags: Vec<String>,
    pub model_name: String,
    pub model_hash: Hash,
    /// Additional (key, value) pairs, sorted by key. Keys that begin with [`METADATA_PREFIX`] are metadata of the
    /// source model.
    pub notes: Vec<(String, String)>,
}

/// Prefix of the keys of [`Provenance::notes`] that are metadata of the source model. The rest of the key is the
/// model's own key.
pub const METADATA_PREFIX: &str = "metadata.";

/// A range of the file with packed weights. The offset is a multiple of 256.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub hash: Hash,
    pub offset: u64,
    pub size: u64,
}

/// A range of the file with a shader or an attachment. The offset is a multiple of 16.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    pub hash: Hash,
    pub offset: u64,
    pub size: u64,
    pub kind: ArtifactKind,
}

/// Content type of an artifact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ArtifactKind {
    /// A SPIR-V module, little-endian words.
    #[default]
    Spirv,
    /// Contents of a file that is attached to the bundle, such as a tokenizer.
    Data,
    /// A WGSL module, UTF-8.
    Wgsl,
    /// A Metal shading language module, UTF-8.
    Msl,
    /// An HLSL module, UTF-8.
    Hlsl,
}

/// A file shipped with the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// Relative file name such as `tokenizer.json`, unique among the attachments of a bundle.
    pub name: String,
    /// Index into [`Manifest::artifacts`]. The artifact has kind [`ArtifactKind::Data`].
    pub artifact: u32,
}

/// The model compiled for one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Name of the target profile.
    pub target: String,
    pub profile_hash: Hash,
    pub requirements: Requirements,
    pub pipelines: Vec<Pipeline>,
    /// Buffers for weights, which are filled once at load. All functions use the same buffers.
    pub weights: Vec<WeightSlot>,
    pub placements: Vec<WeightPlacement>,
    /// Buffers that keep their contents between runs, such as KV caches. All functions use the same buffers, which are
    /// zero after load.
    pub states: Vec<StateSlot>,
    pub functions: Vec<Function>,
}

/// One compute pipeline. All bindings are in descriptor set 0; the index in `bindings` is the binding number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Kernel name, for reports only.
    pub name: String,
    /// Index into [`Manifest::artifacts`]: a shader. All pipelines of a variant use the same shader language.
    pub artifact: u32,
    pub entry: String,
    pub bindings: Vec<BindingKind>,
    pub required_subgroup_size: Option<u32>,
    pub workgroup_size: [u32; 3],
    /// Bytes of workgroup memory that the shader declares.
    pub workgroup_memory: u32,
}

/// Type of a pipeline binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindingKind {
    StorageRead,
    StorageReadWrite,
    Uniform,
    /// A range of a buffer, read as texels of four elements of this type.
    Texels(DeviceType),
    /// An image read without a sampler.
    ImageRead(Texture),
    ImageWrite(Texture),
}

/// A buffer filled with weights at load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightSlot {
    pub size: u64,
}

/// Placement of a whole chunk in a weight slot. Bytes of the slot without a placement are zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightPlacement {
    pub chunk: u32,
    /// Index into [`Variant::weights`].
    pub slot: u32,
    /// Byte offset of the chunk in the slot, a multiple of 4.
    pub offset: u64,
}

/// A buffer that keeps its contents between runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateSlot {
    pub name: String,
    pub size: u64,
}

/// A named entry point with its inputs, outputs and dispatches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Name of the entry point: `main`, `prefill`, `decode`, ... Consecutive functions of the same name are one entry
    /// point. The first is general; the others are specializations for narrower symbol bounds and use the inputs and
    /// outputs of the first.
    pub name: String,
    pub symbols: Vec<Symbol>,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub slots: Vec<Slot>,
    pub memory: MemoryReport,
    pub dispatches: Vec<Dispatch>,
}

/// A symbolic dimension: a size that is known at run time only. The function was compiled for values from `min` to `max`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symbol {
    pub name: String,
    pub min: i64,
    pub max: i64,
}

/// An input or output of a function. On the device it is a contiguous row-major array of `device_type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    pub name: String,
    /// Element type of the caller's array.
    pub host_type: HostType,
    /// Element type on the device. The runtime converts between the caller's type and this type.
    pub device_type: DeviceType,
    /// Size of each dimension. If the size of an input's dimension is a bare symbol, the size in the caller's array gives the
    /// symbol its value. Every other size must equal the value of its expression.
    pub shape: Vec<Expr>,
    /// Index into [`Function::slots`]. The slot has kind `Input(i)` or `Output(i)`, where `i` is this port's index.
    pub slot: u32,
    /// Byte offset of the array in the slot, a multiple of 4.
    pub offset: u64,
}

/// A buffer or image that the dispatches of a function can bind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    pub kind: SlotKind,
    pub size: u64,
}

/// Purpose of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotKind {
    /// Weights: index into [`Variant::weights`]; read only.
    Weights(u32),
    /// Arena for intermediate results. The n-th arena slots of all functions use the same memory. Contents are lost
    /// between runs.
    Arena,
    /// Memory of the input with this index; read only.
    Input(u32),
    /// Memory of the output with this index.
    Output(u32),
    /// Memory for the 32-bit words computed by [`Dispatch::params`]; read only. A function has at most one such slot.
    Params,
    /// Index into [`Variant::states`].
    State(u32),
    /// An image. [`Variant::images`] maps image slots to the images that are created.
    Image(Image),
}

/// Result of memory planning in bytes, for reports only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    pub peak: u64,
    pub lower_bound: u64,
    /// Sum of the sizes of all intermediate tensors: the memory without reuse.
    pub naive: u64,
    pub strategy: String,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Index into [`Variant::pipelines`].
    pub pipeline: u32,
    /// One bound range for each binding of the pipeline. The slot of the range suits the kind of the binding.
    pub bindings: Vec<Binding>,
    /// Number of workgroups along x, y and z. If one of the numbers is zero, the dispatch is skipped.
    pub grid: [Expr; 3],
    /// Parameters of the shader: 32-bit words (negative values in two's complement) that are written to the params slot
    /// at `params_offset`.
    pub params: Vec<Expr>,
    /// Byte offset of `params` in the params slot, a multiple of 4; 0 if the dispatch has no parameters.
    pub params_offset: u64,
    /// True if a barrier separates this dispatch from all earlier dispatches.
    pub barrier_before: bool,
    /// Name of the model's node that the dispatch computes, for reports only.
    pub label: String,
    /// Number of floating-point operations; a multiply-add counts as two. 0 = unknown.
    pub flops: Expr,
    /// Lower bound of the number of bytes that the dispatch reads and writes, in total; 0 = unknown.
    pub bytes: Expr,
}

/// A range of a slot as bound by a descriptor. An image is bound as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// Index into [`Function::slots`].
    pub slot: u32,
    /// Byte offset of the range in the slot: a multiple of the storage or uniform alignment in [`Limits`].
    pub offset: u64,
    /// Byte size of the range: a positive multiple of 4.
    pub size: u64,
}

impl Hash {
    /// Hashes `bytes` with BLAKE3.
    pub fn digest(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Function {
    /// True if the function has no symbols, so that every run launches the same workgroups.
    pub fn is_static(&self) -> bool {
        self.symbols.is_empty()
    }
}

impl ArtifactKind {
    /// Name of the API that runs shaders of this kind. Returns `None` for data.
    pub fn api_name(self) -> Option<&'static str> {
        match self {
            ArtifactKind::Spirv => Some("Vulkan"),
            ArtifactKind::Wgsl => Some("WebGPU"),
            ArtifactKind::Msl => Some("Metal"),
            ArtifactKind::Hlsl => Some("DirectX 12"),
            ArtifactKind::Data => None,
        }
    }
}

impl Manifest {
    /// Returns the language of the variant's shaders, or SPIR-V if the variant has no pipelines.
    pub fn language(&self, variant: &Variant) -> ArtifactKind {
        let first = variant.pipelines.first().and_then(|pipeline| usize::try_from(pipeline.artifact).ok());
        let artifact = first.and_then(|index| self.artifacts.get(index));
        artifact.map_or(ArtifactKind::Spirv, |artifact| artifact.kind)
    }
}

impl Variant {
    /// True if the function is a specialization: it has the same name as the function before it.
    pub fn is_specialization(&self, index: usize) -> bool {
        let name = |index: usize| self.functions.get(index).map(|function| &function.name);
        index.checked_sub(1).is_some_and(|before| name(before) == name(index))
    }

    /// Returns the function to run for these symbol values if function `first` is requested. It is the last
    /// function of the same name whose bounds contain the values.
    pub fn select_specialization(&self, first: usize, symbols: &[i64]) -> usize {
        let contains = |function: &Function| {
            let values = function.symbols.iter().zip(symbols);
            values.into_iter().all(|(symbol, value)| (symbol.min..=symbol.max).contains(value))
        };
        let mut selected = first;
        for (index, function) in self.functions.iter().enumerate().skip(first + 1) {
            if !self.is_specialization(index) {
                break;
            }
            if contains(function) {
                selected = index;
            }
        }
        selected
    }
}

impl Port {
    /// Evaluates the shape of the port for the symbol values `symbols`.
    pub fn shape_at(&self, symbols: &[i64]) -> Result<Vec<i64>, ExprError> {
        self.shape.iter().map(|dim| dim.eval(symbols)).collect()
    }

    /// Returns the bytes that an array of this shape takes on the device, rounded up to a multiple of 4. Returns `None`
    /// if the size exceeds u64 or a dimension is negative.
    pub fn device_size(&self, shape: &[i64]) -> Option<u64> {
        element_count(shape)?.checked_mul(self.device_type.size())?.checked_next_multiple_of(4)
    }
}

/// Returns the number of elements of a shape, or `None` if the number exceeds u64 or a dimension is negative.
pub fn element_count(shape: &[i64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |count, dim| count.checked_mul(u64::try_from(*dim).ok()?))
}
