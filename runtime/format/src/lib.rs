//! The contents of a bundle as plain structs; the only definition, used by the compiler and by the runtime. They are a crate
//! of their own without features, so that the compiler is built once for whatever backends the runtime has beside it.
//!
//! A [`Manifest`] holds everything but the raw bytes of weights and shaders, which it points at by offset and
//! hash. [`codec`] turns it into bytes and back; `FORMAT.md` specifies those bytes. No type here is
//! recursive, and no element of a list encodes to zero bytes, so that decoding hostile input is bounded.
//! The field order of every struct and the variant order of every enum are part of the format.

pub mod codec;
pub mod device;
pub mod error;
mod expr;
mod image;
mod needs;
pub mod order;
mod requirements;
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

/// A BLAKE3 hash. It is written as 32 bytes, or as hexadecimal digits in formats made for people.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
pub struct Hash(pub [u8; 32]);

/// All of a bundle but the bytes of its chunks and artifacts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub provenance: Provenance,
    /// Weight data. Chunks are addressed by content and shared by all variants.
    pub chunks: Vec<Chunk>,
    /// Shaders and attached files.
    pub artifacts: Vec<Artifact>,
    /// Files that travel with the model, such as a tokenizer; the runtime only hands them out.
    pub attachments: Vec<Attachment>,
    /// One per target, in the order of preference.
    pub variants: Vec<Variant>,
}

/// Where a bundle came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    pub compiler_version: String,
    /// The options that changed the output, as given on the command line.
    pub flags: Vec<String>,
    pub model_name: String,
    pub model_hash: Hash,
    /// Anything else worth keeping, as (key, value), sorted by key.
    pub notes: Vec<(String, String)>,
}

/// A range of the file that holds packed weights. Its offset is a multiple of 256.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub hash: Hash,
    pub offset: u64,
    pub size: u64,
}

/// A range of the file that holds a shader or an attachment. Its offset is a multiple of 16.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    pub hash: Hash,
    pub offset: u64,
    pub size: u64,
    pub kind: ArtifactKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ArtifactKind {
    /// A SPIR-V module, little-endian words.
    #[default]
    Spirv,
    /// The bytes of an attachment.
    Data,
    /// A WGSL module, UTF-8.
    Wgsl,
    /// A module in the Metal shading language, UTF-8.
    Msl,
    /// An HLSL module, UTF-8.
    Hlsl,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// A relative name such as `tokenizer.json`; unique.
    pub name: String,
    /// Index into [`Manifest::artifacts`], of kind [`ArtifactKind::Data`].
    pub artifact: u32,
}

/// The model compiled for one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// The profile's name.
    pub target: String,
    pub profile_hash: Hash,
    pub requirements: Requirements,
    pub pipelines: Vec<Pipeline>,
    /// Buffers that hold weights, filled once at load, shared by all functions.
    pub weights: Vec<WeightSlot>,
    pub placements: Vec<WeightPlacement>,
    /// Buffers that keep their contents between runs and are shared by all functions; zero after load.
    pub states: Vec<StateSlot>,
    pub functions: Vec<Function>,
}

/// One compute pipeline. All bindings are in descriptor set 0, binding number = index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// What a person would call the kernel; for reports only.
    pub name: String,
    /// Index into [`Manifest::artifacts`], a shader, in the same language as the variant's others.
    pub artifact: u32,
    pub entry: String,
    pub bindings: Vec<BindingKind>,
    pub required_subgroup_size: Option<u32>,
    pub workgroup_size: [u32; 3],
    /// Bytes of workgroup memory the shader declares.
    pub workgroup_memory: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindingKind {
    StorageRead,
    StorageReadWrite,
    Uniform,
    /// A range of a buffer, read as texels of four elements of this type.
    Texels(DeviceType),
    /// An image that is read without a sampler.
    ImageRead(Texture),
    ImageWrite(Texture),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightSlot {
    pub size: u64,
}

/// Puts a whole chunk at an offset of a weight slot. What no placement covers is zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightPlacement {
    pub chunk: u32,
    /// Index into [`Variant::weights`].
    pub slot: u32,
    /// A multiple of 4.
    pub offset: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateSlot {
    pub name: String,
    pub size: u64,
}

/// A named entry point: what it takes, what it gives, and the dispatches in between.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// `main`, `prefill`, `decode`, ... Functions that follow one of the same name are the same function for some of
    /// the sizes that it takes; they use its inputs and outputs.
    pub name: String,
    pub symbols: Vec<Symbol>,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub slots: Vec<Slot>,
    pub memory: MemoryReport,
    pub dispatches: Vec<Dispatch>,
}

/// A dimension that is known at run time only, with the bounds it was compiled for (both inclusive).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symbol {
    pub name: String,
    pub min: i64,
    pub max: i64,
}

