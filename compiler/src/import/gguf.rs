//! GGUF files: metadata, and tensors as constants that borrow from the mapped file.
//!
//! ```text
//! "GGUF"  u32 version  u64 tensors  u64 entries
//! entries: text key, u32 type, value        (text: u64 length, bytes)
//! tensors: text name, u32 axes, u64 sizes (fastest first), u32 type, u64 offset into the data
//! padding up to the alignment, data
//! ```
//!
//! Nothing in the file is trusted: counts are compared with the bytes that are left before anything is made of them,
//! names must be text and occur once, and tensors must be aligned, inside the file, and apart from each other.

use std::collections::BTreeMap;
use std::path::Path;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::import::safetensors::{hash, map};
use crate::ir::encoding::{BlockKind, Stored};
use crate::ir::op::Constant;
use crate::ir::tensor::DType;

/// Axes of a tensor.
const MAX_AXES: u32 = 4;
/// Lists within lists.
const MAX_DEPTH: usize = 4;
/// Alignment of tensors where the metadata says none.
const ALIGNMENT: u64 = 32;

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Value {
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    /// A number that is not negative.
    pub fn as_unsigned(&self) -> Option<u64> {
        match self {
            Self::Unsigned(n) => Some(*n),
            Self::Int(n) => u64::try_from(*n).ok(),
            Self::Bool(_) | Self::Float(_) | Self::Text(_) | Self::List(_) => None,
        }
    }

    /// A number.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(n) => Some(*n),
            Self::Unsigned(n) => Some(*n as f64),
            Self::Int(n) => Some(*n as f64),
            Self::Bool(_) | Self::Text(_) | Self::List(_) => None,
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }
}

/// A file that was read.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// What it says about the model.
    pub metadata: BTreeMap<String, Value>,
    tensors: Tensors,
    hash: [u8; 32],
}

impl Gguf {
    /// Whether a file begins as one.
    pub fn is_one(path: &Path) -> bool {
        let mut start = [0; 4];
        let read = std::fs::File::open(path).and_then(|mut f| std::io::Read::read_exact(&mut f, &mut start));
        read.is_ok() && &start == b"GGUF"
    }

    /// Opens a file.
    ///
    /// # Errors
    /// When it is malformed, or holds a tensor of a type that is not known.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = map(path)?;
        let fail = |(place, reason): Fault| {
            Error::Model {
            path: path.to_path_buf(),
            place,
            reason,
            help: "download the file again, or convert the model with types F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to Q6_K".into(),
        }
        };
        let (metadata, tensors) = Reader { bytes: &bytes, at: 0 }.file().map_err(fail)?;
        let mut hasher = blake3::Hasher::new();
        hash(&mut hasher, &bytes);
        Ok(Self { metadata, tensors, hash: *hasher.finalize().as_bytes() })
    }

    /// The tensor of a name.
    pub fn get(&self, name: &str) -> Option<&Constant> {
        self.tensors.get(name)
    }

    /// The names of all tensors in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Hash of the file.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }
}

/// Entries by key.
type Metadata = BTreeMap<String, Value>;
/// Constants by name.
type Tensors = BTreeMap<String, Constant>;
/// Place and reason.
type Fault = (String, String);

struct Reader<'a> {
    bytes: &'a Content,
    at: usize,
}

/// A tensor as the file lists it.
struct Listed {
    name: String,
    shape: Vec<usize>,
    stored: Stored,
    offset: u64,
}

