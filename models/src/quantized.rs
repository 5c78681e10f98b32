//! Checkpoints with quantized weights: GPTQ, AWQ and compressed-tensors.
//!
//! A quantization method stores several tensors instead of `name.weight`. They become an encoding of that weight, and their
//! bytes stay in the file. A layer is quantized if the checkpoint has such tensors for it, so no list of unquantized layers is
//! needed.
//!
//! Tensors of a weight `[N, K]` (outputs, inputs) with 4-bit values, 8 of them in a 32-bit word, and groups of g inputs:
//!
//! | method | quantized values | scales | zero points |
//! |---|---|---|---|
//! | gptq | `qweight [K/8, N]`, packed along K | `scales [K/g, N]` | `qzeros [K/g, N/8]`, packed along N, minus 1 in version 1 |
//! | awq | `qweight [K, N/8]`, interleaved along N | `scales [K/g, N]` | `qzeros [K/g, N/8]`, interleaved |
//! | compressed-tensors | `weight_packed [N, K/8]`, packed along K | `weight_scale [N, K/g]` | `weight_zero_point [N/8, K/g]`, packed along N |

use std::path::PathBuf;
use std::sync::Arc;

use driftc::error::{Error, Result};
use driftc::import::safetensors::Weights;
use driftc::ir::encoding::{Encoding, GroupQuantized, PackedValues, PackingOrder, Scales, ZeroPoints};
use driftc::ir::op::Constant;
use driftc::ir::tensor::DType;
use serde_json::{Map, Value};

use crate::weights::Tensors;

/// Quantization method of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Gptq {
        /// Number to add to stored zero points: 1 in version 1 of GPTQ, 0 in version 2.
        zero_offset: u8,
    },
    Awq,
    Compressed {
        /// True if the checkpoint stores no zero points; the middle of the value range is then the zero point.
        symmetric: bool,
    },
}

/// Hugging Face checkpoint with quantized weights.
#[derive(Debug)]
pub(crate) struct QuantizedWeights {
    folder: PathBuf,
    weights: Weights,
    method: Method,
    bits: usize,
    /// Number of inputs (columns of a weight) that share a scale. `None` if all inputs of an output share one scale.
    group: Option<usize>,
}

impl QuantizedWeights {
    /// Reads the settings in `quantization_config`.
    ///
    /// # Errors
    /// If the quantization method, or a setting of it, is not supported.
    pub(crate) fn open(folder: PathBuf, weights: Weights, config: &Value) -> Result<Self> {
        let read = Self::method(config).map_err(|reason| Error::Model {
            path: folder.join("config.json"),
            place: "quantization_config".into(),
            reason,
            help: "use a GPTQ, AWQ (gemm) or compressed-tensors (pack-quantized) checkpoint, or an unquantized one".into(),
        });
        let (method, bits, group) = read?;
        Ok(Self { folder, weights, method, bits, group })
    }

    fn method(config: &Value) -> Result<(Method, usize, Option<usize>), String> {
        let fields = config.as_object().ok_or("the quantization settings are not a JSON object")?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let method = match fields.get("quant_method") {
            None | Some(Value::Null) => "gptq",
            Some(method) => method.as_str().ok_or_else(|| format!("`quant_method` is {method}"))?,
        };
        match method {
            "gptq" => {
                let format = text("checkpoint_format").or(text("format")).unwrap_or("gptq");
                let zero_offset = match format {
                    "gptq" => 1,
                    "gptq_v2" => 0,
                    other => {
                        return Err(format!("GPTQ format `{other}` is not supported; use gptq or gptq_v2"));
                    }
                };
                if fields.get("is_marlin_format").and_then(Value::as_bool) == Some(true) {
                    return Err("GPTQ format `marlin` is not supported".into());
                }
                if fields.get("dynamic").and_then(Value::as_object).is_some_and(|d| !d.is_empty()) {
                    return Err(
                        "GPTQ settings that differ between modules (`dynamic`) are not supported".into()
                    );
                }
                Ok((Method::Gptq { zero_offset }, bits(fields, &["bits", "w_bit"])?, group(fields)?))
            }
            "awq" => {
                let version = text("version").unwrap_or("gemm");
                if version != "gemm" {
                    return Err(format!("AWQ version `{version}` is not supported; use gemm"));
                }
                if fields.get("zero_point").and_then(Value::as_bool) == Some(false) {
                    return Err("AWQ without zero points is not supported".into());
                }
                match bits(fields, &["bits", "w_bit"])? {
                    4 => Ok((Method::Awq, 4, group(fields)?)),
                    other => Err(format!("{other}-bit AWQ is not supported; use 4 bits")),
                }
            }
            "compressed-tensors" => {
                let format = text("format").unwrap_or("?");
                if format != "pack-quantized" {
                    return Err(format!(
                        "compressed-tensors format `{format}` is not supported; use pack-quantized"
                    ));
                }
                compressed(fields)
            }
            other => Err(format!("quantization method `{other}` is not supported")),
        }
    }

