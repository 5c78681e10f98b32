//! Decodes a manifest from bytes that may be hostile.
//!
//! The encoding is bincode 2's standard configuration; the writer uses the bincode crate. Reading this encoding takes
//! little code: integers of variable length, lists with a length prefix, fields in declaration order. This module
//! avoids serde because serde's code would be a fifth of a program that embeds the runtime. A test compares this
//! decoder with bincode. A length may not exceed the remaining bytes, and nothing recurses.
//!
//! The table of enum values at the end of this module states which minor version of the format added a value.

use crate::{
    ApiVersion, Artifact, ArtifactKind, Attachment, Binding, BindingKind, Chunk, DeviceHints, DeviceType,
    Dispatch, Expr, ExprOp, Features, Function, Hash, HostType, Image, ImageKind, Limits, Manifest,
    MatrixScope, MatrixShape, MatrixType, MemoryReport, Pipeline, Port, Provenance, Requirements, Slot,
    SlotKind, StateSlot, Symbol, Texture, Variant, WeightPlacement, WeightSlot,
};

/// Reason why the bytes of a manifest are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    End,
    Number,
    Utf8,
    Choice,
}

impl Fault {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Fault::End => "the manifest ends inside a value, or a length exceeds the remaining bytes",
            Fault::Number => "a number does not fit its field, or its encoding is not the shortest one",
            Fault::Utf8 => "a string is not UTF-8",
            Fault::Choice => "an enum, bool or option has an invalid value",
        }
    }
}

/// The remaining bytes, and the minor version of the format that the reader knows.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
    pub(super) known_minor: u16,
}

type Decoded<T> = Result<T, Fault>;

trait Decode: Sized {
    fn decode(reader: &mut Reader<'_>) -> Decoded<Self>;
}

pub(super) fn manifest(reader: &mut Reader<'_>) -> Decoded<Manifest> {
    Manifest::decode(reader)
}

impl Reader<'_> {
    #[inline(never)]
    fn byte(&mut self) -> Decoded<u8> {
        let (first, rest) = self.rest.split_first().ok_or(Fault::End)?;
        self.rest = rest;
        Ok(*first)
    }

    /// Reads an unsigned integer: one byte below 251, else the byte 251, 252 or 253 followed by 2, 4 or 8
    /// bytes.
    #[inline(never)]
    fn unsigned(&mut self) -> Decoded<u64> {
        let (length, least) = match self.byte()? {
            251 => (2, 251),
            252 => (4, 1 << 16),
            253 => (8, 1 << 32),
            small @ 0..251 => return Ok(small.into()),
            _ => return Err(Fault::Number),
        };
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Fault::End)?;
        self.rest = rest;
        let value = bytes.iter().rev().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
        if value < least { Err(Fault::Number) } else { Ok(value) }
    }

    /// Reads a length. It cannot exceed the remaining bytes, since every element takes at least one byte.
    #[inline(never)]
    fn length(&mut self) -> Decoded<usize> {
        let length = usize::try_from(self.unsigned()?).map_err(|_| Fault::End)?;
        if length > self.rest.len() { Err(Fault::End) } else { Ok(length) }
    }

    #[inline(never)]
    fn string(&mut self) -> Decoded<String> {
        let length = self.length()?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Fault::End)?;
        self.rest = rest;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Fault::Utf8)
    }

    fn narrow<T: TryFrom<u64>>(&mut self) -> Decoded<T> {
        T::try_from(self.unsigned()?).map_err(|_| Fault::Number)
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(reader: &mut Reader<'_>) -> Decoded<Vec<T>> {
        let length = reader.length()?;
        // An element may take more memory than encoded bytes, so capacity grows with the elements read.
        let mut list = Vec::with_capacity(length.min(64));
        for _ in 0..length {
            list.push(T::decode(reader)?);
        }
        Ok(list)
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(reader: &mut Reader<'_>) -> Decoded<Option<T>> {
        match reader.byte()? {
            0 => Ok(None),
            1 => T::decode(reader).map(Some),
            _ => Err(Fault::Choice),
        }
    }
}

impl<T: Decode, const N: usize> Decode for [T; N] {
    fn decode(reader: &mut Reader<'_>) -> Decoded<[T; N]> {
        let mut list = Vec::with_capacity(N);
        for _ in 0..N {
            list.push(T::decode(reader)?);
        }
        list.try_into().map_err(|_| Fault::End)
    }
}

impl Decode for (String, String) {
    fn decode(reader: &mut Reader<'_>) -> Decoded<(String, String)> {
        Ok((reader.string()?, reader.string()?))
    }
}

impl Decode for Hash {
    fn decode(reader: &mut Reader<'_>) -> Decoded<Hash> {
        let (hash, rest) = reader.rest.split_first_chunk::<32>().ok_or(Fault::End)?;
        reader.rest = rest;
        Ok(Hash(*hash))
    }
}

impl Decode for bool {
    fn decode(reader: &mut Reader<'_>) -> Decoded<bool> {
        match reader.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::Choice),
        }
    }
}

