//! The command line from outside: exit codes, messages, and that nothing panics, whatever it is given.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use driftc::import::onnx::schema::tensor_shape_proto::{Dimension, dimension};
use driftc::import::onnx::schema::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TypeProto, ValueInfoProto,
    type_proto,
};
use prost::Message;

/// A folder with `add.onnx` (y = a + b, `y:0` = -a, of shape `[n, 3]`), its bundle and some arrays.
static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("add.onnx"), model(&[("Add", &["a", "b"], "y"), ("Neg", &["a"], "y:0")])).unwrap();
    npy(&path("a.npy"), "<f4", "(2, 3)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    npy(&path("b.npy"), "<f4", "(2, 3)", &floats(&[10.0; 6]));
    npy(&path("y.npy"), "<f4", "(2, 3)", &floats(&[11.0, 12.0, 13.0, 14.0, 15.0, 16.0]));
    npy(&path("wrong.npy"), "<f4", "(2, 3)", &floats(&[11.0, 12.0, 13.5, 14.0, 15.0, 16.0]));
    npy(&path("ints.npy"), "<i4", "(2, 3)", &[0; 24]);
    npy(&path("narrow.npy"), "<f4", "(2, 2)", &[0; 16]);
    npy(&path("long.npy"), "<f4", "(9, 3)", &[0; 108]);
    // Fortran order, big-endian: the same array as a.npy.
    let big: Vec<u8> = [1f32, 4.0, 2.0, 5.0, 3.0, 6.0].iter().flat_map(|v| v.to_be_bytes()).collect();
    let header = "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }";
    std::fs::write(path("big.npy"), npy_bytes(header, &big)).unwrap();
    let add = path("add.onnx");
    let add = add.to_str().unwrap();
    let bundle = path("add.drift");
    let compiled =
        driftc(&["compile", add, "-t", &target(), "-o", bundle.to_str().unwrap(), "--dim", "n=1..8"]);
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    folder
});

