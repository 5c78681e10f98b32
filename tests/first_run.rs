//! Tests of the first run or compilation of a model with `driftc`: sizes that are taken from input arrays, inputs that become
//! constants, the cache folder, assumed bounds, and errors that suggest an option that works.

use drift_tests::settings;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use drift_tests::onnx::{
    bytes, floats, graph, input, integers, ints, model, node, subgraph, typed_input, with,
};
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::{GraphProto, ModelProto, NodeProto};

/// Temporary folder for models, arrays, bundles and cached files.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn model(&self, name: &str, model: &ModelProto) -> String {
        std::fs::write(self.path(name), bytes(model)).unwrap();
        self.text(name)
    }

    /// Writes an array to a `.npy` file and returns the argument `NAME=FILE`.
    fn array(&self, name: &str, descr: &str, shape: &[usize], data: &[u8]) -> String {
        let sizes: String = shape.iter().map(|d| format!("{d},")).collect();
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
        header += &" ".repeat(63 - (10 + header.len()) % 64);
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(data);
        let path = self.path(&format!("{name}-{shape:?}.npy"));
        std::fs::write(&path, file).unwrap();
        format!("{name}={}", path.display())
    }

    fn floats(&self, name: &str, shape: &[usize], value: f32) -> String {
        let n = shape.iter().product();
        let data: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), n).flatten().collect();
        self.array(name, "<f4", shape, &data)
    }

    fn scalar(&self, name: &str, value: i64) -> String {
        self.array(name, "<i8", &[], &value.to_le_bytes())
    }

    fn driftc(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftc"));
        command.env("XDG_CACHE_HOME", self.path("cache")).args(args).output().unwrap()
    }

    /// Runs `driftc` with arguments that must succeed; returns its standard output and standard error.
    fn done(&self, args: &[&str]) -> (String, String) {
        let output = self.driftc(args);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {err}");
        (out, err)
    }

    /// Runs `driftc` with arguments that must fail with the exit code `code` and a message that contains all of `says`.
    fn refused(&self, args: &[&str], code: i32, says: &[&str]) {
        let output = self.driftc(args);
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        for part in says {
            assert!(err.contains(part), "the error of {args:?} does not contain `{part}`:\n{err}");
        }
    }

    fn kept(&self, ending: &str) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.path("cache").join("driftc")).unwrap();
        let files = files.map(|f| f.unwrap().path());
        let mut files: Vec<PathBuf> = files.filter(|f| f.extension().is_some_and(|e| e == ending)).collect();
        files.sort();
        files
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn target() -> String {
    settings::target_name()
}

/// Returns an ONNX model of `y = x + x` with the shape `[batch, seq]`.
fn doubling() -> ModelProto {
    model(17, graph(vec![input("x", &["batch", "seq"])], vec![node("Add", &["x", "x"], &["y"])], &["y"]))
}

/// Returns an ONNX model of `y = abs(x)` if the input `rate` is 16000, else `y = -x`.
fn branching() -> ModelProto {
    let branch = |operator: &str, out: &str| graph(vec![], vec![node(operator, &["x"], &[out])], &[out]);
    let decided = |then: GraphProto, other: GraphProto| -> NodeProto {
        with(with(node("If", &["c"], &["y"]), subgraph("then_branch", then)), subgraph("else_branch", other))
    };
    let mut g = graph(
        vec![input("x", &["n", "4"]), typed_input("rate", DataType::Int64, &[])],
        vec![node("Equal", &["rate", "known"], &["c"]), decided(branch("Abs", "t"), branch("Neg", "e"))],
        &["y"],
    );
    g.initializer = vec![integers("known", &[], &[16000])];
    model(17, g)
}

