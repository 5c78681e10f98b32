//! Checkpoints with quantised weights: GPTQ, AWQ and compressed-tensors.
//!
//! The tensors that a method has instead of `name.weight` are described as an encoding of that weight; their bytes stay
//! in the file. What a layer has follows from its tensors, so that layers that were left as they are need no list.
//!
//! | method | codes of `[N, K]` | scales | zero points |
//! |---|---|---|---|
//! | gptq | `qweight [K/8, N]`, words along K | `scales [K/g, N]` | `qzeros [K/g, N/8]`, words along N, one less in version 1 |
//! | awq | `qweight [K, N/8]`, interleaved along N | `scales [K/g, N]` | `qzeros [K/g, N/8]`, interleaved |
//! | compressed-tensors | `weight_packed [N, K/8]`, words along K | `weight_scale [N, K/g]` | `weight_zero_point [N/8, K/g]`, words along N |

use std::path::PathBuf;
use std::sync::Arc;

use driftc::error::{Error, Result};
use driftc::import::safetensors::Weights;
use driftc::ir::encoding::{CodeOrder, Codes, Groups, Scales, Stored, Zeros};
use driftc::ir::op::Constant;
use driftc::ir::tensor::DType;
use serde_json::{Map, Value};

use crate::weights::Tensors;

/// A way of storing weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// With what is added to stored zero points.
    Gptq {
        plus: u8,
    },
    Awq,
    /// With whether there are no zero points.
    Compressed {
        symmetric: bool,
    },
}

/// A checkpoint with quantised weights.
#[derive(Debug)]
pub(crate) struct Quantised {
    folder: PathBuf,
    weights: Weights,
    method: Method,
    bits: usize,
    /// Columns that share a scale; all of a row where there is none.
    group: Option<usize>,
}

impl Quantised {
    /// Reads what a configuration says about a checkpoint.
    ///
    /// # Errors
    /// A method, or a variant of one, that is not supported.
    pub(crate) fn open(folder: PathBuf, weights: Weights, config: &Value) -> Result<Self> {
        let read = Self::method(config).map_err(|reason| Error::Model {
            path: folder.join("config.json"),
            place: "quantization_config".into(),
            reason,
            help: "use a checkpoint by GPTQ, AWQ (gemm) or compressed-tensors (pack-quantized), or one that is not quantised".into(),
        });
        let (method, bits, group) = read?;
        Ok(Self { folder, weights, method, bits, group })
    }