#[test]
fn a_model_runs_by_name_and_by_position() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().to_str().unwrap();
    let bundle = file("add.drift");
    let done = driftc(&[
        "run",
        &bundle,
        "--input",
        &given("a", "a"),
        "--input",
        &given("b", "b"),
        "--output-dir",
        dir,
    ]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("y: f32[2, 3]"), "{}", text(&done.stdout));
    assert_eq!(read(&out.path().join("y.npy")), read(Path::new(&file("y.npy"))));
    assert_eq!(read(&out.path().join("y_0.npy")), [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
    let trace = out.path().join("trace.json");
    let (trace, first, second) = (trace.to_str().unwrap(), given("1", "b"), given("0", "big"));
    let args = ["run", &bundle, "--input", &first, "--input", &second, "--output-dir", dir, "--positional"];
    let done = driftc(&[&args[..], &["--repeat", "2", "--trace", trace, "--json"]].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(read(&out.path().join("output_0.npy")), read(Path::new(&file("y.npy"))));
    let report = json(&done);
    assert_eq!(report["outputs"][1]["name"], "y:0");
    assert_eq!(report["repeated"]["n"], 2);
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    assert_eq!(trace["traceEvents"][0]["ph"], "X");
}

#[test]
fn what_the_driver_compiled_is_kept_where_it_is_asked_for() {
    let out = tempfile::tempdir().unwrap();
    let (dir, kept) = (out.path().to_str().unwrap(), out.path().join("add.pipelines"));
    let (bundle, a, b) = (file("add.drift"), given("a", "a"), given("b", "b"));
    let cache = ["--pipeline-cache", kept.to_str().unwrap()];
    let args = ["run", &bundle, "--input", &a, "--input", &b, "--output-dir", dir];
    for expected in ["no file", "its own file", "a damaged file"] {
        if expected == "a damaged file" {
            std::fs::write(&kept, b"DRIFTPC1").unwrap();
        }
        let done = driftc(&[&args[..], &cache].concat());
        assert_eq!(done.status.code(), Some(0), "{expected}: {}", text(&done.stderr));
        assert!(std::fs::metadata(&kept).unwrap().len() > 8, "{expected}");
        assert_eq!(read(&out.path().join("y.npy")), read(Path::new(&file("y.npy"))));
    }
}

#[test]
fn a_wrong_request_has_exit_code_2() {
    let (add, bundle, y) = (file("add.onnx"), file("add.drift"), file("y.npy"));
    let (a, b) = (given("a", "a"), given("b", "b"));
    for (args, says) in [
        (
            vec!["compile", &add, "-t", "no-such-target", "-o", "x.drift"],
            "no target is called `no-such-target`",
        ),
        (vec!["compile", &add, "-o", "x.drift"], "--target"),
        (vec!["compile", &add, "-t", "lavapipe", "-t", "lavapipe", "-o", "x.drift"], "given twice"),
        (vec!["compile", &add, "-t", "lavapipe", "-o", "x.drift", "--dim", "n=3..1"], "holds nothing"),
        (vec!["compile", &add, "-t", "lavapipe", "-o", "x.drift", "--precision", "f8"], "f16"),
        (vec!["run", &bundle, "--input", &a, "--output-dir", "x"], "input `b` is missing"),
        (
            vec![
                "run",
                &bundle,
                "--input",
                &a,
                "--input",
                &b,
                "--input",
                &given("c", "a"),
                "--output-dir",
                "x",
            ],
            "no input `c`",
        ),
        (
            vec!["run", &bundle, "--input", &a, "--input", &given("0", "a"), "--output-dir", "x"],
            "given twice",
        ),
        (vec!["run", &bundle, "--input", "a", "--output-dir", "x"], "NAME=FILE.npy"),
        (
            vec!["run", &bundle, "--input", &a, "--input", &b, "--output-dir", "x", "--function", "decode"],
            "no function `decode`",
        ),
        (vec!["explain", &add, "-t", "lavapipe", "--node", "nope"], "no node is called `nope`"),
        (vec!["verify", &add, "-t", "lavapipe", "--expect", &format!("z={y}")], "no output `z`"),
        (vec!["frobnicate"], "frobnicate"),
        (vec![], "Usage"),
    ] {
        refused(&args, 2, says);
    }
}

#[test]
fn an_input_at_fault_has_exit_code_1() {
    let (bundle, a, b) = (file("add.drift"), given("a", "a"), given("b", "b"));
    let run = |input: &str| {
        ["run", &bundle, "--input", input, "--input", &b, "--output-dir", "x"].map(str::to_owned)
    };
    let garbage = file("garbage.npy");
    std::fs::write(&garbage, b"\x93NUMPY\x01\x00\xff\xff((((").unwrap();
    for (args, says) in [
        (run(&given("a", "ints")), "`a` takes f32, but the array given is i32"),
        (run(&given("a", "narrow")), "`a` takes shape [n in 1..=8, 3]"),
        (run(&given("a", "long")), "compiled for 1..=8"),
        (run("a=missing.npy"), "missing.npy"),
        (run(&format!("a={garbage}")), "not a usable .npy file"),
        (run(&format!("a={}", file("add.onnx"))), "not a usable .npy file"),
        (
            ["run", "missing.drift", "--input", &a, "--input", &b, "--output-dir", "x"].map(str::to_owned),
            "missing.drift",
        ),
        (
            ["run", &file("a.npy"), "--input", &a, "--input", &b, "--output-dir", "x"].map(str::to_owned),
            "not a drift bundle",
        ),
    ] {
        refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), 1, says);
    }
    for (args, says) in [
        (vec!["compile", "missing.onnx", "-t", "lavapipe", "-o", "x.drift"], "missing.onnx"),
        (vec!["compile", &bundle, "-t", "lavapipe", "-o", "x.drift"], "add.drift"),
        (vec!["compile", FOLDER.path().to_str().unwrap(), "-t", "lavapipe", "-o", "x.drift"], "config.json"),
        (vec!["compile", &file("add.onnx"), "-t", "missing.toml", "-o", "x.drift"], "missing.toml"),
        (
            vec!["compile", &file("add.onnx"), "-t", "lavapipe", "-o", "/no/such/folder/x.drift"],
            "/no/such/folder",
        ),
        (
            vec!["compile", &file("add.onnx"), "-t", "lavapipe", "-o", "x.drift", "--dim", "m=3"],
            "no symbolic size `m`",
        ),
    ] {
        refused(&args, 1, says);
    }
}

