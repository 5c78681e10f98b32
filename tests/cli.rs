//! Tests that run the program `driftc` as a user does. They check exit codes and messages, and that no input makes it panic.

#[path = "cli/fixture.rs"]
mod fixture;
#[path = "cli/manual.rs"]
mod manual;
#[path = "cli/models.rs"]
mod models;
#[path = "cli/provenance.rs"]
mod provenance;
#[path = "cli/quantize.rs"]
mod quantize;
#[path = "cli/reports.rs"]
mod reports;
#[path = "cli/self_tests.rs"]
mod self_tests;
#[path = "cli/signatures.rs"]
mod signatures;

use std::path::Path;
use std::process::{Command, Stdio};

use drift_runtime::format::ArtifactKind;
use fixture::{FOLDER, driftc, file, given, json, model, read, refused, target, text};

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
        (vec!["compile", &add, "-t", "lavapipe", "-o", "x.drift", "--dim", "n=3..1"], "is empty"),
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
        (run(&given("a", "narrow")), "`a` takes shape [n in 1..8, 3]"),
        (run(&given("a", "long")), "compiled for 1..8"),
        (run("a=missing.npy"), "missing.npy"),
        (run(&format!("a={garbage}")), "not a usable .npy file"),
        (run(&format!("a={}", file("add.onnx"))), "not a usable .npy file"),
        (
            ["run", "missing.drift", "--input", &a, "--input", &b, "--output-dir", "x"].map(str::to_owned),
            "missing.drift",
        ),
        (
            ["run", &file("a.npy"), "--input", &a, "--input", &b, "--output-dir", "x"].map(str::to_owned),
            "is a NumPy array, but `driftc run` takes a model or a bundle",
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
fn weights_are_quantized_when_asked_for() {
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
    let explain = ["explain", folder, "-t", "lavapipe", "--dim", "seq=1..8", "--weights", "q8", "--all"];
    let told = text(&driftc(&explain).stdout);
    assert!(told.contains("matvec_quantized") && told.contains("panels of 8-bit values"), "{told}");
    let to = file("refused.drift");
    let compile = |weights| ["compile", folder, "-t", "lavapipe", "-o", &to, "--weights", weights];
    refused(&compile("w4:33"), 2, "write `f16`, `q8`, `q844`");
    refused(&compile("w4:64"), 1, "groups of 64 do not divide the 32 inputs of a matmul");
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
    // A second run finds everything measured and changes nothing.
    let before = std::fs::read_to_string(&db).unwrap();
    let again = json(&driftc(&[&tune[..], &["--json"]].concat()));
    assert_eq!((again["measured"].as_u64(), again["known"].as_u64()), (Some(0), Some(measured)));
    assert_eq!(std::fs::read_to_string(&db).unwrap(), before);
    // Make the last configuration of the first problem by far the fastest, whatever was measured.
    let lines: Vec<&str> = before.lines().collect();
    let at = lines.iter().position(|l| l.starts_with("problem")).unwrap() + 1;
    let configurations = lines[at..].iter().take_while(|l| l.starts_with("  ")).count();
    let configuration = lines[at + configurations - 1].trim().split_once(' ').unwrap().1;
    let mut edited: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
    edited[at + configurations - 1] = format!("  1 {configuration}");
    std::fs::write(&db, edited.join("\n")).unwrap();
    let explain = ["explain", &add, "-t", &here, "--dim", "n=1..8", "--tuning", &db, "--json"];
    let explained = json(&driftc(&explain));
    let selected: Vec<&serde_json::Value> =
        explained["nodes"].as_array().unwrap().iter().map(|n| &n["candidates"][0]).collect();
    assert!(selected.iter().all(|p| p["reason"].as_str().unwrap().starts_with("measured")), "{explained}");
    assert!(selected.iter().any(|p| p["measured_ns"] == 1.0), "{explained}");
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
    // Times of another kernel source are stale, so the estimates decide.
    let stale: Vec<String> = edited.iter().map(|l| l.replace('/', "/0")).collect();
    std::fs::write(&db, stale.join("\n")).unwrap();
    let explained = json(&driftc(&explain));
    assert!(explained["nodes"][0]["candidates"][0]["measured_ns"].is_null(), "{explained}");
    // Times of two devices are not mixed.
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
    // One graph in both precisions. Both have some problems in common if the device lacks f16.
    assert_eq!((report["graphs"].as_u64(), report["left"].as_u64()), (Some(2), Some(0)));
    let (measured, problems) = (report["measured"].as_u64().unwrap(), report["problems"].as_u64().unwrap());
    assert!(measured == problems * 3 && problems >= 1 && report["failed"] == 0, "{report}");
    let before = std::fs::read_to_string(&db).unwrap();
    assert_eq!(before.lines().filter(|line| line.starts_with("problem")).count() as u64, problems);
    let again = json(&driftc(&calibrate));
    assert_eq!((again["measured"].as_u64(), again["problems"].as_u64()), (Some(0), Some(problems)));
    assert_eq!(std::fs::read_to_string(&db).unwrap(), before);
    // Now the candidates that were left out are measured and added.
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
    let artifacts = bundle.manifest().artifacts.iter();
    let artifacts: Vec<_> = artifacts.filter(|artifact| artifact.kind == ArtifactKind::Wgsl).collect();
    assert_eq!(artifacts.len(), texts.len());
    for kept in artifacts.iter().map(|a| &bytes[a.offset as usize..(a.offset + a.size) as usize]) {
        assert!(texts.iter().any(|text| text == kept), "not written: {}", text(kept));
    }
    assert!(
        texts.iter().any(|t| text(t).contains("bits_ff800000")),
        "no emitted shader contains the bits of minus infinity"
    );
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
