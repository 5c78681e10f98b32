//! GGUF files: metadata, and tensors as constants that borrow from the mapped file.
//!
//! ```text
//! "GGUF"  u32 version  u64 tensors  u64 entries
//! entries: string key, u32 type, value        (string: u64 length, bytes)
//! tensors: string name, u32 rank, u64 sizes (fastest first), u32 type, u64 offset into the data
//! padding up to the alignment, data
//! ```
//!
//! The file is not trusted. Counts are compared with the remaining bytes before memory is allocated, names must be
//! unique, and tensors must be aligned, inside the file, and must not overlap.

use std::collections::BTreeMap;
use std::path::Path;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::import::listing::ListedTensor;
use crate::import::safetensors::{hash, map};
use crate::ir::encoding::{BlockKind, Encoding};
use crate::ir::op::Constant;
use crate::ir::tensor::DType;

/// Maximum rank of a GGUF tensor.
const MAX_AXES: u32 = 4;
/// Maximum nesting of lists in GGUF metadata.
const MAX_DEPTH: usize = 4;
/// Alignment of tensor data in bytes if the metadata has no `general.alignment`.
const ALIGNMENT: u64 = 32;

/// Help text of every error about the contents of a GGUF file.
const HELP: &str = "download the file again, or convert the model to F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, \
                    Q8_0 or Q2_K to Q6_K";

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is named after a type of GGUF metadata values")]
pub enum Value {
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    /// Returns the value if it is an integer that is not negative, else `None`.
    pub fn as_unsigned(&self) -> Option<u64> {
        match self {
            Self::Unsigned(n) => Some(*n),
            Self::Int(n) => u64::try_from(*n).ok(),
            Self::Bool(_) | Self::Float(_) | Self::Text(_) | Self::List(_) => None,
        }
    }

    /// Returns a number.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(n) => Some(*n),
            Self::Unsigned(n) => Some(*n as f64),
            Self::Int(n) => Some(*n as f64),
            Self::Bool(_) | Self::Text(_) | Self::List(_) => None,
        }
    }

    /// Returns a bool.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Returns a string.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }
}

/// A parsed GGUF file.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// Metadata by key.
    pub metadata: BTreeMap<String, Value>,
    tensors: Tensors,
    bytes: Content,
}

/// Metadata and tensor list of a GGUF file, without the tensors' data.
#[derive(Debug, Clone)]
pub struct GgufListing {
    /// Metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// Tensors in file order.
    pub tensors: Vec<ListedTensor>,
}

impl Gguf {
    /// Returns true if a file starts with the GGUF magic.
    pub fn is_gguf(path: &Path) -> bool {
        let mut start = [0; 4];
        let read = std::fs::File::open(path).and_then(|mut f| std::io::Read::read_exact(&mut f, &mut start));
        read.is_ok() && &start == b"GGUF"
    }

    /// Maps and parses a GGUF file.
    ///
    /// # Errors
    /// Fails if the file is malformed, or contains a tensor of an unsupported type.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = map(path)?;
        let mut reader = Reader { bytes: &bytes, at: 0 };
        let file = reader.header().and_then(|header| {
            let tensors = reader.tensors(header.tensors, header.data, header.alignment)?;
            Ok((header.metadata, tensors))
        });
        let (metadata, tensors) = file.map_err(|fault| error(path, fault))?;
        Ok(Self { metadata, tensors, bytes })
    }

    /// Reads the metadata and the tensor list of a GGUF file. Unsupported tensor types are no error.
    ///
    /// # Errors
    /// Fails if the file cannot be read or its header is malformed.
    pub fn list(path: &Path) -> Result<GgufListing> {
        let bytes = map(path)?;
        let header = Reader { bytes: &bytes, at: 0 }.header().map_err(|fault| error(path, fault))?;
        let tensors = header.tensors.into_iter().map(|tensor| {
            let encoding = encoding_of_kind(tensor.kind);
            ListedTensor {
                element: type_name(tensor.kind).to_string(),
                bytes: encoding.as_ref().and_then(|e| byte_size(&tensor.shape, e)).map(|n| n as u64),
                supported: encoding.is_some(),
                name: tensor.name,
                shape: tensor.shape,
            }
        });
        Ok(GgufListing { metadata: header.metadata, tensors: tensors.collect() })
    }

    /// Returns the tensor of a name, or `None` if the file has no such tensor.
    pub fn get(&self, name: &str) -> Option<&Constant> {
        self.tensors.get(name)
    }

    /// Returns the names of all tensors of the file, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Returns the BLAKE3 hash of the file. Reads the whole file.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hash(&mut hasher, &self.bytes);
        *hasher.finalize().as_bytes()
    }
}

/// Metadata values of a GGUF file, by key.
type Metadata = BTreeMap<String, Value>;
/// Constants by name.
type Tensors = BTreeMap<String, Constant>;
/// Place and reason of an error in a GGUF file.
type Fault = (String, String);

fn error(path: &Path, (place, reason): Fault) -> Error {
    Error::Model { path: path.to_path_buf(), place, reason, help: HELP.into() }
}

