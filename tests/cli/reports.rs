//! Tests of the reports that `driftc` prints: `estimate`, `bench`, `explain`, `diff`, `inspect` and its HTML page.

use std::path::Path;

use driftc::import::onnx::schema::{ModelProto, StringStringEntryProto};
use prost::Message;

use crate::fixture::{FOLDER, driftc, file, json, model, refused, target, text};

#[test]
fn a_model_is_estimated_for_several_targets() {
    let (add, bundle) = (file("add.onnx"), file("estimated.drift"));
    let estimate = |most: &str, targets: &[&str]| {
        let dim = format!("n=1..{most}");
        let args = ["estimate", &add, "--dim", &dim, "--json"];
        let done = driftc(&[&args[..], targets].concat());
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        json(&done)
    };
    let both = estimate("8", &["-t", "adreno-740", "-t", "nvidia-hopper"]);
    let [phone, server] = [&both[0], &both[1]];
    assert_eq!(
        (phone["target"].as_str(), server["target"].as_str()),
        (Some("adreno-740"), Some("nvidia-hopper"))
    );
    // Only one of these profiles was measured, and only measurements give a margin.
    assert_eq!((phone["measured"].as_bool(), server["measured"].as_bool()), (Some(false), Some(true)));
    assert!(phone["margin"].as_f64() > server["margin"].as_f64(), "{both}");
    let done = driftc(&["compile", &add, "--dim", "n=1..8", "-t", "adreno-740", "-o", &bundle]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(phone["bundle_bytes"].as_u64(), Some(std::fs::metadata(&bundle).unwrap().len()));
    let ns = |report: &serde_json::Value| report["functions"][0]["ns"].as_f64().unwrap();
    let most_expensive = phone["functions"][0]["most_expensive"].as_array().unwrap();
    assert!(ns(phone) > 0.0 && !most_expensive.is_empty(), "{both}");
    let listed: f64 = most_expensive.iter().map(|node| node["ns"].as_f64().unwrap()).sum();
    assert!(listed <= ns(phone) * 1.000_001);
    // A larger model takes longer.
    let large = estimate("1000000", &["-t", "adreno-740", "--nodes", "1"]);
    assert!(ns(&large[0]) > ns(phone), "{large}");
    assert_eq!(large[0]["functions"][0]["most_expensive"].as_array().map(Vec::len), Some(1));
    refused(&["estimate", &add, "-t", "no-such-device"], 2, "no-such-device");
}

/// Memory and bundle size in an estimate equal the figures of compiling, for every profile. Only profiles with measurements of
/// their own claim to be measured.
#[test]
fn estimates_equal_what_compiling_reports() {
    let listed = json(&driftc(&["targets", "list", "--json"]));
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    let targets: Vec<&str> = names.iter().flat_map(|name| ["-t", name]).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let models: [(&str, &[&str]); 2] = [
        ("tests/corpus/selfie_seg_like/model.onnx", &[]),
        ("tests/language/llama", &["--dim", "context=64", "--dim", "chunk=16"]),
    ];
    for (model, sizes) in models {
        let path = root.join(model);
        let model = path.to_str().unwrap();
        let done = driftc(&[&["estimate", model, "--json"], sizes, targets.as_slice()].concat());
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        let estimates = json(&done);
        for (name, estimate) in names.iter().zip(estimates.as_array().unwrap()) {
            let bundle = file("figures.drift");
            let done = driftc(&[&["compile", model, "-t", name, "-o", &bundle, "--json"], sizes].concat());
            assert_eq!(done.status.code(), Some(0), "{name}: {}", text(&done.stderr));
            let compiled = json(&done);
            assert_eq!(estimate["target"], *name);
            assert_eq!(estimate["bundle_bytes"], compiled["bytes"]["file"], "{model} for {name}");
            let target = &compiled["targets"][0];
            let memory = std::iter::once(&target["memory"])
                .chain(target["specialized"].as_array().unwrap().iter().map(|f| &f["memory"]));
            let functions = estimate["functions"].as_array().unwrap();
            assert!(functions.iter().map(|f| &f["memory"]).eq(memory), "{model} for {name}: {estimate}");
            assert!(functions[0]["memory"]["peak"].as_u64().unwrap() > 0, "{model} for {name}: {estimate}");
            let measured = root.join(format!("targets/costs/{name}.toml")).is_file();
            assert_eq!(estimate["measured"], measured, "{name}");
        }
    }
}

/// The metadata of an ONNX file, the labels beside it and the strings of a GGUF file travel in the bundle, and `inspect` prints
/// them.
#[test]
fn metadata_travels_in_the_bundle() {
    let folder = FOLDER.path().join("labeled");
    std::fs::create_dir_all(&folder).unwrap();
    let entry =
        |key: &str, value: &str| StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
    let mut model = ModelProto::decode(&model(&[("Add", &["a", "b"], "y")])[..]).unwrap();
    let long = "a\nb".repeat(100);
    model.metadata_props = vec![entry("zeta", "z"), entry("character", &long), entry("zeta", "again")];
    let path = folder.join("model.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    std::fs::write(folder.join("labels.txt"), "cat\ndog\n").unwrap();
    let gguf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/language/llama.gguf");
    let inspected = |model: &Path, sizes: &[&str]| {
        let (model, bundle) = (model.to_str().unwrap(), file("labeled.drift"));
        let done = driftc(&[&["compile", model, "-t", "lavapipe", "-o", &bundle], sizes].concat());
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        (json(&driftc(&["inspect", &bundle, "--json"])), text(&driftc(&["inspect", &bundle]).stdout))
    };
    let (report, shown) = inspected(&path, &["--dim", "n=2"]);
    let expected = serde_json::json!({"character": long, "labels": "cat\ndog", "zeta": "z"});
    assert_eq!(report["metadata"], expected);
    assert_eq!(report["provenance"]["notes"], serde_json::json!([]));
    for line in ["metadata    labels = cat dog\n", "metadata    zeta = z\n", "... (300 bytes)\n"] {
        assert!(shown.contains(line), "`{line}` in\n{shown}");
    }
    let (report, _) = inspected(&gguf, &["--dim", "context=16", "--dim", "chunk=8"]);
    assert_eq!(report["metadata"]["general.architecture"], "llama");
    assert!(report["metadata"]["general.alignment"].is_null(), "{report}");
}

#[test]
fn dispatches_are_held_against_their_floors() {
    let (bundle, trace) = (file("add.drift"), file("bench.json"));
    let done = driftc(&["bench", &bundle, "--repeat", "2", "--json", "--trace", &trace]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let report = json(&done);
    assert_eq!(report["profile"].as_str(), Some(target().as_str()));
    let dispatches = report["dispatches"].as_array().unwrap();
    assert!(dispatches.iter().all(|d| d["floor_ns"].as_f64().unwrap() > 0.0), "{report}");
    assert!(dispatches.iter().all(|d| d["bound"] == "memory"), "{report}");
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    assert_eq!(trace["traceEvents"].as_array().unwrap().len(), dispatches.len());
    let done = driftc(&["bench", &bundle, "--repeat", "1", "--profile", "vulkan-baseline"]);
    assert!(
        text(&done.stdout).contains("computed from the machine numbers of vulkan-baseline"),
        "{}",
        text(&done.stdout)
    );
    refused(&["bench", &bundle, "--repeat", "1", "--profile", "nothing"], 2, "no target is called");
    refused(&["bench", &bundle, "--repeat", "1", "--trace", "/no/such/folder/t.json"], 1, "/no/such/folder");
    refused(&["bench", &bundle, "--dim", "m=1"], 2, "no symbolic size `m`");
}

#[test]
fn explain_tells_layout_memory_and_dispatches() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/selfie_seg_like/model.onnx");
    let done = driftc(&["explain", model.to_str().unwrap(), "-t", "lavapipe", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let report = json(&done);
    let nodes = report["nodes"].as_array().unwrap();
    let conv = nodes.iter().find(|n| n["what"].as_str().unwrap().starts_with("conv")).unwrap();
    assert!(conv["layout"].as_str().unwrap().contains("blocked layout C4"), "{conv}");
    assert!(conv["candidates"].as_array().unwrap().len() > 1);
    assert_eq!(conv["result"]["in"], "arena");
    let (first, last) = (conv["result"]["first"].as_u64(), conv["result"]["last"].as_u64());
    assert!(first <= last && conv["dispatches"][0]["index"].as_u64() == first, "{conv}");
    // Every node but views has a candidate, a reason and a dispatch.
    for node in nodes {
        let candidates = node["candidates"].as_array().unwrap();
        let view = candidates.is_empty();
        assert!(candidates.iter().all(|c| !c["reason"].as_str().unwrap().is_empty()), "{node}");
        assert!(view || !node["dispatches"].as_array().unwrap().is_empty(), "{node}");
    }
    let shown = text(&driftc(&["explain", model.to_str().unwrap(), "-t", "lavapipe", "--all"]).stdout);
    for part in ["layout: ", "dispatch 0: ", "of the arena during dispatches", "result: output"] {
        assert!(shown.contains(part), "{part}");
    }
}

#[test]
fn two_bundles_are_compared() {
    let (add, bundle, other) = (file("add.onnx"), file("add.drift"), file("other.drift"));
    let same = driftc(&["diff", &bundle, &bundle]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    assert!(text(&same.stdout).starts_with("identical"));
    assert_eq!(json(&driftc(&["diff", &bundle, &bundle, "--json"]))["identical"], true);
    let args = ["compile", &add, "-o", &other, "--dim", "n=1..64", "--precision", "f16"];
    let done = driftc(&[&args[..], &["-t", &target(), "-t", "vulkan-baseline"]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let changed = driftc(&["diff", &bundle, &other]);
    assert_eq!(changed.status.code(), Some(0), "{}", text(&changed.stderr));
    let says = text(&changed.stdout);
    for part in ["only bundle b has variants for vulkan-baseline", "symbol n: 1..8 -> 1..64", "manifest: "] {
        assert!(says.contains(part), "{part} in\n{says}");
    }
    let report = json(&driftc(&["diff", &bundle, &other, "--json"]));
    assert_eq!(report["identical"], false);
    let flags = report["provenance"].as_array().unwrap().iter().find(|c| c["what"] == "flags").unwrap();
    assert!(flags["b"].as_str().unwrap().contains("f16"), "{flags}");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/selfie_seg_like/model.onnx");
    let (wide, narrow) = (file("wide.drift"), file("narrow.drift"));
    for (out, precision) in [(&wide, "f32"), (&narrow, "f16")] {
        let args = ["compile", model.to_str().unwrap(), "-t", "lavapipe", "--precision", precision];
        assert!(driftc(&[&args[..], &["-o", out]].concat()).status.success());
    }
    let report = json(&driftc(&["diff", &wide, &narrow, "--json"]));
    let variant = &report["variants"][0];
    let dispatches = variant["functions"][0]["dispatches"].as_array().unwrap();
    assert!(dispatches.iter().any(|d| d["kind"] == "changed"), "{report}");
    assert!(variant["weights"]["added_bytes"].as_u64() < variant["weights"]["removed_bytes"].as_u64());
    let features = variant["requirements"].as_array().unwrap().iter().find(|c| c["what"] == "features");
    assert!(features.unwrap()["b"].as_str().unwrap().contains("f16"), "{variant}");
    refused(&["diff", &bundle, "missing.drift"], 1, "missing.drift");
    refused(&["diff", &add, &bundle], 1, "add.onnx");
    refused(&["diff", &bundle], 2, "B.drift");
}

/// `inspect` and `estimate` state the bytes that a run of a language model reads with a full context: every weight matrix once,
/// one row of the embedding table, only the experts in use, and the KV cache.
#[test]
fn a_language_model_says_what_it_reads() {
    let reads = |name: &str| {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/language").join(name);
        let (model, bundle) = (model.to_str().unwrap(), file(&format!("reads-{name}.drift")));
        let sizes = ["--dim", "context=64", "--dim", "chunk=16"];
        let done = driftc(&[&["compile", model, "-t", "lavapipe", "-o", &bundle], &sizes[..]].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        let report = json(&driftc(&["inspect", &bundle, "--json"]));
        let functions = report["variants"][0]["functions"].as_array().unwrap().clone();
        let estimate = [&["estimate", model, "-t", "lavapipe", "--json"], &sizes[..]].concat();
        let estimated = json(&driftc(&estimate))[0]["functions"].as_array().unwrap().clone();
        assert!(functions.iter().zip(&estimated).all(|(a, b)| a["reads"] == b["reads"]), "{estimated:?}");
        ["decode", "verify"].map(|name| {
            let reads = &functions.iter().find(|f| f["name"] == name).unwrap()["reads"];
            [&reads["constants"], &reads["states"]].map(|bytes| bytes.as_u64().unwrap())
        })
    };
    let [decode, verify] = reads("llama");
    // Two layers of 2 heads of 12 elements, keys and values, in f32; the output head and the matrices of two layers.
    let keys = 2 * 2 * 64 * 2 * 12 * 4;
    // `decode` also reads the last token.
    assert_eq!((decode[1], verify[1]), (keys + 16, keys));
    let matrices = 4 * (128 * 32 + 2 * 32 * (48 + 24 + 24 + 48 + 3 * 48));
    assert!((matrices..matrices + 8192).contains(&decode[0]), "{decode:?}");
    // Two of five experts, and keys of a window of 12 tokens in one layer of two.
    let [decode, verify] = reads("qwen3-moe");
    assert!(verify[0] - decode[0] > 3 * 3 * 24 * 32 * 4, "{decode:?} {verify:?}");
    let [decode, _] = reads("gemma2");
    let keys = 2 * 2 * 16 * 4 * (64 + 12);
    assert!((keys..keys + 1024).contains(&decode[1]), "{decode:?}");
}

#[test]
fn a_bundle_becomes_one_page() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/selfie_seg_like/model.onnx");
    let (model, bundle) = (model.to_str().unwrap(), file("page.drift"));
    let done = driftc(&["compile", model, "-t", "lavapipe", "-t", "vulkan-baseline", "-o", &bundle]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let pages = ["page1.html", "page2.html"].map(|name| {
        let path = file(name);
        let done = driftc(&["inspect", &bundle, "--html", &path]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        std::fs::read_to_string(path).unwrap()
    });
    assert!(pages[0] == pages[1]);
    let page = &pages[0];
    for reference in ["http", "src=", "href=", "@import", "url("] {
        assert!(
            !page.contains(reference),
            "the HTML page must not load anything, but contains `{reference}`"
        );
    }
    assert_eq!(
        page.matches("<svg").count(),
        4,
        "the HTML page must have two SVG drawings for each of its two variants"
    );
    assert!(page.contains("<h2>Legend</h2>") && page.contains("dashed red line"));
    let report = json(&driftc(&["inspect", &bundle, "--json"]));
    for (i, variant) in report["variants"].as_array().unwrap().iter().enumerate() {
        let part = page.split("<h2>Variant").nth(i + 1).unwrap();
        let function = &variant["functions"][0];
        let rows = part.matches("<tr><td class=n>").count() as u64;
        assert_eq!(Some(rows), function["dispatches"].as_u64());
        // The sum that the live ranges give equals the planner's figure.
        let tensors = part.matches("<rect class=t").count();
        // The page names the interface and the requirements of the function.
        for port in ["inputs", "outputs"] {
            let name = function[port][0]["name"].as_str().unwrap();
            assert!(part.contains(&format!("<code>{name}</code>")), "{name} in the HTML page");
        }
        assert!(part.contains("<h3>Requirements</h3>") && part.contains("workgroup memory"));
        assert!(part.contains(&format!("{} intermediate tensors", tensors / 2)) && tensors > 0);
    }
    refused(&["inspect", &bundle, "--html", "/no/such/folder/page.html"], 1, "/no/such/folder");
    refused(&["inspect", &bundle, "--html", &file("page1.html"), "--json"], 2, "--json");
}

#[test]
fn commands_that_only_look_succeed() {
    let (add, bundle) = (file("add.onnx"), file("add.drift"));
    let emitted = FOLDER.path().join("emitted");
    let optimized = file("optimized.drift");
    for (args, says) in [
        (vec!["inspect", &bundle], "lower bound"),
        (vec!["inspect", &bundle, "--dispatches"], "map"),
        (vec!["explain", &add, "-t", "lavapipe"], "candidates"),
        (vec!["explain", &add, "-t", "lavapipe", "--all"], "->"),
        (vec!["explain", &add, "-t", "lavapipe", "--node", "node 0"], "node 0"),
        (vec!["check", &bundle], "fits"),
        (vec!["bench", &bundle, "--repeat", "2", "--dim", "n=3"], "GFLOP/s"),
        (vec!["dump", &add, "--stage", "import"], "input"),
        (vec!["dump", &add, "--stage", "passes"], "output"),
        (vec!["dump", &add, "--stage", "plan"], "memory"),
        (vec!["dump", &add, "--stage", "wgsl"], "@compute"),
        (vec!["targets", "list"], "vulkan-baseline"),
        (vec!["targets"], "vulkan-baseline"),
        (vec!["targets", "show", "nvidia-hopper"], "max_workgroup_memory"),
        (vec!["targets", "probe"], "source"),
        (vec!["targets", "probe", "--list"], "Vulkan"),
        (vec!["ops"], "GroupNormalization"),
        (vec!["completions", "bash"], "driftc"),
        (vec!["man"], ".TH"),
        (vec!["help", "compile"], "--precision"),
        (
            vec![
                "compile",
                &add,
                "-t",
                "lavapipe",
                "-o",
                &optimized,
                "--optimize",
                "--emit-dir",
                emitted.to_str().unwrap(),
            ],
            "dispatches",
        ),
    ] {
        let done = driftc(&args);
        assert_eq!(done.status.code(), Some(0), "{args:?}\n{}", text(&done.stderr));
        assert!(text(&done.stdout).contains(says), "{args:?}\n{}", text(&done.stdout));
    }
    assert!(std::fs::read_dir(emitted).unwrap().count() > 0);
    for args in [
        vec!["inspect", &bundle, "--json"],
        vec!["explain", &add, "-t", "lavapipe", "--json"],
        vec!["check", &bundle, "--json"],
        vec!["bench", &bundle, "--repeat", "1", "--json"],
        vec!["targets", "list", "--json"],
        vec!["targets", "show", "lavapipe", "--json"],
        vec!["ops", "--json"],
    ] {
        let done = driftc(&args);
        assert_eq!(done.status.code(), Some(0), "{args:?}\n{}", text(&done.stderr));
        json(&done);
    }
}