#[test]
fn unsupported_nodes_are_named_all_at_once() {
    let path = FOLDER.path().join("unsupported.onnx");
    std::fs::write(&path, model(&[("MadeUp", &["a"], "y"), ("AlsoMadeUp", &["b"], "z")])).unwrap();
    let output = driftc(&["compile", path.to_str().unwrap(), "-t", "lavapipe", "-o", "x.drift"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for part in ["MadeUp", "AlsoMadeUp", "`node 0`", "`node 1`", "opset 17", "driftc ops"] {
        assert!(errors.contains(part), "{part} in\n{errors}");
    }
}

#[test]
fn weights_are_quantised_when_asked_for() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/language/llama");
    let out = tempfile::tempdir().unwrap();
    let chunks = |weights: &[&str]| {
        let bundle = out.path().join("m.drift");
        let to = bundle.to_str().unwrap();
        let args = ["compile", folder, "-t", "lavapipe", "-o", to, "--dim", "seq=1..8", "--json"];
        let done = driftc(&[&args[..], weights].concat());
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        json(&done)["bytes"]["chunks"].as_u64().unwrap()
    };
    let [plain, half, bytes, mixed] =
        [&[][..], &["--weights", "f16"], &["--weights", "q8"], &["--weights", "q844"]].map(chunks);
    assert!(
        half * 10 < plain * 6 && bytes * 10 < half * 7 && mixed < bytes,
        "{plain}, {half}, {bytes}, {mixed}"
    );
    let explain = ["explain", folder, "-t", "lavapipe", "--dim", "seq=1..8", "--weights", "q8"];
    let told = text(&driftc(&explain).stdout);
    assert!(told.contains("matvec_codes") && told.contains("panels of 8-bit codes"), "{told}");
    let compile = |weights| ["compile", folder, "-t", "lavapipe", "-o", "/dev/null", "--weights", weights];
    refused(&compile("w4:33"), 2, "write `f16`, `q8`, `q844`");
    refused(&compile("w4:64"), 1, "groups of 64 do not divide the 32 inputs");
}

#[test]
fn a_damaged_bundle_is_refused() {
    let whole = std::fs::read(file("add.drift")).unwrap();
    let path = FOLDER.path().join("damaged.drift");
    let args = |command: &str| {
        let bundle = path.to_str().unwrap().to_owned();
        let mut args = vec![command.to_owned(), bundle];
        if command == "run" {
            args.extend(
                ["--input", &given("a", "a"), "--input", &given("b", "b"), "--output-dir", "x"]
                    .map(str::to_owned),
            );
        }
        args
    };
    let refuse = |command: &str| {
        let args = args(command);
        refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), 1, "bundle");
    };
    for length in [0, 1, 100, 128, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        refuse("run");
        refuse("inspect");
    }
    for step in 0..24 {
        let mut bytes = whole.clone();
        let at = step * (whole.len() - 1) / 23;
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        refuse(if step % 2 == 0 { "run" } else { "inspect" });
    }
}