impl Reader<'_> {
    fn file(mut self) -> Result<(Metadata, Tensors), Fault> {
        let header = |reason: String| ("header".to_string(), reason);
        let magic: [u8; 4] = self.take().map_err(header)?;
        if &magic != b"GGUF" {
            return Err(header("it does not begin with GGUF".into()));
        }
        match self.u32().map_err(header)? {
            2 | 3 => {}
            version if version.swap_bytes() <= 3 => {
                return Err(header("it is stored with the highest byte first".into()));
            }
            version => return Err(header(format!("version {version} is not supported; 2 and 3 are"))),
        }
        let (tensors, entries) = (self.u64().map_err(header)?, self.u64().map_err(header)?);
        let mut metadata = BTreeMap::new();
        for i in 0..entries {
            let place = |reason| (format!("entry {i} of the metadata"), reason);
            let key = self.text().map_err(place)?;
            let kind = self.u32().map_err(place)?;
            let value = self.value(kind, 0).map_err(|reason| (format!("`{key}`"), reason))?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err((format!("`{key}`"), "it occurs twice".into()));
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => ALIGNMENT,
            Some(value) => {
                let power = value.as_unsigned().filter(|n| n.is_power_of_two() && (8..=1 << 20).contains(n));
                power
                    .ok_or_else(|| ("`general.alignment`".to_string(), "it is no power of two".to_string()))?
            }
        };
        let mut listed = Vec::new();
        for i in 0..tensors {
            listed.push(self.listed().map_err(|(name, reason)| match name {
                Some(name) => (format!("tensor `{name}`"), reason),
                None => (format!("tensor {i}"), reason),
            })?);
        }
        let data = (self.at as u64).next_multiple_of(alignment);
        Ok((metadata, self.tensors(listed, data, alignment)?))
    }

    /// The constants of a list of tensors, whose data begin at a place.
    fn tensors(&self, mut listed: Vec<Listed>, data: u64, alignment: u64) -> Result<Tensors, Fault> {
        listed.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
        let mut constants = BTreeMap::new();
        let mut free = 0;
        for Listed { name, shape, stored, offset } in listed {
            let fail = |reason: String| (format!("tensor `{name}`"), reason);
            if offset % alignment != 0 {
                return Err(fail(format!("its offset {offset} is no multiple of {alignment}")));
            }
            let size = size(&shape, &stored).ok_or_else(|| fail(format!("{shape:?} is too large")))?;
            if size > 0 && offset < free {
                return Err(fail("it overlaps another one".into()));
            }
            let start = data.checked_add(offset).and_then(|n| usize::try_from(n).ok());
            let range = start.and_then(|start| Some(start..start.checked_add(size)?));
            let range = range.filter(|range| range.end <= self.bytes.len()).ok_or_else(|| {
                fail(format!(
                    "its {size} bytes at {offset} end beyond the file of {} bytes",
                    self.bytes.len()
                ))
            })?;
            free = free.max(offset.saturating_add(size as u64));
            let bytes = self.bytes.slice(range);
            let constant = match stored {
                Stored::Plain(dtype) => Constant::new(dtype, shape, bytes),
                stored => Constant::encoded(shape, stored, bytes),
            };
            let constant = constant.map_err(|e| fail(e.0))?;
            if constants.insert(name.clone(), constant).is_some() {
                return Err((format!("tensor `{name}`"), "it occurs twice".into()));
            }
        }
        Ok(constants)
    }

    fn listed(&mut self) -> Result<Listed, (Option<String>, String)> {
        let name = self.text().map_err(|reason| (None, reason))?;
        let fail = |reason: String| (Some(name.clone()), reason);
        let axes = self.u32().map_err(fail)?;
        if axes > MAX_AXES {
            return Err(fail(format!("it has {axes} axes; at most {MAX_AXES} are possible")));
        }
        let mut shape = Vec::new();
        for _ in 0..axes {
            let size = self.u64().map_err(fail)?;
            let size = usize::try_from(size).ok().filter(|n| *n <= 1 << 40);
            shape.push(size.ok_or_else(|| fail("a size of it is larger than 2^40".into()))?);
        }
        shape.reverse();
        let kind = self.u32().map_err(fail)?;
        let stored = stored(kind).ok_or_else(|| {
            fail(format!("its type is number {kind}, {}, which is not supported", type_name(kind)))
        })?;
        let offset = self.u64().map_err(fail)?;
        Ok(Listed { name, shape, stored, offset })
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
                [other] => return Err(format!("{other} is no truth value")),
            },
            8 => Value::Text(self.text()?),
            9 => {
                if depth >= MAX_DEPTH {
                    return Err(format!("it has lists within lists more than {MAX_DEPTH} deep"));
                }
                let (inner, count) = (self.u32()?, self.u64()?);
                let least = match inner {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    8 | 10..=12 => 8,
                    9 => 12,
                    _ => return Err(format!("it is a list of the unknown type {inner}")),
                };
                let left = self.bytes.len().saturating_sub(self.at) as u64;
                if count > left / least {
                    return Err(format!("it is a list of {count} values in a file that ends before"));
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
            other => return Err(format!("it has the unknown type {other}")),
        })
    }

    fn text(&mut self) -> Result<String, String> {
        let length = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
        let bytes = self.at.checked_add(length).and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| format!("a text of {length} bytes ends beyond the file"))?;
        self.at += length;
        // Vocabularies have had tokens that are no text, which nothing else can be made of.
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
        let bytes = rest.first_chunk::<N>().ok_or("the file ends too early")?;
        self.at += N;
        Ok(*bytes)
    }
}

/// Bytes of a tensor.
fn size(shape: &[usize], stored: &Stored) -> Option<usize> {
    let elements = shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size))?;
    match stored {
        Stored::Plain(dtype) => elements.checked_mul(dtype.bytes()),
        Stored::Blocks(kind) => elements.div_ceil(kind.elements()).checked_mul(kind.bytes()),
        Stored::Groups(_) | Stored::Rounded(_) | Stored::Stack(_) => None,
    }
}

/// How the elements of a type are stored.
fn stored(kind: u32) -> Option<Stored> {
    Some(match kind {
        0 => Stored::Plain(DType::F32),
        1 => Stored::Plain(DType::F16),
        2 => Stored::Blocks(BlockKind::Q4_0),
        3 => Stored::Blocks(BlockKind::Q4_1),
        6 => Stored::Blocks(BlockKind::Q5_0),
        7 => Stored::Blocks(BlockKind::Q5_1),
        8 => Stored::Blocks(BlockKind::Q8_0),
        10 => Stored::Blocks(BlockKind::Q2K),
        11 => Stored::Blocks(BlockKind::Q3K),
        12 => Stored::Blocks(BlockKind::Q4K),
        13 => Stored::Blocks(BlockKind::Q5K),
        14 => Stored::Blocks(BlockKind::Q6K),
        24 => Stored::Plain(DType::I8),
        25 => Stored::Plain(DType::I16),
        26 => Stored::Plain(DType::I32),
        27 => Stored::Plain(DType::I64),
        28 => Stored::Plain(DType::F64),
        30 => Stored::Plain(DType::Bf16),
        _ => return None,
    })
}

/// The name of a type that is not supported.
fn type_name(kind: u32) -> &'static str {
    match kind {
        9 => "Q8_1",
        15 => "Q8_K",
        16..=23 | 29 => "one of the IQ types",
        34 | 35 => "one of the TQ types",
        39 => "MXFP4",
        40 => "NVFP4",
        _ => "an unknown one",
    }
}