/// An input or an output. On the device it is a row-major array of `device_type`, without gaps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    pub name: String,
    /// The type of the caller's array.
    pub host_type: HostType,
    /// The type in the slot; the runtime converts.
    pub device_type: DeviceType,
    /// A dimension that is a bare symbol binds it from the caller's array; others are checked.
    pub shape: Vec<Expr>,
    /// Index into [`Function::slots`], of kind `Input(i)` or `Output(i)` with i this port's index.
    pub slot: u32,
    /// A multiple of 4.
    pub offset: u64,
}

/// A buffer or an image that dispatches of a function can bind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    pub kind: SlotKind,
    pub size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotKind {
    /// Index into [`Variant::weights`]; read only.
    Weights(u32),
    /// Intermediate results. The n-th arena slots of all functions share memory; contents are lost between runs.
    Arena,
    /// The input port of this index; read only.
    Input(u32),
    /// The output port of this index.
    Output(u32),
    /// The words that [`Dispatch::params`] computes; read only. At most one per function.
    Params,
    /// Index into [`Variant::states`].
    State(u32),
    /// A texture; [`Variant::images`] says which slots share one.
    Image(Image),
}

/// What the memory planner achieved, in bytes; for reports only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    pub peak: u64,
    pub lower_bound: u64,
    /// The sum of all intermediate tensors.
    pub naive: u64,
    pub strategy: String,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Index into [`Variant::pipelines`].
    pub pipeline: u32,
    /// As many as the pipeline has, of fitting kinds.
    pub bindings: Vec<Binding>,
    /// Workgroups along x, y and z. A zero skips the launch.
    pub grid: [Expr; 3],
    /// 32-bit words (two's complement where negative) written to the params slot at `params_offset`.
    pub params: Vec<Expr>,
    /// Offset of `params` in the params slot, a multiple of 4; 0 where there are none.
    pub params_offset: u64,
    /// Whether everything written by earlier dispatches must be visible to this one.
    pub barrier_before: bool,
    /// The source node; for reports only.
    pub label: String,
    /// Floating-point operations (a multiply-add counts two); 0 = unknown.
    pub flops: Expr,
    /// Bytes read and written, at least; 0 = unknown.
    pub bytes: Expr,
}

/// A range of a slot, as a descriptor sees it; all of it where it is an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// Index into [`Function::slots`].
    pub slot: u32,
    /// A multiple of the alignment in [`Limits`].
    pub offset: u64,
    /// A multiple of 4, not 0.
    pub size: u64,
}

impl Hash {
    pub fn of(bytes: &[u8]) -> Hash {
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
    /// Whether every launch is the same in each run, so that no size depends on a symbol.
    pub fn is_static(&self) -> bool {
        self.symbols.is_empty()
    }
}

impl ArtifactKind {
    /// The interface that takes shaders of this kind.
    pub fn interface(self) -> Option<&'static str> {
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
    /// The language of a variant's shaders, which is one for all of them; that of Vulkan where it has none.
    pub fn language(&self, variant: &Variant) -> ArtifactKind {
        let first = variant.pipelines.first().and_then(|pipeline| usize::try_from(pipeline.artifact).ok());
        let artifact = first.and_then(|index| self.artifacts.get(index));
        artifact.map_or(ArtifactKind::Spirv, |artifact| artifact.kind)
    }
}

impl Variant {
    /// Whether a function serves some of the sizes of one before it.
    pub fn is_special(&self, index: usize) -> bool {
        let name = |index: usize| self.functions.get(index).map(|function| &function.name);
        index.checked_sub(1).is_some_and(|before| name(before) == name(index))
    }

    /// The function that runs for given symbol values where `first` is asked for: the last one of its name whose bounds
    /// hold them.
    pub fn specialized(&self, first: usize, symbols: &[i64]) -> usize {
        let holds = |function: &Function| {
            let values = function.symbols.iter().zip(symbols);
            values.into_iter().all(|(symbol, value)| (symbol.min..=symbol.max).contains(value))
        };
        let mut chosen = first;
        for (index, function) in self.functions.iter().enumerate().skip(first + 1) {
            if !self.is_special(index) {
                break;
            }
            if holds(function) {
                chosen = index;
            }
        }
        chosen
    }
}

impl Port {
    /// The shape for given symbol values.
    pub fn shape_at(&self, symbols: &[i64]) -> Result<Vec<i64>, ExprError> {
        self.shape.iter().map(|dim| dim.eval(symbols)).collect()
    }

    /// Bytes that an array of this shape takes on the device, rounded up to 4; none where it does not fit u64
    /// or a dimension is negative.
    pub fn device_size(&self, shape: &[i64]) -> Option<u64> {
        element_count(shape)?.checked_mul(self.device_type.size())?.checked_next_multiple_of(4)
    }
}

/// The number of elements of a shape; none where it does not fit or a dimension is negative.
pub fn element_count(shape: &[i64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |count, dim| count.checked_mul(u64::try_from(*dim).ok()?))
}