#[test]
fn verify_agrees_and_finds_a_wrong_expectation() {
    let (add, a, b) = (file("add.onnx"), given("a", "a"), given("b", "b"));
    let verify = |expected: &str| {
        let expected = given("y", expected);
        let args =
            ["verify", &add, "-t", &target(), "--input", &a, "--input", &b, "--expect", &expected, "--json"];
        driftc(&args)
    };
    let right = verify("y");
    assert_eq!(right.status.code(), Some(0), "{}", text(&right.stderr));
    assert_eq!(json(&right)["equal"], true);
    let wrong = verify("wrong");
    assert_eq!(wrong.status.code(), Some(1), "{}", text(&wrong.stderr));
    let report = json(&wrong);
    assert_eq!(report["outputs"][0]["reference"]["wrong"], 0);
    assert_eq!(report["outputs"][0]["expected"]["worst"]["at"], serde_json::json!([0, 2]));
    let made_up = driftc(&["verify", &add, "-t", &target()]);
    assert_eq!(made_up.status.code(), Some(0), "{}", text(&made_up.stderr));
    assert!(text(&made_up.stdout).contains("verified"));
}

#[test]
fn the_same_model_gives_the_same_bytes() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/selfie_seg_like/model.onnx");
    let bundles = ["1", "2", "2"].map(|threads| {
        let bundle = FOLDER.path().join("same.drift");
        let (model, path) = (model.to_str().unwrap(), bundle.to_str().unwrap());
        let args =
            ["compile", model, "-t", "lavapipe", "-t", "vulkan-baseline", "-o", path, "--threads", threads];
        let done = driftc(&args);
        assert!(done.status.success(), "{}", text(&done.stderr));
        std::fs::read(bundle).unwrap()
    });
    assert!(bundles[0] == bundles[1] && bundles[1] == bundles[2]);
}

#[test]
fn measured_times_steer_compiling() {
    let (add, here) = (file("add.onnx"), target());
    let (db, tuned, plain) = (file("db.txt"), file("tuned.drift"), file("plain.drift"));
    let tune = ["tune", &add, "-t", &here, "-o", &db, "--dim", "n=1..8"];
    let first = driftc(&[&tune[..], &["--json"]].concat());
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let report = json(&first);
    assert_eq!((report["problems"].as_u64(), report["known"].as_u64()), (Some(2), Some(0)));
    let measured = report["measured"].as_u64().unwrap();
    assert!(measured >= 2);
    // A second run has nothing left to do and changes nothing.
    let before = std::fs::read_to_string(&db).unwrap();
    let again = json(&driftc(&[&tune[..], &["--json"]].concat()));
    assert_eq!((again["measured"].as_u64(), again["known"].as_u64()), (Some(0), Some(measured)));
    assert_eq!(std::fs::read_to_string(&db).unwrap(), before);
    // The last configuration of the first problem shall be the fastest by far, whatever was measured.
    let lines: Vec<&str> = before.lines().collect();
    let at = lines.iter().position(|l| l.starts_with("problem")).unwrap() + 1;
    let configurations = lines[at..].iter().take_while(|l| l.starts_with("  ")).count();
    let configuration = lines[at + configurations - 1].trim().split_once(' ').unwrap().1;
    let mut edited: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
    edited[at + configurations - 1] = format!("  1 {configuration}");
    std::fs::write(&db, edited.join("\n")).unwrap();
    let explain = ["explain", &add, "-t", &here, "--dim", "n=1..8", "--tuning", &db, "--json"];
    let explained = json(&driftc(&explain));
    let picks: Vec<&serde_json::Value> =
        explained["nodes"].as_array().unwrap().iter().map(|n| &n["candidates"][0]).collect();
    assert!(picks.iter().all(|p| p["reason"].as_str().unwrap().starts_with("measured")), "{explained}");
    assert!(picks.iter().any(|p| p["measured_ns"] == 1.0), "{explained}");
    let compile = |out: &str, more: &[&str]| {
        let args = ["compile", &add, "-t", &here, "--dim", "n=1..8", "-o", out];
        let done = driftc(&[&args[..], more].concat());
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        std::fs::read(out).unwrap()
    };
    let bytes = compile(&tuned, &["--tuning", &db]);
    assert!(bytes == compile(&tuned, &["--tuning", &db]), "a database makes no noise");
    assert!(bytes != compile(&plain, &[]));
    let notes = &json(&driftc(&["inspect", &tuned, "--json"]))["provenance"]["notes"][0];
    assert_eq!((notes[0].as_str(), notes[1].as_str().map(str::len)), (Some("tuning"), Some(64)));
    let (a, b) = (given("a", "a"), given("b", "b"));
    let verify = ["verify", &add, "-t", &here, "--tuning", &db, "--input", &a, "--input", &b];
    assert_eq!(driftc(&verify).status.code(), Some(0));
    // Times of another kernel source are stale: the estimates stand.
    let stale: Vec<String> = edited.iter().map(|l| l.replace('/', "/0")).collect();
    std::fs::write(&db, stale.join("\n")).unwrap();
    let explained = json(&driftc(&explain));
    assert!(explained["nodes"][0]["candidates"][0]["measured_ns"].is_null(), "{explained}");
    // Times of another device are not mixed with those of this one.
    let other: Vec<&str> =
        lines.iter().map(|l| if l.starts_with("device") { "device another" } else { *l }).collect();
    std::fs::write(&db, other[..at].join("\n")).unwrap();
    refused(&tune, 2, "on another");
    std::fs::write(&db, "rubbish").unwrap();
    refused(&tune, 1, "not a tuning database");
    refused(&explain, 1, "line 1");
    refused(&["tune", &add, "-t", &here, "-o", &file("no.txt"), "--nodes", "nope"], 2, "no node's name");
    refused(&["compile", &add, "-t", &here, "-o", "x.drift", "--tuning", "missing.txt"], 1, "missing.txt");
}