/// Contents of a GGUF file before the tensor data.
struct Header {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Byte offset of the tensor data in the file.
    data: u64,
    alignment: u64,
}

struct Reader<'a> {
    bytes: &'a Content,
    at: usize,
}

/// Description of a tensor in a GGUF file, without the tensor's data.
struct TensorInfo {
    name: String,
    shape: Vec<usize>,
    /// Number of the tensor type.
    kind: u32,
    offset: u64,
}

impl Reader<'_> {
    fn header(&mut self) -> Result<Header, Fault> {
        let header = |reason: String| ("header".to_string(), reason);
        let magic: [u8; 4] = self.take().map_err(header)?;
        if &magic != b"GGUF" {
            return Err(header("the file does not start with the magic `GGUF`".into()));
        }
        match self.u32().map_err(header)? {
            2 | 3 => {}
            version if version.swap_bytes() <= 3 => {
                return Err(header("the file is big-endian; only little-endian files are supported".into()));
            }
            version => {
                return Err(header(format!("GGUF version {version} is not supported; versions 2 and 3 are")));
            }
        }
        let (tensors, entries) = (self.u64().map_err(header)?, self.u64().map_err(header)?);
        let mut metadata = BTreeMap::new();
        for i in 0..entries {
            let place = |reason| (format!("metadata entry {i}"), reason);
            let key = self.string().map_err(place)?;
            let kind = self.u32().map_err(place)?;
            let value = self.value(kind, 0).map_err(|reason| (format!("`{key}`"), reason))?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err((format!("`{key}`"), "it is defined twice".into()));
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => ALIGNMENT,
            Some(value) => {
                let power = value.as_unsigned().filter(|n| n.is_power_of_two() && (8..=1 << 20).contains(n));
                power.ok_or_else(|| {
                    (
                        "`general.alignment`".to_string(),
                        "the alignment is not a power of two from 8 to 2^20".to_string(),
                    )
                })?
            }
        };
        let mut listed = Vec::new();
        for i in 0..tensors {
            listed.push(self.tensor_info().map_err(|(name, reason)| match name {
                Some(name) => (format!("tensor `{name}`"), reason),
                None => (format!("tensor {i}"), reason),
            })?);
        }
        let data = (self.at as u64).next_multiple_of(alignment);
        Ok(Header { metadata, tensors: listed, data, alignment })
    }

    /// Returns the tensors as constants. The data of all tensors starts at byte offset `data` of the file.
    fn tensors(&self, mut listed: Vec<TensorInfo>, data: u64, alignment: u64) -> Result<Tensors, Fault> {
        listed.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
        let mut constants = BTreeMap::new();
        let mut next_free = 0;
        for TensorInfo { name, shape, kind, offset } in listed {
            let fail = |reason: String| (format!("tensor `{name}`"), reason);
            let encoding = encoding_of_kind(kind).ok_or_else(|| {
                fail(format!("the tensor type {} (number {kind}) is not supported", type_name(kind)))
            })?;
            if offset % alignment != 0 {
                return Err(fail(format!(
                    "the tensor's offset {offset} is not a multiple of the alignment {alignment}"
                )));
            }
            let size = byte_size(&shape, &encoding)
                .ok_or_else(|| fail(format!("the tensor's shape {shape:?} is too large")))?;
            if size > 0 && offset < next_free {
                return Err(fail("the tensor's data overlaps another tensor".into()));
            }
            let start = data.checked_add(offset).and_then(|n| usize::try_from(n).ok());
            let range = start.and_then(|start| Some(start..start.checked_add(size)?));
            let range = range.filter(|range| range.end <= self.bytes.len()).ok_or_else(|| {
                fail(format!(
                    "the tensor's {size} bytes at offset {offset} end after the end of the file, which has {} bytes",
                    self.bytes.len()
                ))
            })?;
            next_free = next_free.max(offset.saturating_add(size as u64));
            let bytes = self.bytes.slice(range);
            let constant = match encoding {
                Encoding::Plain(dtype) => Constant::new(dtype, shape, bytes),
                encoding => Constant::encoded(shape, encoding, bytes),
            };
            let constant = constant.map_err(|e| fail(e.0))?;
            if constants.insert(name.clone(), constant).is_some() {
                return Err((format!("tensor `{name}`"), "it is defined twice".into()));
            }
        }
        Ok(constants)
    }

    fn tensor_info(&mut self) -> Result<TensorInfo, (Option<String>, String)> {
        let name = self.string().map_err(|reason| (None, reason))?;
        let fail = |reason: String| (Some(name.clone()), reason);
        let axes = self.u32().map_err(fail)?;
        if axes > MAX_AXES {
            return Err(fail(format!("the tensor's rank is {axes}; at most {MAX_AXES} is supported")));
        }
        let mut shape = Vec::new();
        for _ in 0..axes {
            let size = self.u64().map_err(fail)?;
            let size = usize::try_from(size).ok().filter(|n| *n <= 1 << 40);
            shape.push(size.ok_or_else(|| fail("the tensor has a size larger than 2^40".into()))?);
        }
        shape.reverse();
        let kind = self.u32().map_err(fail)?;
        let offset = self.u64().map_err(fail)?;
        Ok(TensorInfo { name, shape, kind, offset })
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value, String> {
        Ok(match kind {
            0 => Value::Unsigned(self.take::<1>().map(|b| u64::from(u8::from_le_bytes(b)))?),
            1 => Value::Int(self.take().map(|b| i64::from(i8::from_le_bytes(b)))?),
            2 => Value::Unsigned(self.take().map(|b| u64::from(u16::from_le_bytes(b)))?),
            3 => Value::Int(self.take().map(|b| i64::from(i16::from_le_bytes(b)))?),
            4 => Value::Unsigned(self.u32()?.into()),
            5 => Value::Int(self.take().map(|b| i64::from(i32::from_le_bytes(b)))?),
            6 => Value::Float(self.take().map(|b| f64::from(f32::from_le_bytes(b)))?),
            7 => match self.take()? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => return Err(format!("the bool is stored as {other}; 0 or 1 is needed")),
            },
            8 => Value::Text(self.string()?),
            9 => {
                if depth >= MAX_DEPTH {
                    return Err(format!("lists are nested more than {MAX_DEPTH} deep"));
                }
                let (inner, count) = (self.u32()?, self.u64()?);
                let min_bytes = match inner {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    8 | 10..=12 => 8,
                    9 => 12,
                    _ => return Err(format!("the value is a list with the unknown element type {inner}")),
                };
                let left = self.bytes.len().saturating_sub(self.at) as u64;
                if count > left / min_bytes {
                    return Err(format!(
                        "the value is a list of {count} elements, but the file ends before the last one"
                    ));
                }
                let mut list = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
                for _ in 0..count {
                    list.push(self.value(inner, depth + 1)?);
                }
                Value::List(list)
            }
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Int(self.take().map(i64::from_le_bytes)?),
            12 => Value::Float(self.take().map(f64::from_le_bytes)?),
            other => return Err(format!("the value has the unknown type {other}")),
        })
    }

    fn string(&mut self) -> Result<String, String> {
        let length = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
        let bytes = self.at.checked_add(length).and_then(|end| self.bytes.get(self.at..end));
        let bytes =
            bytes.ok_or_else(|| format!("a string of {length} bytes ends after the end of the file"))?;
        self.at += length;
        // Some vocabularies contain tokens that are not valid UTF-8; the invalid bytes are replaced.
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let bytes = rest.first_chunk::<N>().ok_or("the file ends unexpectedly")?;
        self.at += N;
        Ok(*bytes)
    }
}

