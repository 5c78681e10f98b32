//! Structs of the report that `driftc inspect` prints for a model.

use driftc::error::Unsupported;
use driftc::import::listing::StoredType;
use driftc::import::onnx;
use serde::Serialize;

use crate::failure::Failure;

/// Contents of a model file or folder, and the options that it needs.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) model: String,
    /// `onnx`, `gguf` or `huggingface`.
    pub(super) format: &'static str,
    pub(super) files: Vec<FileReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) onnx: Option<OnnxReport>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) inputs: Vec<PortReport>,
    pub(super) outputs: Vec<PortReport>,
    pub(super) open_sizes: Vec<SizeReport>,
    pub(super) options: OptionLines,
    pub(super) parameters: u64,
    pub(super) weight_bytes: u64,
    pub(super) weights: Vec<WeightReport>,
    pub(super) operators: Vec<OperatorReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) language: Option<LanguageReport>,
    /// True if driftc can import the model without further options.
    pub(super) imports: bool,
    /// Nodes that the importer refuses.
    pub(super) refused: Vec<RefusedReport>,
    /// Reasons other than refused nodes why the model cannot be imported.
    pub(super) problems: Vec<Problem>,
    /// Assumptions of the importer.
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct FileReport {
    pub(super) file: String,
    /// Number of bytes. `None` if the file is missing.
    pub(super) bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct OnnxReport {
    pub(super) ir_version: i64,
    pub(super) opsets: Vec<(String, i64)>,
    pub(super) producer: String,
    pub(super) nodes: usize,
    pub(super) local_functions: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct PortReport {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) element: String,
    /// Sizes as numbers or expressions of symbols. `None` if the model does not declare them.
    pub(super) shape: Option<Vec<String>>,
}

/// Symbolic dimension.
#[derive(Debug, Serialize)]
pub(super) struct SizeReport {
    pub(super) name: String,
    /// Quantity that the size counts. Empty if unknown.
    pub(super) role: &'static str,
    /// Lower bound that driftc assumes without options.
    pub(super) min: i64,
    /// Upper bound that driftc assumes without options.
    pub(super) max: i64,
    pub(super) inputs: Vec<String>,
}

/// Options to copy into a command line.
#[derive(Debug, Default, Serialize)]
pub(super) struct OptionLines {
    /// One size for each symbolic dimension.
    pub(super) dim: Vec<String>,
    /// Bounds for each symbolic dimension.
    pub(super) range: Vec<String>,
    /// A sample array for each input with symbolic dimensions.
    pub(super) like: Vec<String>,
    /// A constant for each input of one element.
    #[serde(rename = "const")]
    pub(super) constant: Vec<String>,
    /// Options that reduce the number of refused nodes. Each was tried.
    pub(super) required: Vec<String>,
    /// Number of refused nodes with the options of `required`.
    pub(super) refused_with_required: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct WeightReport {
    #[serde(rename = "type")]
    pub(super) element: String,
    pub(super) tensors: usize,
    pub(super) elements: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct OperatorReport {
    pub(super) operator: String,
    pub(super) domain: String,
    pub(super) opset: i64,
    pub(super) count: usize,
    pub(super) supported: bool,
    /// Reason why the operator is not supported.
    pub(super) reason: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct RefusedReport {
    pub(super) node: String,
    pub(super) operator: String,
    pub(super) opset: i64,
    /// Types and shapes of the operands.
    pub(super) types: String,
    pub(super) reason: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Problem {
    pub(super) reason: String,
    pub(super) help: Option<String>,
}

/// Facts about a language model. `None`: the model does not say.
#[derive(Debug, Default, Serialize)]
pub(super) struct LanguageReport {
    pub(super) architecture: Option<String>,
    pub(super) supported: bool,
    pub(super) context_length: Option<u64>,
    pub(super) layers: Option<u64>,
    pub(super) hidden_size: Option<u64>,
    pub(super) heads: Option<u64>,
    pub(super) kv_heads: Option<u64>,
    pub(super) experts: Option<u64>,
    pub(super) vocabulary: Option<u64>,
    pub(super) quantization: Option<String>,
    pub(super) tokenizer: Option<String>,
    pub(super) chat_template: bool,
    /// Functions of the bundle that the model becomes. Empty if the model cannot be imported.
    pub(super) functions: Vec<String>,
}

impl From<drift_models::summary::LanguageFacts> for LanguageReport {
    fn from(facts: drift_models::summary::LanguageFacts) -> Self {
        Self {
            architecture: facts.architecture,
            supported: facts.supported,
            context_length: facts.context_length,
            layers: facts.layers,
            hidden_size: facts.hidden_size,
            heads: facts.heads,
            kv_heads: facts.kv_heads,
            experts: facts.experts,
            vocabulary: facts.vocabulary,
            quantization: facts.quantization,
            tokenizer: facts.tokenizer,
            chat_template: facts.chat_template,
            functions: Vec::new(),
        }
    }
}

impl From<StoredType> for WeightReport {
    fn from(stored: StoredType) -> Self {
        let StoredType { element, tensors, elements, bytes } = stored;
        Self { element, tensors, elements, bytes }
    }
}

impl From<onnx::PortSummary> for PortReport {
    fn from(port: onnx::PortSummary) -> Self {
        Self { name: port.name, element: port.element, shape: port.shape }
    }
}

impl From<onnx::OperatorUse> for OperatorReport {
    fn from(operator: onnx::OperatorUse) -> Self {
        let onnx::OperatorUse { domain, name, opset, count, refusal } = operator;
        Self { operator: name, domain, opset, count, supported: refusal.is_none(), reason: refusal }
    }
}

impl From<Unsupported> for RefusedReport {
    fn from(node: Unsupported) -> Self {
        let Unsupported { node, operator, opset, types, reason, .. } = node;
        Self { node, operator, opset, types, reason }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self { reason: failure.lines().join("; "), help: failure.advice().map(str::to_owned) }
    }
}