    fn method(config: &Value) -> Result<(Method, usize, Option<usize>), String> {
        let fields = config.as_object().ok_or("it holds no fields")?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let method = match fields.get("quant_method") {
            None | Some(Value::Null) => "gptq",
            Some(method) => method.as_str().ok_or_else(|| format!("`quant_method` is {method}"))?,
        };
        match method {
            "gptq" => {
                let format = text("checkpoint_format").or(text("format")).unwrap_or("gptq");
                let plus = match format {
                    "gptq" => 1,
                    "gptq_v2" => 0,
                    other => {
                        return Err(format!(
                            "GPTQ's format `{other}` is not supported; gptq and gptq_v2 are"
                        ));
                    }
                };
                if fields.get("is_marlin_format").and_then(Value::as_bool) == Some(true) {
                    return Err("GPTQ's format `marlin` is not supported".into());
                }
                if fields.get("dynamic").and_then(Value::as_object).is_some_and(|d| !d.is_empty()) {
                    return Err("modules that differ from the others (`dynamic`) are not supported".into());
                }
                Ok((Method::Gptq { plus }, bits(fields, &["bits", "w_bit"])?, group(fields)?))
            }
            "awq" => {
                let version = text("version").unwrap_or("gemm");
                if version != "gemm" {
                    return Err(format!("AWQ's version `{version}` is not supported; gemm is"));
                }
                if fields.get("zero_point").and_then(Value::as_bool) == Some(false) {
                    return Err("AWQ without zero points is not supported".into());
                }
                match bits(fields, &["bits", "w_bit"])? {
                    4 => Ok((Method::Awq, 4, group(fields)?)),
                    other => Err(format!("AWQ with {other} bits is not supported; 4 are")),
                }
            }
            "compressed-tensors" => {
                let format = text("format").unwrap_or("?");
                if format != "pack-quantized" {
                    return Err(format!("the format `{format}` is not supported; pack-quantized is"));
                }
                compressed(fields)
            }
            other => Err(format!("the method `{other}` is not supported")),
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

    /// A tensor in a type and shape.
    fn part(&self, name: &str, integers: bool, shape: [usize; 2]) -> Result<Constant> {
        let tensor = self.weights.get(name)?;
        if tensor.shape != shape {
            let group = self.group.map_or_else(|| "one group".to_string(), |n| format!("groups of {n}"));
            let reason = format!(
                "it has shape {:?}; codes of {} bits in {group} of inputs need {shape:?}",
                tensor.shape, self.bits
            );
            return Err(self.error(name, reason));
        }
        let fits = if integers { tensor.dtype == DType::I32 } else { tensor.dtype.is_float() };
        match fits {
            true => Ok(tensor.clone()),
            false => Err(self.error(name, format!("it holds {}", tensor.dtype.name()))),
        }
    }

    /// The weight `[n, k]` of a layer that is quantised.
    fn encoded(&self, layer: &str, n: usize, k: usize) -> Result<Constant> {
        let at = |part: &str| format!("{layer}.{part}");
        let bits = self.bits;
        let per = 32 / bits;
        let size = self.group.unwrap_or(k);
        if size == 0 || !k.is_multiple_of(size) && self.method == Method::Awq {
            return Err(self.error(layer, format!("groups of {size} do not divide {k} inputs")));
        }
        let groups = k.div_ceil(size);
        let code = |rows, columns, order| Codes { bits, rows, columns, order, signed: false };
        let by_group =
            |tensor: &Constant| Scales { dtype: tensor.dtype, bytes: tensor.bytes.clone(), strides: [1, n] };
        let (codes, bytes, scales, zeros) = match self.method {
            Method::Gptq { plus } => {
                let words = self.part(&at("qweight"), true, [k.div_ceil(per), n])?;
                let scales = self.part(&at("scales"), false, [groups, n])?;
                let zeros = self.part(&at("qzeros"), true, [groups, n.div_ceil(per)])?;
                let pitch = n.div_ceil(per) * per;
                let zeros = Zeros::Codes(code(n, groups, CodeOrder::Columns(pitch)), zeros.bytes, plus);
                (code(n, k, CodeOrder::ColumnWords), words.bytes, by_group(&scales), zeros)
            }
            Method::Awq => {
                let words = self.part(&at("qweight"), true, [k, n.div_ceil(per)])?;
                let scales = self.part(&at("scales"), false, [groups, n])?;
                let zeros = self.part(&at("qzeros"), true, [groups, n.div_ceil(per)])?;
                let zeros = Zeros::Codes(code(n, groups, CodeOrder::Interleaved), zeros.bytes, 0);
                (code(n, k, CodeOrder::Interleaved), words.bytes, by_group(&scales), zeros)
            }
            Method::Compressed { symmetric } => {
                let pitch = k.div_ceil(per) * per;
                let words = self.part(&at("weight_packed"), true, [n, k.div_ceil(per)])?;
                let scales = self.part(&at("weight_scale"), false, [n, groups])?;
                let scales = Scales { dtype: scales.dtype, bytes: scales.bytes, strides: [groups, 1] };
                let zeros = if symmetric {
                    Zeros::Same(1 << (bits - 1))
                } else {
                    let zeros = self.part(&at("weight_zero_point"), true, [n.div_ceil(per), groups])?;
                    Zeros::Codes(code(n, groups, CodeOrder::RowWords), zeros.bytes, 0)
                };
                (code(n, k, CodeOrder::Rows(pitch)), words.bytes, scales, zeros)
            }
        };
        let index = match self.method {
            Method::Gptq { .. } => self.index(&at("g_idx"), k, size, groups)?,
            Method::Awq => None,
            Method::Compressed { .. } => self.index(&at("weight_g_idx"), k, size, groups)?,
        };
        let groups = Groups { codes, size, index, scales, zeros };
        Constant::encoded(vec![n, k], Stored::Groups(Arc::new(groups)), bytes)
            .map_err(|e| self.error(layer, e.0))
    }

    /// The group of each column, where that is not its number by the size.
    fn index(&self, name: &str, k: usize, size: usize, groups: usize) -> Result<Option<Vec<u32>>> {
        if !self.weights.has(name) {
            return Ok(None);
        }
        let array = self.weights.get(name)?.to_array().map_err(|e| self.error(name, e.0))?;
        let numbers = array.ints().map_err(|e| self.error(name, e.0))?;
        let index: Option<Vec<u32>> =
            numbers.iter().map(|g| u32::try_from(*g).ok().filter(|g| (*g as usize) < groups)).collect();
        let index = index.filter(|index| index.len() == k);
        let index = index.ok_or_else(|| {
            self.error(name, format!("it does not give one of {groups} groups to each of {k} inputs"))
        })?;
        let plain = index.iter().enumerate().all(|(i, g)| *g as usize == i / size);
        Ok((!plain).then_some(index))
    }
}

impl Tensors for Quantised {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        let codes = match self.method {
            Method::Gptq { .. } | Method::Awq => "qweight",
            Method::Compressed { .. } => "weight_packed",
        };
        match (name.strip_suffix(".weight"), shape) {
            (Some(layer), [n, k]) if self.weights.has(&format!("{layer}.{codes}")) => {
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
    let Some((name, value)) = found else { return Err("the number of bits is missing".into()) };
    match value.as_u64() {
        Some(2) => Ok(2),
        Some(4) => Ok(4),
        Some(8) => Ok(8),
        Some(bits) => Err(format!("weights of {bits} bits are not supported; 2, 4 and 8 are")),
        None => Err(format!("`{name}` is {value}; 2, 4 and 8 are supported")),
    }
}

/// The size of groups; none where a row is one group.
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

/// The one scheme of a configuration of compressed-tensors.
fn compressed(fields: &Map<String, Value>) -> Result<(Method, usize, Option<usize>), String> {
    let present = |fields: &Map<String, Value>, name: &str| fields.get(name).is_some_and(|v| !v.is_null());
    if present(fields, "kv_cache_scheme") {
        return Err("a quantised cache (`kv_cache_scheme`) is not supported".into());
    }
    let groups =
        fields.get("config_groups").and_then(Value::as_object).ok_or("`config_groups` is missing")?;
    let mut found = None;
    for (name, group) in groups {
        let group = group.as_object().ok_or_else(|| format!("`{name}` holds no fields"))?;
        if present(group, "input_activations") || present(group, "output_activations") {
            return Err(format!("quantised activations (`{name}`) are not supported"));
        }
        let weights = group.get("weights").and_then(Value::as_object);
        let weights = weights.ok_or_else(|| format!("`{name}` says nothing about weights"))?;
        if weights.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "int") {
            return Err(format!("`{name}` has weights that are no integers"));
        }
        let strategy = weights.get("strategy").and_then(Value::as_str).unwrap_or("group");
        let size = match strategy {
            "group" => self::group(weights)?,
            "channel" => None,
            other => {
                return Err(format!(
                    "the strategy `{other}` of `{name}` is not supported; group and channel are"
                ));
            }
        };
        let symmetric = weights.get("symmetric").and_then(Value::as_bool).unwrap_or(true);
        let scheme = (Method::Compressed { symmetric }, bits(weights, &["num_bits"])?, size);
        if found.replace(scheme).is_some_and(|before| before != scheme) {
            return Err("groups of layers with different schemes are not supported".into());
        }
    }
    found.ok_or_else(|| "`config_groups` is empty".into())
}