impl Decode for u64 {
    fn decode(reader: &mut Reader<'_>) -> Decoded<u64> {
        reader.unsigned()
    }
}

impl Decode for u32 {
    fn decode(reader: &mut Reader<'_>) -> Decoded<u32> {
        reader.narrow()
    }
}

impl Decode for u16 {
    fn decode(reader: &mut Reader<'_>) -> Decoded<u16> {
        reader.narrow()
    }
}

/// Signed integers use zigzag encoding: 0, -1, 1, -2, ... are stored as 0, 1, 2, 3, ...
impl Decode for i64 {
    fn decode(reader: &mut Reader<'_>) -> Decoded<i64> {
        let value = reader.unsigned()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }
}

impl Decode for String {
    fn decode(reader: &mut Reader<'_>) -> Decoded<String> {
        reader.string()
    }
}

/// Implements [`Decode`] for structs: fields in declaration order.
macro_rules! fields {
    ($($name:ident { $($field:ident),* $(,)? })*) => {
        $(impl Decode for $name {
            #[inline(never)]
            fn decode(reader: &mut Reader<'_>) -> Decoded<$name> {
                Ok($name { $($field: Decode::decode(reader)?),* })
            }
        })*
    };
}

/// Implements [`Decode`] for structs with one unnamed field.
macro_rules! wrapped {
    ($($name:ident)*) => {
        $(impl Decode for $name {
            fn decode(reader: &mut Reader<'_>) -> Decoded<$name> {
                Decode::decode(reader).map($name)
            }
        })*
    };
}

/// Implements [`Decode`] for enums: the variant's index in declaration order, then its payload. `since` states the minor
/// version of the format that added a value. Older readers do not know the value.
macro_rules! choices {
    ($($name:ident { $($number:literal $choice:ident $(($payload:ident))? $(since $minor:literal)?),* $(,)? })*) => {
        $(impl Decode for $name {
            #[inline(never)]
            fn decode(reader: &mut Reader<'_>) -> Decoded<$name> {
                match reader.unsigned()? {
                    $($($number if reader.known_minor < $minor => Err(Fault::Choice),)?
                    $number => Ok($name::$choice $(({ let $payload = Decode::decode(reader)?; $payload }))?),)*
                    _ => Err(Fault::Choice),
                }
            }
        })*
    };
}

fields! {
    Manifest { provenance, chunks, artifacts, attachments, variants }
    Provenance { compiler_version, flags, model_name, model_hash, notes }
    Chunk { hash, offset, size }
    Artifact { hash, offset, size, kind }
    Attachment { name, artifact }
    Variant { target, profile_hash, requirements, pipelines, weights, placements, states, functions }
    Pipeline { name, artifact, entry, bindings, required_subgroup_size, workgroup_size, workgroup_memory }
    WeightSlot { size }
    WeightPlacement { chunk, slot, offset }
    StateSlot { name, size }
    Function { name, symbols, inputs, outputs, slots, memory, dispatches }
    Symbol { name, min, max }
    Port { name, host_type, device_type, shape, slot, offset }
    Slot { kind, size }
    MemoryReport { peak, lower_bound, naive, strategy }
    Dispatch { pipeline, bindings, grid, params, params_offset, barrier_before, label, flops, bytes }
    Binding { slot, offset, size }
    Image { texture, extent, chunk }
    Texture { kind, element }
    Requirements { api_version, features, limits, subgroup_sizes, matrix_shapes, hints }
    ApiVersion { major, minor }
    Limits {
        max_storage_buffer_range, max_uniform_buffer_range, max_buffer_size, max_workgroup_invocations,
        max_workgroup_size, max_workgroup_memory, max_grid, max_storage_buffers, max_uniform_buffers,
        max_push_constants, storage_alignment, uniform_alignment, device_memory,
    }
    MatrixShape { m, n, k, a, b, c, result, scope, saturating }
    DeviceHints { vendor_ids, device_names, drivers }
}

wrapped! { Expr Features }