#[test]
fn calibrating_goes_on_where_it_stopped() {
    let (db, here) = (file("measured.txt"), target());
    let calibrate =
        ["calibrate", "-t", &here, "-o", &db, "--only", "softmax 0", "--candidates", "3", "--json"];
    let first = driftc(&calibrate);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let report = json(&first);
    // One graph in both precisions, which have problems in common where the device lacks f16.
    assert_eq!((report["graphs"].as_u64(), report["left"].as_u64()), (Some(2), Some(0)));
    let (measured, problems) = (report["measured"].as_u64().unwrap(), report["problems"].as_u64().unwrap());
    assert!(measured == problems * 3 && problems >= 1 && report["failed"] == 0, "{report}");
    let before = std::fs::read_to_string(&db).unwrap();
    assert_eq!(before.lines().filter(|line| line.starts_with("problem")).count() as u64, problems);
    let again = json(&driftc(&calibrate));
    assert_eq!((again["measured"].as_u64(), again["problems"].as_u64()), (Some(0), Some(problems)));
    assert_eq!(std::fs::read_to_string(&db).unwrap(), before);
    // Candidates that were left out are measured then, beside what is known.
    let more = [&calibrate[..6], &["softmax 0", "--candidates", "20", "--json"]].concat();
    let more = json(&driftc(&more));
    assert!(more["measured"].as_u64() > Some(0) && more["problems"].as_u64() == Some(problems), "{more}");
    let kept = std::fs::read_to_string(&db).unwrap();
    assert!(before.lines().filter(|line| line.starts_with("  ")).all(|line| kept.contains(line)));
    refused(&["calibrate", "-t", &here, "-o", &db, "--limit", "0"], 2, "positive");
    refused(
        &["calibrate", "-t", &here, "-o", "/no/such/folder/db.txt", "--only", "softmax 0"],
        1,
        "/no/such/folder",
    );
}

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
    // Only one of these profiles was measured, and only a measured margin follows from times.
    assert_eq!((phone["measured"].as_bool(), server["measured"].as_bool()), (Some(false), Some(true)));
    assert!(phone["margin"].as_f64() > server["margin"].as_f64(), "{both}");
    let done = driftc(&["compile", &add, "--dim", "n=1..8", "-t", "adreno-740", "-o", &bundle]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(phone["bundle_bytes"].as_u64(), Some(std::fs::metadata(&bundle).unwrap().len()));
    let ns = |report: &serde_json::Value| report["functions"][0]["ns"].as_f64().unwrap();
    let dearest = phone["functions"][0]["dearest"].as_array().unwrap();
    assert!(ns(phone) > 0.0 && !dearest.is_empty(), "{both}");
    assert!(dearest.iter().map(|node| node["ns"].as_f64().unwrap()).sum::<f64>() <= ns(phone) * 1.000_001);
    // What is larger takes longer.
    let large = estimate("1000000", &["-t", "adreno-740", "--nodes", "1"]);
    assert!(ns(&large[0]) > ns(phone), "{large}");
    assert_eq!(large[0]["functions"][0]["dearest"].as_array().map(Vec::len), Some(1));
    refused(&["estimate", &add, "-t", "no-such-device"], 2, "no-such-device");
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
    assert!(text(&done.stdout).contains("by the numbers of vulkan-baseline"), "{}", text(&done.stdout));
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
    // Every node that is no view has a candidate, a reason and a dispatch.
    for node in nodes {
        let candidates = node["candidates"].as_array().unwrap();
        let view = candidates.is_empty();
        assert!(candidates.iter().all(|c| !c["reason"].as_str().unwrap().is_empty()), "{node}");
        assert!(view || !node["dispatches"].as_array().unwrap().is_empty(), "{node}");
    }
    let shown = text(&driftc(&["explain", model.to_str().unwrap(), "-t", "lavapipe"]).stdout);
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
    for part in ["only b has variants for vulkan-baseline", "symbol n: 1..=8 -> 1..=64", "manifest: "] {
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

/// What a token costs in bytes: every matrix once, a row of the table, the experts in use, and what caches show of a full
/// context.
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
    // Two layers of 2 heads of 12, keys and values, in f32; the head and the matrices of two layers.
    let keys = 2 * 2 * 64 * 2 * 12 * 4;
    // `decode` reads the last token, too.
    assert_eq!((decode[1], verify[1]), (keys + 16, keys));
    let matrices = 4 * (128 * 32 + 2 * 32 * (48 + 24 + 24 + 48 + 3 * 48));
    assert!((matrices..matrices + 8192).contains(&decode[0]), "{decode:?}");
    // Two experts of five, and keys of a window of 12 in one layer of two.
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
        assert!(!page.contains(reference), "the page loads something: {reference}");
    }
    assert_eq!(page.matches("<svg").count(), 4, "two drawings for each of two variants");
    let report = json(&driftc(&["inspect", &bundle, "--json"]));
    for (i, variant) in report["variants"].as_array().unwrap().iter().enumerate() {
        let part = page.split("<h2>Variant").nth(i + 1).unwrap();
        let function = &variant["functions"][0];
        let rows = part.matches("<tr><td class=n>").count() as u64;
        assert_eq!(Some(rows), function["dispatches"].as_u64());
        // What was worked out from bindings adds up to what the planner said.
        let tensors = part.matches("<rect class=t").count();
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
        (vec!["explain", &add, "-t", "lavapipe"], "->"),
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

#[test]
fn shaders_for_browsers_are_written_as_the_bundle_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("m.onnx"), model(&[("ReduceMax", &["a"], "y")])).unwrap();
    let [onnx, drift, emitted] = ["m.onnx", "m.drift", "emitted"].map(path);
    let done = driftc(&["compile", &onnx, "-t", "webgpu-baseline", "-o", &drift, "--emit-dir", &emitted]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let texts: Vec<Vec<u8>> =
        std::fs::read_dir(emitted).unwrap().map(|f| std::fs::read(f.unwrap().path()).unwrap()).collect();
    let (bundle, bytes) =
        (drift_runtime::Bundle::open(Path::new(&drift)).unwrap(), std::fs::read(&drift).unwrap());
    let artifacts = &bundle.manifest().artifacts;
    assert_eq!(artifacts.len(), texts.len());
    for kept in artifacts.iter().map(|a| &bytes[a.offset as usize..(a.offset + a.size) as usize]) {
        assert!(texts.iter().any(|text| text == kept), "not written: {}", text(kept));
    }
    assert!(texts.iter().any(|t| text(t).contains("bits_ff800000")), "no shader has an infinity");
}

#[test]
fn a_probed_profile_compiles_for_this_device() {
    let profile = FOLDER.path().join("here.toml");
    let (profile, bundle) = (profile.to_str().unwrap(), file("here.drift"));
    for args in [
        vec!["targets", "probe", "-o", profile],
        vec!["compile", &file("add.onnx"), "-t", profile, "-o", &bundle],
        vec!["check", &bundle],
    ] {
        let done = driftc(&args);
        assert_eq!(done.status.code(), Some(0), "{args:?}\n{}", text(&done.stderr));
    }
}

#[test]
fn nobody_reads_the_output() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_driftc"))
        .args(["ops", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

#[track_caller]
fn refused(args: &[&str], code: i32, says: &str) {
    let output = driftc(args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{errors}");
    assert!(errors.contains(says), "{args:?}: `{says}` in\n{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    assert!(!Path::new("x.drift").exists() && !Path::new("x").exists(), "{args:?} left something behind");
}

fn driftc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_driftc")).args(args).output().unwrap()
}

fn target() -> String {
    std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".to_owned())
}

fn file(name: &str) -> String {
    FOLDER.path().join(name).to_str().unwrap().to_owned()
}

/// An argument that gives an array of the folder.
fn given(name: &str, array: &str) -> String {
    format!("{name}={}", file(&format!("{array}.npy")))
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}\n{}", text(&output.stdout)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn read(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", PathBuf::from(path).display()));
    npyz::NpyFile::new(&bytes[..]).unwrap().into_vec().unwrap()
}

fn npy(path: &Path, descr: &str, shape: &str, data: &[u8]) {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    std::fs::write(path, npy_bytes(&header, data)).unwrap();
}

fn npy_bytes(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// A model of `[n, 3]` floats: one output for each node.
fn model(nodes: &[(&str, &[&str], &str)]) -> Vec<u8> {
    let dim = |value| Dimension { value: Some(value), ..Dimension::default() };
    let shape = vec![dim(dimension::Value::DimParam("n".into())), dim(dimension::Value::DimValue(3))];
    let tensor = type_proto::Tensor { elem_type: Some(1), shape: Some(TensorShapeProto { dim: shape }) };
    let value = |name: &str| ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto {
            value: Some(type_proto::Value::TensorType(tensor.clone())),
            ..TypeProto::default()
        }),
        ..ValueInfoProto::default()
    };
    let node = |(i, (op, inputs, output)): (usize, &(&str, &[&str], &str))| NodeProto {
        name: Some(format!("node {i}")),
        op_type: Some((*op).to_owned()),
        input: inputs.iter().map(|i| (*i).to_owned()).collect(),
        output: vec![(*output).to_owned()],
        ..NodeProto::default()
    };
    let graph = GraphProto {
        name: Some("test".into()),
        node: nodes.iter().enumerate().map(node).collect(),
        input: vec![value("a"), value("b")],
        output: nodes.iter().map(|(_, _, output)| value(output)).collect(),
        ..GraphProto::default()
    };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        graph: Some(graph),
        ..ModelProto::default()
    };
    model.encode_to_vec()
}