    fn error(&self, name: &str, reason: impl Into<String>) -> Error {
        Error::Model {
            path: self.folder.clone(),
            place: format!("tensor `{name}`"),
            reason: reason.into(),
            help: "check that config.json and the checkpoint belong together".into(),
        }
    }

    /// Returns the tensor `name`. Fails unless it has the given shape, and the type i32 (if `integers` is set) or a float type.
    fn checked_tensor(&self, name: &str, integers: bool, shape: [usize; 2]) -> Result<Constant> {
        let tensor = self.weights.get(name)?;
        if tensor.shape != shape {
            let group = self
                .group
                .map_or_else(|| "one group of all inputs".to_string(), |n| format!("groups of {n} inputs"));
            let reason = format!(
                "the tensor has shape {:?}, but {}-bit values in {group} need {shape:?}",
                tensor.shape, self.bits
            );
            return Err(self.error(name, reason));
        }
        let fits = if integers { tensor.dtype == DType::I32 } else { tensor.dtype.is_float() };
        match fits {
            true => Ok(tensor.clone()),
            false => {
                Err(self.error(name, format!("the tensor has the unexpected type {}", tensor.dtype.name())))
            }
        }
    }

    /// Returns the weight `[n, k]` of a quantized layer as a constant with an encoding.
    fn encoded(&self, layer: &str, n: usize, k: usize) -> Result<Constant> {
        let at = |part: &str| format!("{layer}.{part}");
        let bits = self.bits;
        let per_word = 32 / bits;
        let size = self.group.unwrap_or(k);
        if size == 0 || !k.is_multiple_of(size) && self.method == Method::Awq {
            return Err(self.error(layer, format!("groups of {size} do not divide {k} inputs of a weight")));
        }
        let groups = k.div_ceil(size);
        let values = |rows, columns, order| PackedValues { bits, rows, columns, order, signed: false };
        let by_group =
            |tensor: &Constant| Scales { dtype: tensor.dtype, bytes: tensor.bytes.clone(), strides: [1, n] };
        let (codes, bytes, scales, zeros) = match self.method {
            Method::Gptq { zero_offset } => {
                let packed = self.checked_tensor(&at("qweight"), true, [k.div_ceil(per_word), n])?;
                let scales = self.checked_tensor(&at("scales"), false, [groups, n])?;
                let zeros = self.checked_tensor(&at("qzeros"), true, [groups, n.div_ceil(per_word)])?;
                let pitch = n.div_ceil(per_word) * per_word;
                let zeros = ZeroPoints::Packed(
                    values(n, groups, PackingOrder::Columns(pitch)),
                    zeros.bytes,
                    zero_offset,
                );
                (values(n, k, PackingOrder::ColumnWords), packed.bytes, by_group(&scales), zeros)
            }
            Method::Awq => {
                let packed = self.checked_tensor(&at("qweight"), true, [k, n.div_ceil(per_word)])?;
                let scales = self.checked_tensor(&at("scales"), false, [groups, n])?;
                let zeros = self.checked_tensor(&at("qzeros"), true, [groups, n.div_ceil(per_word)])?;
                let zeros = ZeroPoints::Packed(values(n, groups, PackingOrder::Interleaved), zeros.bytes, 0);
                (values(n, k, PackingOrder::Interleaved), packed.bytes, by_group(&scales), zeros)
            }
            Method::Compressed { symmetric } => {
                let pitch = k.div_ceil(per_word) * per_word;
                let packed = self.checked_tensor(&at("weight_packed"), true, [n, k.div_ceil(per_word)])?;
                let scales = self.checked_tensor(&at("weight_scale"), false, [n, groups])?;
                let scales = Scales { dtype: scales.dtype, bytes: scales.bytes, strides: [groups, 1] };
                let zeros = if symmetric {
                    ZeroPoints::Constant(1 << (bits - 1))
                } else {
                    let zeros =
                        self.checked_tensor(&at("weight_zero_point"), true, [n.div_ceil(per_word), groups])?;
                    ZeroPoints::Packed(values(n, groups, PackingOrder::RowWords), zeros.bytes, 0)
                };
                (values(n, k, PackingOrder::Rows(pitch)), packed.bytes, scales, zeros)
            }
        };
        let index = match self.method {
            Method::Gptq { .. } => self.group_index(&at("g_idx"), k, size, groups)?,
            Method::Awq => None,
            Method::Compressed { .. } => self.group_index(&at("weight_g_idx"), k, size, groups)?,
        };
        let groups = GroupQuantized {
            values: codes,
            group_size: size,
            group_index: index,
            scales,
            zero_points: zeros,
        };
        Constant::encoded(vec![n, k], Encoding::GroupQuantized(Arc::new(groups)), bytes)
            .map_err(|e| self.error(layer, e.0))
    }