choices! {
    ArtifactKind { 0 Spirv, 1 Data, 2 Wgsl since 3, 3 Msl since 4, 4 Hlsl since 4 }
    BindingKind {
        0 StorageRead, 1 StorageReadWrite, 2 Uniform, 3 Texels(element) since 1, 4 ImageRead(texture) since 1,
        5 ImageWrite(texture) since 1,
    }
    ImageKind { 0 D2, 1 D2Array, 2 D3 }
    SlotKind {
        0 Weights(index), 1 Arena, 2 Input(index), 3 Output(index), 4 Params, 5 State(index),
        6 Image(image) since 1,
    }
    HostType {
        0 F32, 1 F16, 2 Bf16, 3 F64, 4 I8, 5 I16, 6 I32, 7 I64, 8 U8, 9 U16, 10 U32, 11 U64, 12 Bool,
    }
    DeviceType { 0 F32, 1 F16, 2 I32, 3 U32, 4 I8 since 6, 5 U8 since 6 }
    MatrixType {
        0 F16, 1 F32, 2 F64, 3 Bf16, 4 I8, 5 I16, 6 I32, 7 I64, 8 U8, 9 U16, 10 U32, 11 U64,
    }
    MatrixScope { 0 Subgroup, 1 Workgroup, 2 Device, 3 QueueFamily }
    ExprOp {
        0 Const(value), 1 Symbol(index), 2 Add, 3 Sub, 4 Mul, 5 FloorDiv, 6 CeilDiv, 7 Mod, 8 Min, 9 Max,
    }
}

#[cfg(test)]
mod tests {
    use super::{Decode, Fault, Reader};
    use crate::codec::VERSION_MINOR;
    use crate::{ExprOp, HostType, MatrixScope, MatrixType, SlotKind};

    fn decode_all<T: Decode>(bytes: &[u8]) -> Result<T, Fault> {
        let mut reader = Reader { rest: bytes, known_minor: VERSION_MINOR };
        let value = T::decode(&mut reader)?;
        if reader.rest.is_empty() { Ok(value) } else { Err(Fault::End) }
    }

    fn assert_round_trip<T: Decode + serde::Serialize + PartialEq + std::fmt::Debug>(values: &[T]) {
        for value in values {
            let bytes = bincode::serde::encode_to_vec(value, bincode::config::standard()).unwrap();
            assert_eq!(decode_all::<T>(&bytes).as_ref(), Ok(value), "{bytes:?}");
        }
    }

    #[test]
    fn decoder_matches_the_encoder() {
        let edges = [0, 1, 250, 251, 0xffff, 0x10000, 0xffff_ffff, 0x1_0000_0000, u64::MAX];
        assert_round_trip(&edges);
        assert_round_trip(&edges.map(|value| value as u32));
        assert_round_trip(&edges.map(u64::cast_signed));
        assert_round_trip(&edges.map(|value| value.cast_signed().wrapping_neg()));
        assert_round_trip(&[Some(7u32), None]);
        assert_round_trip(&[vec!["".to_owned(), "é".to_owned()], vec![]]);
        assert_round_trip(&[true, false]);
        assert_round_trip(&[HostType::F32, HostType::U64, HostType::Bool]);
        assert_round_trip(&[SlotKind::Weights(3), SlotKind::Arena, SlotKind::Params, SlotKind::State(1)]);
        assert_round_trip(&[MatrixType::Bf16, MatrixType::U64]);
        assert_round_trip(&[MatrixScope::QueueFamily]);
        assert_round_trip(&[ExprOp::Const(-300), ExprOp::Symbol(2), ExprOp::Max]);
    }

    #[test]
    fn invalid_bytes_are_rejected() {
        assert_eq!(decode_all::<u64>(&[]), Err(Fault::End));
        assert_eq!(decode_all::<u64>(&[251, 1]), Err(Fault::End));
        assert_eq!(decode_all::<u64>(&[251, 250, 0]), Err(Fault::Number));
        assert_eq!(decode_all::<u64>(&[254, 0]), Err(Fault::Number));
        assert_eq!(decode_all::<u32>(&[253, 0, 0, 0, 0, 1, 0, 0, 0]), Err(Fault::Number));
        assert_eq!(decode_all::<String>(&[2, 0xc3, 0x28]), Err(Fault::Utf8));
        assert_eq!(decode_all::<Vec<u64>>(&[3, 0, 0]), Err(Fault::End));
        assert_eq!(decode_all::<bool>(&[2]), Err(Fault::Choice));
        assert_eq!(decode_all::<Option<u32>>(&[2, 0]), Err(Fault::Choice));
        assert_eq!(decode_all::<HostType>(&[13]), Err(Fault::Choice));
    }
}
