//! Tests of the commands that report about a model: `inspect`, `check`, `bench` and the table of `explain`.

use std::path::{Path, PathBuf};

use driftc::import::onnx::schema::{ModelProto, StringStringEntryProto};
use prost::Message;
use serde_json::Value;

use crate::fixture::{FOLDER, driftc, file, json, model, refused, target, text};

/// Path of a file or folder of the tests, such as `language/llama`.
fn given(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name);
    path.to_str().unwrap().to_owned()
}

fn inspected(path: &str) -> Value {
    let done = driftc(&["inspect", path, "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    json(&done)
}

/// Runs a command that must succeed, and returns its standard output.
fn shown(args: &[&str]) -> String {
    let done = driftc(args);
    assert_eq!(done.status.code(), Some(0), "{args:?}\n{}", text(&done.stderr));
    text(&done.stdout)
}

/// Writes a model with two unknown operators, three known nodes, a producer and metadata.
fn unsupported() -> String {
    let nodes: &[(&str, &[&str], &str)] = &[
        ("MadeUp", &["a"], "y"),
        ("AlsoMadeUp", &["y"], "z"),
        ("Add", &["a", "b"], "s"),
        ("Neg", &["s"], "t"),
        ("Neg", &["a"], "u"),
    ];
    let mut proto = ModelProto::decode(model(nodes).as_slice()).unwrap();
    proto.producer_name = Some("exporter".to_owned());
    proto.producer_version = Some("2.1".to_owned());
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value.to_owned()),
    };
    proto.metadata_props = vec![entry("author", "somebody")];
    let path = FOLDER.path().join("unsupported-model.onnx");
    std::fs::write(&path, proto.encode_to_vec()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_model_that_is_refused_is_inspected() {
    let path = unsupported();
    let report = inspected(&path);
    assert_eq!(report["format"], "onnx");
    assert_eq!(report["imports"], false);
    assert_eq!(report["onnx"]["producer"], "exporter 2.1");
    assert_eq!(report["onnx"]["opsets"][0], serde_json::json!(["ai.onnx", 17]));
    assert_eq!(report["metadata"][0], serde_json::json!(["author", "somebody"]));
    assert_eq!(report["inputs"][0]["shape"], serde_json::json!(["n", "3"]));
    let operators = report["operators"].as_array().unwrap();
    let operator = |name: &str| operators.iter().find(|o| o["operator"] == name).unwrap();
    assert_eq!(
        (operator("Neg")["count"].as_u64(), operator("Neg")["supported"].as_bool()),
        (Some(2), Some(true))
    );
    // The importer does not reach the second unknown operator, because its operand is unknown.
    for name in ["MadeUp", "AlsoMadeUp"] {
        assert_eq!(operator(name)["supported"], false);
        assert!(operator(name)["reason"].as_str().unwrap().contains("not supported"), "{report}");
    }
    assert_eq!(report["refused"][0]["operator"], "MadeUp");
    let size = &report["open_sizes"][0];
    assert_eq!((size["name"].as_str(), size["inputs"].as_array().map(Vec::len)), (Some("n"), Some(2)));
    let page = shown(&["inspect", &path]);
    for part in [
        "opset        ai.onnx 17",
        "2 of them not supported",
        "import: no",
        "no: the operator is not supported",
    ] {
        assert!(page.contains(part), "`{part}` in\n{page}");
    }
    refused(&["inspect", &path, "--dispatches"], 2, "need a bundle");
    refused(&["inspect", "missing.onnx"], 1, "missing.onnx");
}

/// The options that `inspect` prints work: the model compiles with them.
#[test]
fn options_of_inspect_can_be_copied() {
    let add = file("add.onnx");
    let report = inspected(&add);
    assert_eq!(report["imports"], true);
    let options = &report["options"];
    let page = shown(&["inspect", &add]);
    for name in ["dim", "range"] {
        let option = options[name][0].as_str().unwrap();
        assert!(page.contains(option), "`{option}` in\n{page}");
        let words: Vec<&str> = option.split(' ').collect();
        shown(&[&["compile", &add, "-t", &target(), "-o", &file("copied.drift")], &words[..]].concat());
    }
    assert_eq!(options["like"], serde_json::json!(["--like a=a.npy", "--like b=b.npy"]));
}

#[test]
fn language_models_are_inspected() {
    let report = inspected(&given("language/llama"));
    let language = &report["language"];
    assert_eq!(
        (report["format"].as_str(), language["supported"].as_bool()),
        (Some("huggingface"), Some(true))
    );
    assert_eq!(language["architecture"], "LlamaForCausalLM");
    assert_eq!((language["layers"].as_u64(), language["vocabulary"].as_u64()), (Some(2), Some(128)));
    let functions = language["functions"].as_array().unwrap();
    assert!(functions.iter().any(|name| name == "decode"), "{report}");
    let dim = report["options"]["dim"][0].as_str().unwrap();
    assert!(dim.starts_with("--dim context="), "{dim}");
    // A packed 4-bit value counts as one parameter; scales, zero points and group indices do not count.
    let quantized = inspected(&given("language/llama-gptq"));
    assert_eq!(quantized["language"]["quantization"], "gptq, 4 bits, groups of 32");
    let attention = 2 * 64 * 64 + 2 * 32 * 64;
    assert_eq!(
        quantized["parameters"].as_u64(),
        Some(64 * 64 + attention + 3 * 96 * 64 + 3 * 64),
        "{quantized}"
    );
    let gguf = inspected(&given("language/llama-k.gguf"));
    assert_eq!(gguf["format"], "gguf");
    assert!(gguf["language"]["quantization"].as_str().unwrap().contains("_K in "), "{gguf}");
    assert!(gguf["metadata"].as_array().unwrap().iter().any(|e| e[0] == "general.architecture"), "{gguf}");
    let onnx = inspected(&given("language/grouped.onnx"));
    assert!(onnx["language"]["functions"].as_array().unwrap().iter().any(|name| name == "decode"), "{onnx}");
}

#[test]
fn a_language_model_that_is_refused_is_inspected() {
    let folder = FOLDER.path().join("unknown-architecture");
    std::fs::create_dir_all(&folder).unwrap();
    let source = PathBuf::from(given("language/llama"));
    std::fs::copy(source.join("model.safetensors"), folder.join("model.safetensors")).unwrap();
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let config = config.replace("LlamaForCausalLM", "StrangeForCausalLM");
    std::fs::write(folder.join("config.json"), config).unwrap();
    let report = inspected(folder.to_str().unwrap());
    assert_eq!(report["imports"], false);
    assert_eq!(report["language"]["supported"], false);
    assert_eq!(report["language"]["layers"].as_u64(), Some(2));
    assert!(report["parameters"].as_u64() > Some(0));
    let problem = report["problems"][0]["reason"].as_str().unwrap();
    assert!(problem.contains("StrangeForCausalLM"), "{problem}");
    // A tensor type that cannot be read: the number of an existing type is replaced.
    let mut bytes = std::fs::read(given("language/llama.gguf")).unwrap();
    let name = b"output_norm.weight";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    // After the name: the rank 1, one size of 8 bytes, and the type.
    bytes[at + 12] = 20;
    let path = file("strange.gguf");
    std::fs::write(&path, bytes).unwrap();
    let report = inspected(&path);
    assert_eq!(report["imports"], false);
    assert!(report["problems"].to_string().contains("IQ*"), "{report}");
    assert_eq!(report["language"]["layers"].as_u64(), Some(2));
}

#[test]
fn a_model_is_checked_without_a_bundle() {
    let add = file("add.onnx");
    let done = driftc(&["check", &add, "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let report = json(&done);
    assert!(report["fits"].is_string() && report["targets"][0]["dispatches"].as_u64() == Some(2), "{report}");
    assert!(shown(&["check", &add, "-t", &target()]).contains("the device can run it"));
    // A target of another API compiles, but this runtime cannot run it.
    let done = driftc(&["check", &add, "-t", "webgpu-baseline", "--json"]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    let other = &json(&done)["targets"][0];
    assert_eq!(other["compiles"], true);
    assert!(other["unmet"][0].as_str().unwrap().contains("compile the model for a Vulkan target"), "{other}");
    let done = driftc(&["check", &unsupported()]);
    let errors = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{errors}");
    assert!(text(&done.stdout).contains("MadeUp") && errors.contains("driftc ops"), "{errors}");
    refused(&["check", &file("add.drift"), "--dim", "n=1"], 2, "needs a model");
    refused(&["check", &add, "-t", "no-such-target"], 2, "no-such-target");
}

/// `check` computes the device memory without packing weights. Equal constants, such as biases of zeros, count once in the
/// bundle and several times in the check.
#[test]
fn a_check_agrees_with_the_bundle() {
    let (llama, bundle) = (given("language/llama"), file("checked.drift"));
    let sizes = ["--dim", "context=64", "--dim", "chunk=16", "--weights", "q8"];
    shown(&[&["compile", &llama, "-t", &target(), "-o", &bundle], &sizes[..]].concat());
    let checked = json(&driftc(&[&["check", &llama, "-t", &target(), "--json"], &sizes[..]].concat()));
    let inspected = inspected(&bundle);
    let memory = inspected["variants"][0]["device_memory"].as_u64().unwrap();
    let estimated = checked["targets"][0]["device_memory"].as_u64().unwrap();
    assert!((memory..memory + memory / 8).contains(&estimated), "{estimated} and {memory}");
}

#[test]
fn a_model_is_measured_with_sizes_that_are_named() {
    let (add, cache) = (file("add.onnx"), file("bench-cache"));
    let bench = |more: &[&str]| {
        let args = ["bench", &add, "--repeat", "1", "--json", "--cache-dir", &cache];
        let done = driftc(&[&args[..], more].concat());
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        (json(&done), text(&done.stderr))
    };
    let (report, notes) = bench(&[]);
    let size = &report["sizes"][0];
    assert_eq!((size["name"].as_str(), size["from"].as_str()), (Some("n"), Some("typical")));
    assert!(
        notes.contains(&format!("--dim n={}", size["value"])) && notes.contains("compiled in"),
        "{notes}"
    );
    assert!(bench(&[]).1.contains("compiled before"));
    let (report, _) = bench(&["--dim", "n=5"]);
    assert_eq!(report["sizes"], serde_json::json!([{"name": "n", "value": 5, "from": "--dim"}]));
    let (report, _) = bench(&["--dim", "n=2..6"]);
    assert_eq!(report["sizes"], serde_json::json!([{"name": "n", "value": 6, "from": "upper bound"}]));
    refused(&["bench", &file("add.drift"), "--like", "a=a.npy"], 2, "needs a model");
}

#[test]
fn a_language_model_is_measured_in_tokens() {
    let cache = file("bench-cache");
    let llama = given("language/llama");
    let args = ["bench", &llama, "--dim", "context=48", "--dim", "chunk=16", "--cache-dir", &cache];
    let more = ["--repeat", "2", "--prompt-tokens", "16,512", "--decode-tokens", "4", "--json"];
    let done = driftc(&[&args[..], &more].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("the context length is 48 tokens"), "{}", text(&done.stderr));
    let report = json(&done);
    let tests = report["tests"].as_array().unwrap();
    let names: Vec<&str> = tests.iter().map(|test| test["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["pp16", "pp47", "tg4"]);
    for test in tests {
        let samples: Vec<f64> =
            test["samples"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        let mean = test["tokens_per_s"].as_f64().unwrap();
        assert!(
            samples.len() == 2 && (samples.iter().sum::<f64>() / 2.0 - mean).abs() < mean * 1e-9,
            "{test}"
        );
    }
    let table =
        shown(&[&args[..], &["--repeat", "1", "--prompt-tokens", "8", "--decode-tokens", "2"]].concat());
    assert!(table.contains("tokens/s") && table.contains("pp8") && table.contains("tg2"), "{table}");
    // A function of the model is measured like that of any bundle.
    let function = shown(&[&args[..], &["--function", "decode", "--repeat", "1"]].concat());
    assert!(function.contains("GFLOP/s") && function.contains("past="), "{function}");
    refused(&[&args[..], &["--top", "3"]].concat(), 2, "--function decode");
}

#[test]
fn explain_lists_one_row_for_each_node() {
    let model = given("corpus/selfie_seg_like/model.onnx");
    let explain = ["explain", &model, "-t", "lavapipe"];
    let report = json(&driftc(&[&explain[..], &["--json"]].concat()));
    let nodes = report["nodes"].as_array().unwrap();
    let with_kernel: Vec<&Value> =
        nodes.iter().filter(|node| !node["candidates"].as_array().unwrap().is_empty()).collect();
    let table = shown(&explain);
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.contains(" %  ")).collect();
    assert_eq!(rows.len(), with_kernel.len(), "{table}");
    let cost = |node: &Value| node["candidates"][0]["cost_ns"].as_f64().unwrap();
    let most_expensive = with_kernel.iter().max_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap();
    assert!(rows[0].contains(most_expensive["node"].as_str().unwrap()), "{table}");
    let all = shown(&[&explain[..], &["--all"]].concat());
    assert!(all.lines().count() > 4 * table.lines().count());
    refused(&[&explain[..], &["--all", "--node", "x"]].concat(), 2, "--node");
}
