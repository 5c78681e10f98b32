//! Golden bundles: bundles that a version of driftc wrote, with stored inputs and expected outputs.
//!
//! `tests/golden_bundles/README.md` describes the folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use drift_runtime::codec::{VERSION_MAJOR, VERSION_MINOR};
use drift_runtime::{ArrayRef, Backend, Bundle, Options, Session};
use driftc::ir::array::{Array, Data};
use driftc::ir::tensor::DType;
use serde::{Deserialize, Serialize};

use crate::compare::{Tolerance, compare};
use crate::device::{dtype, host_type};

/// A golden bundle of one version of the format.
#[derive(Debug)]
pub struct Golden {
    /// Path of the bundle.
    pub bundle: PathBuf,
    /// Minor version of the format in the name of the folder.
    pub minor: u16,
    /// Data stored next to a golden bundle.
    pub facts: Facts,
}

/// Facts about a golden bundle, stored next to it as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Facts {
    /// Lowest minor version of the format that has everything that the bundle uses.
    pub needs_minor: u16,
    /// Public key of the signature, if the bundle is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Runs of functions, in the order in which one session runs them.
    pub runs: Vec<Run>,
}

/// Run of a function.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    /// Name of the function.
    pub function: String,
    /// Values of symbols that no input determines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub symbols: BTreeMap<String, i64>,
    /// Input arrays by name.
    pub inputs: BTreeMap<String, Tensor>,
    /// Expected output arrays by name.
    pub outputs: BTreeMap<String, Tensor>,
}

/// Stored array.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tensor {
    /// Name of the element type.
    pub dtype: String,
    /// Shape, outermost axis first.
    pub shape: Vec<usize>,
    /// Elements in row-major order.
    pub values: Values,
}

/// Elements of a stored array. JSON numbers with a decimal point are floats.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// Integers or bools.
    Int(Vec<i64>),
    /// Floats.
    Float(Vec<f32>),
}

impl Tensor {
    /// Stores an array.
    pub fn new(array: &Array) -> Self {
        let values = match &array.data {
            Data::Float(values) => Values::Float(values.clone()),
            Data::Int(values) => Values::Int(values.clone()),
        };
        Self { dtype: array.dtype.name().to_owned(), shape: array.shape.clone(), values }
    }

    /// Returns the stored array.
    ///
    /// # Errors
    /// If the element type is unknown.
    pub fn array(&self) -> Result<Array, String> {
        let dtype = DType::parse(&self.dtype).ok_or_else(|| format!("element type {}", self.dtype))?;
        Ok(match &self.values {
            Values::Int(values) => Array::int(dtype, &self.shape, values.clone()),
            Values::Float(values) => Array::float(dtype, &self.shape, values.clone()),
        })
    }
}

/// Returns the folder of all golden bundles. It has one folder for each version of the format.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden_bundles")
}

/// Reads the golden bundles of all versions of the format, oldest version first.
///
/// # Errors
/// If a file is missing or malformed.
pub fn read_all() -> Result<Vec<Golden>, String> {
    let mut goldens = Vec::new();
    for minor in 0..=VERSION_MINOR {
        let folder = root().join(format!("{VERSION_MAJOR}.{minor}"));
        if !folder.is_dir() {
            continue;
        }
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut bundles: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        bundles.retain(|path| path.extension().is_some_and(|ending| ending == "drift"));
        bundles.sort();
        for bundle in bundles {
            let path = bundle.with_extension("json");
            let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
            let facts = serde_json::from_slice(&fs::read(&path).map_err(|e| fail(&e))?);
            goldens.push(Golden { bundle, minor, facts: facts.map_err(|e| fail(&e))? });
        }
    }
    Ok(goldens)
}

impl Golden {
    /// Loads the bundle on the test device, runs its self-test and all stored runs, and compares the outputs. Returns the
    /// number of self-test vectors.
    ///
    /// # Errors
    /// If the bundle does not load or run, or an output differs.
    pub fn check(&self, backend: Backend) -> Result<usize, String> {
        let bundle = Bundle::open(&self.bundle).map_err(|e| e.to_string())?;
        bundle.verify().map_err(|e| e.to_string())?;
        let trusted_keys = self.facts.key.clone().map(|key| vec![key]);
        let options = Options { trusted_keys, backend, ..Options::default() };
        let mut session = Session::from_bundle(bundle, &options).map_err(|e| e.to_string())?;
        let vectors = session.self_test().map_err(|e| e.to_string())?;
        for (index, run) in self.facts.runs.iter().enumerate() {
            run.check(&mut session).map_err(|e| format!("run {index} of function {}: {e}", run.function))?;
        }
        Ok(vectors)
    }
}

impl Run {
    fn check(&self, session: &mut Session) -> Result<(), String> {
        for (name, value) in &self.symbols {
            session.set_symbol(&self.function, name, *value).map_err(|e| e.to_string())?;
        }
        for (name, tensor) in &self.inputs {
            let (array, bytes) = tensor.array().map(|array| (array.dtype, array.to_bytes()))?;
            let given = ArrayRef { dtype: host_type(array), shape: &tensor.shape, bytes: &bytes };
            session.write_input(&self.function, name, given).map_err(|e| e.to_string())?;
        }
        session.replay(&self.function).map_err(|e| e.to_string())?;
        for (name, tensor) in &self.outputs {
            let got = session.read_output(&self.function, name).map_err(|e| e.to_string())?;
            let got = Array::from_bytes(dtype(got.dtype), &got.shape, &got.bytes).map_err(|e| e.0)?;
            compare(name, &got, &tensor.array()?, Tolerance::F32)?;
        }
        Ok(())
    }
}