    /// Reads the index tensor with the group of each input. Returns `None` if the tensor is missing, or if every input `i` is
    /// in group `i / size`.
    fn group_index(&self, name: &str, k: usize, size: usize, groups: usize) -> Result<Option<Vec<u32>>> {
        if !self.weights.has(name) {
            return Ok(None);
        }
        let array = self.weights.get(name)?.to_array().map_err(|e| self.error(name, e.0))?;
        let numbers = array.ints().map_err(|e| self.error(name, e.0))?;
        let index: Option<Vec<u32>> =
            numbers.iter().map(|g| u32::try_from(*g).ok().filter(|g| (*g as usize) < groups)).collect();
        let index = index.filter(|index| index.len() == k);
        let index = index.ok_or_else(|| {
            self.error(
                name,
                format!("the tensor must hold the index of a group, below {groups}, for each of {k} inputs"),
            )
        })?;
        let in_order = index.iter().enumerate().all(|(i, g)| *g as usize == i / size);
        Ok((!in_order).then_some(index))
    }
}

impl Tensors for QuantizedWeights {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        let packed_name = match self.method {
            Method::Gptq { .. } | Method::Awq => "qweight",
            Method::Compressed { .. } => "weight_packed",
        };
        match (name.strip_suffix(".weight"), shape) {
            (Some(layer), [n, k]) if self.weights.has(&format!("{layer}.{packed_name}")) => {
                self.encoded(layer, *n, *k)
            }
            _ => self.weights.shaped(name, shape),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.weights.has(name)
    }
}

fn bits(fields: &Map<String, Value>, names: &[&str]) -> Result<usize, String> {
    let found = names.iter().find_map(|name| fields.get_key_value(*name));
    let Some((name, value)) = found else {
        return Err("the number of bits of the quantized weights is missing".into());
    };
    match value.as_u64() {
        Some(2) => Ok(2),
        Some(4) => Ok(4),
        Some(8) => Ok(8),
        Some(bits) => Err(format!("{bits}-bit weights are not supported; use 2, 4 or 8 bits")),
        None => Err(format!("`{name}` is {value}; the number of bits must be 2, 4 or 8")),
    }
}

/// Reads the group size (inputs that share a scale). Returns `None` if all inputs of an output are one group.
fn group(fields: &Map<String, Value>) -> Result<Option<usize>, String> {
    let value = fields.get("group_size").or_else(|| fields.get("q_group_size"));
    match value.and_then(Value::as_i64) {
        Some(-1) => Ok(None),
        Some(size) if size > 0 => Ok(usize::try_from(size).ok()),
        _ => Err(match value {
            Some(value) => format!("`group_size` is {value}"),
            None => "`group_size` is missing".into(),
        }),
    }
}

/// Reads the quantization scheme of a compressed-tensors configuration. All its `config_groups` (groups of layers) must have
/// equal schemes.
fn compressed(fields: &Map<String, Value>) -> Result<(Method, usize, Option<usize>), String> {
    let present = |fields: &Map<String, Value>, name: &str| fields.get(name).is_some_and(|v| !v.is_null());
    if present(fields, "kv_cache_scheme") {
        return Err("a quantized KV cache (`kv_cache_scheme`) is not supported".into());
    }
    let groups =
        fields.get("config_groups").and_then(Value::as_object).ok_or("`config_groups` is missing")?;
    let mut found = None;
    for (name, group) in groups {
        let group =
            group.as_object().ok_or_else(|| format!("the group of layers `{name}` is not a JSON object"))?;
        if present(group, "input_activations") || present(group, "output_activations") {
            return Err(format!("quantized activations (group of layers `{name}`) are not supported"));
        }
        let weights = group.get("weights").and_then(Value::as_object);
        let weights =
            weights.ok_or_else(|| format!("the group of layers `{name}` has no field `weights`"))?;
        if weights.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "int") {
            return Err(format!("the group of layers `{name}` has weights that are not integers"));
        }
        let strategy = weights.get("strategy").and_then(Value::as_str).unwrap_or("group");
        let size = match strategy {
            "group" => self::group(weights)?,
            "channel" => None,
            other => {
                return Err(format!(
                    "strategy `{other}` of the group of layers `{name}` is not supported; use group or channel"
                ));
            }
        };
        let symmetric = weights.get("symmetric").and_then(Value::as_bool).unwrap_or(true);
        let scheme = (Method::Compressed { symmetric }, bits(weights, &["num_bits"])?, size);
        if found.replace(scheme).is_some_and(|before| before != scheme) {
            return Err("groups of layers with different quantization schemes are not supported".into());
        }
    }
    found.ok_or_else(|| "`config_groups` is empty".into())
}