#[test]
fn a_model_runs_for_the_arrays_given_and_is_kept() {
    let place = Place::new();
    let m = place.model("double.onnx", &doubling());
    let two = place.floats("x", &[2, 3], 1.5);
    let (out, err) = place.done(&["run", &m, "--input", &two]);
    assert!(out.contains("y: f32[2, 3] = 3, 3, 3, 3, 3, 3\n"), "{out}");
    assert!(err.contains("compiled in"), "{err}");
    let (out, err) = place.done(&["run", &m, "--input", &two]);
    assert!(out.contains("= 3, 3") && err.contains("compiled before"), "{out}{err}");
    assert_eq!((place.kept("drift").len(), place.kept("pipelines").len()), (1, 1));
    // Another shape gives another bundle, and so does another model with the same name.
    let long = place.floats("x", &[2, 9], 1.0);
    assert!(place.done(&["run", &m, "--input", &long]).1.contains("compiled in"));
    let negative = graph(vec![input("x", &["batch", "seq"])], vec![node("Neg", &["x"], &["y"])], &["y"]);
    place.model("double.onnx", &model(17, negative));
    let (out, err) = place.done(&["run", &m, "--input", &two]);
    assert!(out.contains("= -1.5, -1.5") && err.contains("compiled in"), "{out}{err}");
    assert_eq!(place.kept("drift").len(), 3);
    // The cache folder contains complete bundles only.
    assert!(place.kept("partial").is_empty());
}

