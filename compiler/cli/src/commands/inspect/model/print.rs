//! Text output of `driftc inspect` for a model.

use std::io::Write;

use super::report::{LanguageReport, PortReport, Report};
use crate::failure::Result;
use crate::output::{Out, bytes};

/// Maximum number of refused nodes to print.
const MAX_REFUSED: usize = 30;
/// Maximum number of inputs to print for a symbolic dimension.
const MAX_READERS: usize = 3;

/// Prints a report.
pub(super) fn print(report: &Report, out: &mut Out) -> Result<()> {
    print_file(report, out)?;
    if let Some(language) = &report.language {
        print_language(language, report.onnx.is_none(), out)?;
    }
    for (kind, ports) in [("input", &report.inputs), ("output", &report.outputs)] {
        for (i, port) in ports.iter().enumerate() {
            writeln!(out, "{kind:<6} {i:<5} {}", signature(port))?;
        }
    }
    print_sizes(report, out)?;
    print_operators(report, out)?;
    print_import(report, out)
}

fn print_file(report: &Report, out: &mut Out) -> Result<()> {
    let format = match report.format {
        "onnx" => "ONNX model",
        "gguf" => "GGUF model",
        _ => "Hugging Face model",
    };
    let size = bytes(report.files.iter().filter_map(|file| file.bytes).sum());
    writeln!(out, "{}: {format}, {size} in {}", report.model, counted(report.files.len(), "file"))?;
    for file in report.files.iter().filter(|file| file.bytes.is_none()) {
        writeln!(out, "missing      {}", file.file)?;
    }
    if let Some(onnx) = &report.onnx {
        if !onnx.producer.is_empty() {
            writeln!(out, "producer     {}", onnx.producer)?;
        }
        let opsets: Vec<String> =
            onnx.opsets.iter().map(|(domain, version)| format!("{domain} {version}")).collect();
        writeln!(out, "opset        {} (IR version {})", opsets.join(", "), onnx.ir_version)?;
    }
    for (key, value) in &report.metadata {
        writeln!(out, "metadata     {key} = {}", value.escape_debug())?;
    }
    let (parameters, size) = (thousands(report.parameters), bytes(report.weight_bytes));
    writeln!(out, "parameters   {parameters} in {size}")?;
    for stored in &report.weights {
        let (tensors, size) = (counted(stored.tensors, "tensor"), bytes(stored.bytes));
        writeln!(out, "             {:<6} {tensors}, {size}", stored.element)?;
    }
    Ok(())
}

/// Prints the facts of a language model. `is_checkpoint` is true if the file says how its weights are quantized.
fn print_language(language: &LanguageReport, is_checkpoint: bool, out: &mut Out) -> Result<()> {
    let number = |value: Option<u64>| value.map(|n| n.to_string());
    let heads = match (language.heads, language.kv_heads) {
        (Some(heads), Some(kv)) => Some(format!("{heads}, {kv} for keys and values")),
        (heads, _) => number(heads),
    };
    let architecture = language.architecture.as_ref().map(|name| match language.supported {
        true => name.clone(),
        false => format!("{name}, not supported"),
    });
    let rows = [
        ("architecture", architecture),
        ("context", number(language.context_length).map(|n| format!("at most {n} tokens"))),
        ("layers", number(language.layers)),
        ("hidden size", number(language.hidden_size)),
        ("heads", heads),
        ("experts", number(language.experts)),
        ("vocabulary", number(language.vocabulary).map(|n| format!("{n} tokens"))),
        ("quantization", language.quantization.clone().or_else(|| is_checkpoint.then(|| "none".to_owned()))),
        ("tokenizer", Some(language.tokenizer.clone().unwrap_or_else(|| "none".to_owned()))),
        ("chat", Some(if language.chat_template { "template present" } else { "no template" }.to_owned())),
        ("functions", (!language.functions.is_empty()).then(|| language.functions.join(", "))),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            writeln!(out, "{name:<12} {value}")?;
        }
    }
    Ok(())
}

/// Name, type and shape of an input or output, such as `x: f32[batch, 3]`.
fn signature(port: &PortReport) -> String {
    match &port.shape {
        Some(shape) => format!("{}: {}[{}]", port.name, port.element, shape.join(", ")),
        None => format!("{}: {} of undeclared shape", port.name, port.element),
    }
}