/// Returns the byte size of a GGUF tensor; `None` if the number overflows.
fn byte_size(shape: &[usize], encoding: &Encoding) -> Option<usize> {
    let elements = shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size))?;
    match encoding {
        Encoding::Plain(dtype) => elements.checked_mul(dtype.bytes()),
        Encoding::Blocks(kind) => elements.div_ceil(kind.elements()).checked_mul(kind.bytes()),
        Encoding::GroupQuantized(_) | Encoding::QuantizedOnRead(_) | Encoding::Stack(_) => None,
    }
}

/// Returns the encoding for the number of a GGUF tensor type; `None` if the type is not supported.
fn encoding_of_kind(kind: u32) -> Option<Encoding> {
    Some(match kind {
        0 => Encoding::Plain(DType::F32),
        1 => Encoding::Plain(DType::F16),
        2 => Encoding::Blocks(BlockKind::Q4_0),
        3 => Encoding::Blocks(BlockKind::Q4_1),
        6 => Encoding::Blocks(BlockKind::Q5_0),
        7 => Encoding::Blocks(BlockKind::Q5_1),
        8 => Encoding::Blocks(BlockKind::Q8_0),
        10 => Encoding::Blocks(BlockKind::Q2K),
        11 => Encoding::Blocks(BlockKind::Q3K),
        12 => Encoding::Blocks(BlockKind::Q4K),
        13 => Encoding::Blocks(BlockKind::Q5K),
        14 => Encoding::Blocks(BlockKind::Q6K),
        24 => Encoding::Plain(DType::I8),
        25 => Encoding::Plain(DType::I16),
        26 => Encoding::Plain(DType::I32),
        27 => Encoding::Plain(DType::I64),
        28 => Encoding::Plain(DType::F64),
        30 => Encoding::Plain(DType::Bf16),
        _ => return None,
    })
}

/// Returns the name of a GGUF tensor type.
fn type_name(kind: u32) -> &'static str {
    match kind {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        6 => "Q5_0",
        7 => "Q5_1",
        8 => "Q8_0",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        12 => "Q4_K",
        13 => "Q5_K",
        14 => "Q6_K",
        15 => "Q8_K",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        30 => "BF16",
        16..=23 | 29 => "IQ*",
        34 | 35 => "TQ*",
        39 => "MXFP4",
        40 => "NVFP4",
        _ => "unknown",
    }
}