#[test]
fn bounds_on_the_command_line_serve_several_shapes() {
    let place = Place::new();
    let m = place.model("double.onnx", &doubling());
    let args = |shape: &[usize]| {
        let x = place.floats("x", shape, 2.0);
        ["run", &m, "--dim", "seq=1..16", "--input", &x, "--cache-dir", &place.text("mine")]
            .map(str::to_owned)
    };
    let run = |shape: &[usize]| {
        let args = args(shape);
        place.driftc(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for shape in [[2, 3], [2, 16]] {
        let (out, err) = texts(&run(&shape));
        assert!(out.contains(&format!("y: f32{shape:?} = 4, 4")), "{out}{err}");
    }
    let (_, err) = texts(&run(&[2, 17]));
    assert!(err.contains("is not seq in 1..16"), "{err}");
    assert!(place.path("mine").is_dir() && !place.path("cache").exists());
}

#[test]
fn a_damaged_bundle_is_compiled_again() {
    let place = Place::new();
    let m = place.model("double.onnx", &doubling());
    let x = place.floats("x", &[1, 3], 1.0);
    place.done(&["run", &m, "--input", &x]);
    let bundle = place.kept("drift").remove(0);
    let whole = std::fs::read(&bundle).unwrap();
    for damage in [whole[..whole.len() / 2].to_vec(), b"rubbish".to_vec(), Vec::new()] {
        std::fs::write(&bundle, damage).unwrap();
        let (out, err) = place.done(&["run", &m, "--input", &x]);
        assert!(out.contains("= 2, 2, 2") && err.contains("compiled in"), "{out}{err}");
        assert!(std::fs::read(&bundle).unwrap() == whole);
    }
}

#[test]
fn what_a_first_run_lacks_is_said() {
    let place = Place::new();
    let m = place.model("double.onnx", &doubling());
    let x = place.floats("x", &[1, 3], 1.0);
    place.refused(&["run", &m], 2, &["input `x` is missing", "--input x=FILE.npy"]);
    place.refused(&["run", &m, "--input", &x.replace("x=", "z=")], 2, &["no input `z`", "`x` (0)"]);
    let decided = place.model("branching.onnx", &branching());
    let says = ["inputs `x`, `rate` are missing", "add --input x=FILE.npy --const rate=VALUE"];
    place.refused(&["run", &decided], 2, &says);
    let flat = place.floats("x", &[3], 1.0);
    place.refused(&["run", &m, "--input", &flat], 1, &["wrong rank", "[batch, seq]"]);
    let wide = place.array("x", "<f8", &[1, 1], &1f64.to_le_bytes());
    place.refused(&["run", &m, "--input", &wide], 1, &["takes f32", "save the array as f32"]);
    let bundle = place.text("b.drift");
    place.done(&["compile", &m, "-t", &target(), "-o", &bundle, "--dim", "batch=1", "--dim", "seq=1..8"]);
    let long = place.floats("x", &[1, 9], 1.0);
    place.refused(&["run", &bundle, "--input", &long], 1, &["1..8", "--dim seq=1..9"]);
    place.refused(&["run", &bundle, "--input", &x, "--dim", "seq=3"], 2, &["--dim needs a model"]);
}

#[test]
fn an_input_that_decides_is_pinned() {
    let place = Place::new();
    let m = place.model("branching.onnx", &branching());
    let t = target();
    let bundle = place.text("b.drift");
    let compile = ["compile", &m, "-t", &t, "-o", &bundle];
    place.refused(&compile, 1, &["at run time", "add --const rate=16000 to compile the model"]);
    place.done(&[&compile[..], &["--const", "rate=16000"]].concat());
    let x = place.floats("x", &[1, 4], -2.0);
    let (out, _) = place.done(&["run", &bundle, "--input", &x]);
    assert!(out.contains("y: f32[1, 4] = 2, 2, 2, 2"), "{out}");
    let (out, _) = place.done(&["inspect", &bundle]);
    assert!(out.contains("--const rate=16000") && !out.contains("rate: i64"), "{out}");
    // From a file, and for every command that reads a model.
    let rate = place.scalar("rate", 8000);
    for command in [
        vec!["explain", &m, "-t", &t, "--const", &rate],
        vec!["dump", &m, "--stage", "plan", "--const", &rate],
        vec!["verify", &m, "-t", &t, "--const", &rate],
        vec!["verify", &m, "-t", &t, "--input", &rate],
    ] {
        place.done(&command);
    }
    // A sample decides too, given with --like or as the input of a run.
    let (_, err) = place.done(&[&compile[..], &["--like", &rate]].concat());
    assert!(err.contains("the values of input `rate` decide shapes or conditions"), "{err}");
    let run = |rate: &str| place.done(&["run", &m, "--input", &x, "--input", rate]);
    let (out, err) = run(&rate);
    assert!(out.contains("= 2, 2, 2, 2") && err.contains("compiled in"), "{out}{err}");
    assert!(run(&place.scalar("rate", 16000)).1.contains("compiled in"), "another value, another bundle");
    assert!(run(&place.scalar("rate", 8000)).1.contains("compiled before"));
}

/// If the value of one input decides whether a second input must be known at compile time, the error names both inputs.
#[test]
fn inputs_that_decide_one_after_the_other() {
    let place = Place::new();
    let branch = |nodes: Vec<NodeProto>, out: &str| graph(vec![], nodes, &[out]);
    let decided = |c: &str, then: GraphProto, other: GraphProto| {
        with(
            with(node("If", &[c], &[&format!("{c}_y")]), subgraph("then_branch", then)),
            subgraph("else_branch", other),
        )
    };
    let inner = vec![
        node("Equal", &["mode", "three"], &["d"]),
        decided(
            "d",
            branch(vec![node("Abs", &["x"], &["t"])], "t"),
            branch(vec![node("Neg", &["x"], &["e"])], "e"),
        ),
    ];
    let outer = vec![
        node("Equal", &["rate", "known"], &["c"]),
        decided("c", branch(inner, "d_y"), branch(vec![node("NonMaxSuppression", &["x"], &["l"])], "l")),
    ];
    let scalar = |name: &str| typed_input(name, DataType::Int64, &[]);
    let mut g = graph(vec![input("x", &["4"]), scalar("rate"), scalar("mode")], outer, &["c_y"]);
    g.initializer = vec![integers("known", &[], &[16000]), integers("three", &[], &[3])];
    let m = place.model("nested.onnx", &model(17, g));
    let says = ["add --const rate=16000 --const mode=", "to compile the model"];
    place.refused(&["compile", &m, "-t", &target(), "-o", &place.text("b.drift")], 1, &says);
}

#[test]
fn constants_that_do_not_fit_are_refused() {
    let place = Place::new();
    let mut g = graph(
        vec![input("x", &["n", "2"]), typed_input("k", DataType::Int32, &["3"]), input("s", &["m", "n"])],
        vec![node("Neg", &["x"], &["y"]), node("Neg", &["k"], &["z"]), node("Neg", &["s"], &["w"])],
        &["y", "z", "w"],
    );
    g.initializer = vec![];
    let m = place.model("three.onnx", &model(17, g));
    let t = target();
    let bundle = place.text("b.drift");
    let x = place.floats("k", &[3], 1.0);
    let short = place.array("k", "<i4", &[2], &[0; 8]);
    let sizes = place.floats("s", &[2, 5], 1.0);
    for (given, says) in [
        ("no=3", vec!["no input `no`", "`x`, `k`, `s`"]),
        ("k=1.5", vec!["`1.5` is no value for input `k`, which is i32[3]"]),
        ("k=3000000000", vec!["no value for input `k`"]),
        ("k=1,2", vec!["2 values are given for input `k`, which is i32[3]"]),
        ("s=1", vec!["f32[m, n]", "--const s=FILE.npy"]),
        ("k=", vec!["write NAME=VALUE"]),
        (&x, vec!["input `k` is i32[3]", "save the array as i32"]),
    ] {
        place.refused(&["compile", &m, "-t", &t, "-o", &bundle, "--const", given], 2, &says);
    }
    place.refused(&["compile", &m, "-t", &t, "-o", &bundle, "--const", &short], 1, &["is not 3"]);
    let twice = ["compile", &m, "-t", &t, "-o", &bundle, "--const", "k=1", "--const", "k=2"];
    place.refused(&twice, 2, &["given twice"]);
    // The shape of a constant sets the symbols of its declaration.
    let args = ["compile", &m, "-t", &t, "-o", &bundle, "--const", "k=1,-2,3", "--const", &sizes];
    place.done(&args);
    let (out, _) = place.done(&["inspect", &bundle]);
    assert!(out.contains("x: f32[5, 2]"), "{out}");
}

#[test]
fn samples_give_sizes() {
    let place = Place::new();
    let m = place.model("double.onnx", &doubling());
    let (t, bundle) = (target(), place.text("b.drift"));
    let like = place.floats("x", &[3, 7], 0.0);
    let (_, err) = place.done(&["compile", &m, "-t", &t, "-o", &bundle, "--like", &like]);
    assert!(!err.contains("assumed"), "{err}");
    assert!(place.done(&["inspect", &bundle]).0.contains("x: f32[3, 7]"));
    let args = ["compile", &m, "-t", &t, "-o", &bundle, "--like", &like, "--dim", "seq=1..9"];
    place.done(&args);
    let (out, _) = place.done(&["inspect", &bundle]);
    assert!(out.contains("x: f32[3, seq]") && out.contains("seq in 1..9"), "{out}");
    // Several samples of one input give bounds that contain all of them, unless bounds are given.
    let (short, wide) = (place.floats("x", &[3, 2], 0.0), place.floats("x", &[5, 4], 0.0));
    let likes = ["--like", &like, "--like", &short, "--like", &wide];
    let compile = ["compile", &m, "-t", &t, "-o", &bundle];
    place.done(&[&compile[..], &likes].concat());
    let (out, _) = place.done(&["inspect", &bundle]);
    assert!(out.contains("batch in 3..5") && out.contains("seq in 2..7"), "{out}");
    place.done(&[&compile[..], &likes, &["--dim", "seq=1..64"]].concat());
    assert!(place.done(&["inspect", &bundle]).0.contains("seq in 1..64"));
    let flat = place.floats("x", &[3], 0.0);
    place.refused(&[&compile[..], &likes, &["--like", &flat]].concat(), 2, &["has 2 axes"]);
}

/// Symbols without bounds get bounds by their role (batch, image side), lowered so that no tensor exceeds the bytes that
/// devices can bind.
#[test]
fn bounds_are_assumed_by_role() {
    let place = Place::new();
    let conv = with(node("Conv", &["x", "w"], &["y"]), ints("pads", &[1, 1, 1, 1]));
    let mut g = graph(vec![input("x", &["?", "3", "?", "?"])], vec![conv], &["y"]);
    g.initializer = vec![floats("w", &[64, 3, 3, 3], &[0.0; 64 * 27])];
    let m = place.model("conv.onnx", &model(17, g));
    let (t, bundle) = (target(), place.text("b.drift"));
    let (_, err) = place.done(&["compile", &m, "-t", &t, "-o", &bundle]);
    assert!(
        err.contains("no bounds are given for `x_0` (batch), `x_2` (image side), `x_3` (image side)"),
        "{err}"
    );
    assert!(err.contains("assuming --dim x_0=1 --dim x_2=32..672 --dim x_3=32..672;"), "{err}");
    assert!(err.contains("larger sizes of `x_0`, `x_2`, `x_3` make a tensor of more than 128 MiB"), "{err}");
    let m = place.model("double.onnx", &doubling());
    let (_, err) = place.done(&["compile", &m, "-t", &t, "-o", &bundle]);
    assert!(err.contains("`seq` (sequence): assuming --dim batch=1..8 --dim seq=1..256;"), "{err}");
}

/// A slice may end at a fixed index or at the end of the axis, whichever comes first. One bundle serves sizes below and above
/// that index.
#[test]
fn slices_end_where_the_size_does() {
    let place = Place::new();
    let slice = |a: &str, b: &str, y: &str| node("Slice", &["x", a, b], &[y]);
    let nodes = vec![slice("0", "5", "y"), slice("2", "-1", "z")];
    let mut g = graph(vec![input("x", &["seq"])], nodes, &["y", "z"]);
    g.initializer = ["0", "2", "5", "-1"].map(|n| integers(n, &[1], &[n.parse().unwrap()])).to_vec();
    let m = place.model("slice.onnx", &model(17, g));
    let bundle = place.text("b.drift");
    let (_, err) = place.done(&["compile", &m, "-t", &target(), "-o", &bundle]);
    assert!(err.contains("`seq` (sequence): assuming --dim seq=1..256;"), "{err}");
    for (n, y, z) in
        [(1, "f32[1] = 1", "f32[0]"), (4, "f32[4] = 1, 1", "f32[1] = 1"), (9, "f32[5]", "f32[6]")]
    {
        let (out, _) = place.done(&["run", &bundle, "--input", &place.floats("x", &[n], 1.0)]);
        assert!(out.contains(&format!("y: {y}")) && out.contains(&format!("z: {z}")), "{out}");
    }
}

/// If nodes refuse the first assumed bounds of a symbol, the importer tries other bounds. If only one size works, the error
/// names the size.
#[test]
fn what_only_bounds_refuse_is_said_with_a_size() {
    let place = Place::new();
    // Starts at n - 8, which counts from the end if n is below 8.
    let mut g = graph(
        vec![input("x", &["seq"])],
        vec![
            node("Shape", &["x"], &["n"]),
            node("Sub", &["n", "eight"], &["a"]),
            node("Slice", &["x", "a", "n"], &["y"]),
        ],
        &["y"],
    );
    g.initializer = vec![integers("eight", &[1], &[8])];
    let m = place.model("slice.onnx", &model(17, g));
    let (t, bundle) = (target(), place.text("b.drift"));
    let (_, err) = place.done(&["compile", &m, "-t", &t, "-o", &bundle]);
    assert!(err.contains("`seq` (sequence): assuming --dim seq=16..256;"), "{err}");
    let narrow = ["compile", &m, "-t", &t, "-o", &bundle, "--dim", "seq=1..9"];
    place.refused(&narrow, 1, &["counted from the end", "--dim"]);
    // The number of outputs must equal the number of items, so it must be known.
    let mut g = graph(
        vec![input("x", &["n", "50"])],
        vec![
            node("Shape", &["x"], &["s"]),
            node("Gather", &["s", "zero"], &["n0"]),
            node("Unsqueeze", &["n0", "zeros"], &["k"]),
            node("TopK", &["x", "k"], &["y", "i"]),
        ],
        &["y"],
    );
    g.initializer = vec![integers("zero", &[], &[0]), integers("zeros", &[1], &[0])];
    let m = place.model("topk.onnx", &model(17, g));
    place.refused(&["compile", &m, "-t", &t, "-o", &bundle], 1, &["add --dim n=1 to compile the model"]);
    // The number of tokens must equal the number of positions, which none of the tried bounds contains.
    let mut g = graph(vec![input("x", &["1", "count", "4"])], vec![node("Add", &["x", "c"], &["y"])], &["y"]);
    g.initializer = vec![floats("c", &[1, 197, 1], &[0.5; 197])];
    let m = place.model("positions.onnx", &model(17, g));
    let compile = ["compile", &m, "-t", &t, "-o", &bundle];
    place.refused(&compile, 1, &["add --dim count=197 to compile the model"]);
    place.refused(&[&compile[..], &["--dim", "count=1..256"]].concat(), 1, &["add --dim count=197"]);
}

/// `driftc compile` and `driftc inspect` state the same number of bytes of intermediate memory for a profile with textures.
#[test]
fn compile_and_inspect_agree_about_memory() {
    let place = Place::new();
    let m = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/selfie_seg_like/model.onnx");
    let bundle = place.text("b.drift");
    let args = ["compile", m.to_str().unwrap(), "-t", "adreno-750", "-o", &bundle, "--json"];
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let compiled = json(&place.done(&args).0);
    let inspected = json(&place.done(&["inspect", &bundle, "--json"]).0);
    let (a, b) = (&compiled["targets"][0]["memory"], &inspected["variants"][0]["functions"][0]["memory"]);
    assert_eq!(a, b);
    assert!(a["peak"].as_u64() > Some(0));
}