fn print_sizes(report: &Report, out: &mut Out) -> Result<()> {
    let options = &report.options;
    let lines = [
        ("one size", &options.dim),
        ("a range", &options.range),
        ("from an array", &options.like),
        ("a constant", &options.constant),
    ];
    if lines.iter().all(|(_, list)| list.is_empty()) {
        return Ok(());
    }
    writeln!(out)?;
    if !report.open_sizes.is_empty() {
        let mut rows = vec![["open size", "counts", "assumed", "in"].map(str::to_owned).to_vec()];
        for size in &report.open_sizes {
            let bounds = format!("{}..{}", size.min, size.max);
            rows.push(vec![size.name.clone(), size.role.to_owned(), bounds, readers(&size.inputs)]);
        }
        out.table(&[false, false, false, false], &rows)?;
    }
    writeln!(out, "options to copy")?;
    for (name, list) in lines.iter().filter(|(_, list)| !list.is_empty()) {
        writeln!(out, "  {name:<14} {}", list.join(" "))?;
    }
    Ok(())
}

fn print_operators(report: &Report, out: &mut Out) -> Result<()> {
    let Some(onnx) = &report.onnx else { return Ok(()) };
    let unsupported = report.operators.iter().filter(|operator| !operator.supported).count();
    let (nodes, operators) = (counted(onnx.nodes, "node"), counted(report.operators.len(), "operator"));
    write!(out, "\n{nodes} with {operators}")?;
    if onnx.local_functions > 0 {
        write!(out, " and {}", counted(onnx.local_functions, "local function"))?;
    }
    match unsupported {
        0 => writeln!(out, ", all supported")?,
        n => writeln!(out, ", {n} of them not supported")?,
    }
    let mut rows = vec![["count", "operator", "opset", "supported"].map(str::to_owned).to_vec()];
    let (supported, others): (Vec<_>, Vec<_>) = report.operators.iter().partition(|o| o.supported);
    for operator in others.into_iter().chain(supported) {
        rows.push(vec![
            operator.count.to_string(),
            operator.operator.clone(),
            format!("{} {}", operator.domain, operator.opset),
            operator.reason.as_ref().map_or_else(|| "yes".to_owned(), |reason| format!("no: {reason}")),
        ]);
    }
    out.table(&[true, false, false, false], &rows)
}

fn print_import(report: &Report, out: &mut Out) -> Result<()> {
    writeln!(out)?;
    if report.imports {
        writeln!(out, "import: yes; `driftc check` shows whether the model compiles for this device")?;
    } else {
        writeln!(out, "import: no")?;
    }
    for problem in &report.problems {
        writeln!(out, "  {}", problem.reason)?;
        if let Some(help) = &problem.help {
            writeln!(out, "  help: {help}")?;
        }
    }
    for node in report.refused.iter().take(MAX_REFUSED) {
        let (name, operator, opset, types) = (&node.node, &node.operator, node.opset, &node.types);
        writeln!(out, "  node `{name}` ({operator}, opset {opset}, {types}): {}", node.reason)?;
    }
    if let Some(more) = report.refused.len().checked_sub(MAX_REFUSED).filter(|more| *more > 0) {
        writeln!(out, "  {more} more refused nodes; list them with --json")?;
    }
    let options = &report.options;
    match (options.required.is_empty(), options.refused_with_required) {
        (true, _) => {}
        (false, 0) => writeln!(out, "  the model imports with {}", options.required.join(" "))?,
        (false, left) => {
            let required = options.required.join(" ");
            writeln!(out, "  with {required}, {left} of these nodes remain refused")?;
        }
    }
    for note in &report.notes {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}

/// Names of the first inputs, and the number of further inputs.
fn readers(inputs: &[String]) -> String {
    let shown = inputs.iter().take(MAX_READERS).cloned().collect::<Vec<_>>().join(", ");
    match inputs.len().saturating_sub(MAX_READERS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Formats a number of things, such as `1 file` and `2 files`.
fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Formats a number with commas between groups of three digits.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn numbers_have_groups_of_three_digits() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
