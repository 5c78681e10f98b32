//! Tests of the command line's options: sizes of inputs, sizes of language models, targets by the name of a device,
//! output paths that cannot be written, and files of other kinds that are given as models.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use drift_tests::onnx::{bytes, floats, graph, input, integers, ints, model, node, with};
use drift_tests::settings;
use driftc::import::onnx::schema::ModelProto;

/// Temporary folder for models, arrays and bundles.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn text(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.0.path().join(name), content).unwrap();
        self.text(name)
    }

    fn model(&self, name: &str, model: &ModelProto) -> String {
        self.write(name, &bytes(model))
    }

    /// Writes an array of equal floats and returns the argument `NAME=FILE`.
    fn floats(&self, name: &str, shape: &[usize], value: f32) -> String {
        let sizes: String = shape.iter().map(|d| format!("{d},")).collect();
        let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({sizes}), }}");
        header += &" ".repeat(63 - (10 + header.len()) % 64);
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        file.extend(header.as_bytes());
        (0..shape.iter().product()).for_each(|_: usize| file.extend(value.to_le_bytes()));
        let path = self.write(&format!("{name}-{shape:?}.npy"), &file);
        format!("{name}={path}")
    }

    fn driftc(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftc"));
        command.env("XDG_CACHE_HOME", self.text("cache")).args(args).output().unwrap()
    }

    /// Runs `driftc`, which must succeed. Returns its standard output and standard error.
    #[track_caller]
    fn done(&self, args: &[&str]) -> (String, String) {
        let output = self.driftc(args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{args:?}: {err}");
        (out, err)
    }

    /// Runs `driftc`, which must fail with a message that contains all of `says`.
    #[track_caller]
    fn refused(&self, args: &[&str], says: &[&str]) {
        let output = self.driftc(args);
        let err = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {err}");
        for part in says {
            assert!(err.contains(part), "the error of {args:?} does not contain `{part}`:\n{err}");
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn target() -> String {
    settings::target_name()
}

/// Returns a convolution of an image `x` of the given sizes, with `filters` filters of 3 x 3.
fn conv(sizes: &[&str], filters: i64) -> ModelProto {
    let conv = with(node("Conv", &["x", "w"], &["y"]), ints("pads", &[1, 1, 1, 1]));
    let mut g = graph(vec![input("x", sizes)], vec![conv], &["y"]);
    let weights = vec![0.5; usize::try_from(filters * 27).unwrap()];
    g.initializer = vec![floats("w", &[filters, 3, 3, 3], &weights)];
    model(17, g)
}

/// Declared sizes are replaced, fixed sizes too. Declarations of intermediate values are ignored.
#[test]
fn shapes_replace_declared_sizes() {
    let place = Place::new();
    let mut fixed = conv(&["10", "3", "32", "32"], 2);
    let stale = graph(vec![input("y", &["10", "2", "32", "32"])], vec![], &[]).input;
    fixed.graph.as_mut().unwrap().value_info = stale;
    let m = place.model("fixed.onnx", &fixed);
    let (t, bundle) = (target(), place.text("b.drift"));
    let compile = ["compile", &m, "-t", &t, "-o", &bundle];
    let shape = ["--shape", "x=1,3,H,W", "--dim", "H=8..64", "--dim", "W=8..64"];
    place.done(&[&compile[..], &shape].concat());
    let (out, _) = place.done(&["inspect", &bundle]);
    assert!(out.contains("x: f32[1, 3, H, W]") && out.contains("H in 8..64"), "{out}");
    let x = place.floats("x", &[1, 3, 9, 17], 1.0);
    assert!(place.done(&["run", &bundle, "--input", &x]).0.contains("y: f32[1, 2, 9, 17]"));
    // The input is also given by position, and `run` reads the sizes from the array.
    let (out, _) = place.done(&["run", &m, "--shape", "0=N,3,H,W", "--input", &x]);
    assert!(out.contains("y: f32[1, 2, 9, 17]"), "{out}");
    place.refused(&["run", &m, "--input", &x], &["is not 10"]);
    place.refused(&[&compile[..], &["--shape", "x=1,3,H"]].concat(), &["has 3 sizes", "4 axes"]);
    place.refused(&[&compile[..], &["--shape", "y=1,3,H,W"]].concat(), &["no input `y`", "`x` (0)"]);
    place.refused(&[&compile[..], &["--shape", "x=1,3,8H,W"]].concat(), &["image=1,3,H,W"]);
}

/// The batch in a constant target shape is replaced where the other sizes allow it. Otherwise the error names the
/// constant.
#[test]
fn constant_target_shapes_follow_the_batch() {
    let place = Place::new();
    let reshaped = |name: &str, target: &[i64]| {
        let mut g =
            graph(vec![input("x", &["10", "4", "6"])], vec![node("Reshape", &["x", "s"], &["y"])], &["y"]);
        g.initializer = vec![integers("s", &[i64::try_from(target.len()).unwrap()], target)];
        place.model(name, &model(17, g))
    };
    let (t, bundle) = (target(), place.text("b.drift"));
    for (name, sizes) in [("known.onnx", &[10, 24][..]), ("rest.onnx", &[10, -1])] {
        let m = reshaped(name, sizes);
        place.done(&["compile", &m, "-t", &t, "-o", &bundle, "--shape", "x=N,4,6", "--dim", "N=1..4"]);
        let (out, _) = place.done(&["run", &bundle, "--input", &place.floats("x", &[3, 4, 6], 2.0)]);
        assert!(out.contains("y: f32[3, 24]"), "{out}");
    }
    let m = reshaped("merged.onnx", &[240]);
    let compile = ["compile", &m, "-t", &t, "-o", &bundle, "--shape", "x=1,4,6"];
    place.refused(&compile, &["Reshape", "the target shape is a constant of the file"]);
}

/// Two axes with one symbol get separate symbols if an array has different sizes for them.
#[test]
fn axes_that_differ_are_separated() {
    let place = Place::new();
    let m = place.model("square.onnx", &conv(&["1", "3", "size", "size"], 2));
    let x = place.floats("x", &[1, 3, 8, 12], 1.0);
    let (out, err) = place.done(&["run", &m, "--input", &x]);
    assert!(out.contains("y: f32[1, 2, 8, 12]"), "{out}");
    assert!(err.contains("separate symbols, as with --shape x=1,3,size,size_3"), "{err}");
    let (t, bundle) = (target(), place.text("b.drift"));
    let compile = ["compile", &m, "-t", &t, "-o", &bundle];
    let likes = ["--like", &x, "--like", &place.floats("x", &[1, 3, 16, 4], 1.0)];
    place.done(&[&compile[..], &likes].concat());
    let (out, _) = place.done(&["inspect", &bundle]);
    assert!(out.contains("size in 8..16") && out.contains("size_3 in 4..12"), "{out}");
    // Equal sizes keep the symbol, and so does a symbol that the user fixes.
    let square = place.floats("x", &[1, 3, 8, 8], 1.0);
    assert!(!place.done(&["run", &m, "--input", &square]).1.contains("separate"));
    place.refused(&["run", &m, "--input", &x, "--dim", "size=8"], &["is not size, which is 8"]);
}

/// Bounds from the user hold, or are refused with the memory limit. They never leave one size for another symbol.
#[test]
fn wide_bounds_do_not_squeeze_other_sizes() {
    let place = Place::new();
    let m = place.model("conv.onnx", &conv(&["1", "3", "H", "W"], 64));
    let (t, bundle) = (target(), place.text("b.drift"));
    let compile = ["compile", &m, "-t", &t, "-o", &bundle];
    let wide = place.driftc(&[&compile[..], &["--dim", "H=1..99999"]].concat());
    let err = text(&wide.stderr);
    assert_eq!(wide.status.code(), Some(1), "{err}");
    for part in ["--dim H=1..99999 leaves only one value for `W`", "128 MiB", "f32[1, 64, H, W]"] {
        assert!(err.contains(part), "`{part}` in {err}");
    }
    // The suggested bounds work.
    let suggested = err.split("fits with ").nth(1).unwrap().split(';').next().unwrap();
    assert!(suggested.contains("--dim H=1..") && suggested.contains("--dim W=32.."), "{err}");
    let options: Vec<&str> = suggested.split_whitespace().collect();
    place.done(&[&compile[..], &options].concat());
    let (out, _) = place.done(&["inspect", &bundle]);
    assert!(out.contains("H in 1.."), "{out}");
}

/// Bounds that an error about a limit of the target suggests were tried: the model compiles with them.
#[test]
fn suggested_bounds_compile() {
    let place = Place::new();
    // The second tensor needs lower bounds than the first one.
    let matmul = |x, w, y| node("MatMul", &[x, w], &[y]);
    let nodes = vec![matmul("x", "a", "t"), matmul("t", "b", "u"), matmul("u", "c", "y")];
    let mut g = graph(vec![input("x", &["n", "2"])], nodes, &["y"]);
    let weights = |name, k: i64, n: i64| floats(name, &[k, n], &vec![0.5; usize::try_from(k * n).unwrap()]);
    g.initializer = vec![weights("a", 2, 64), weights("b", 64, 512), weights("c", 512, 2)];
    let m = place.model("wide.onnx", &model(17, g));
    let bundle = place.text("b.drift");
    let compile = ["compile", &m, "-t", "vulkan-baseline", "-o", &bundle];
    let output = place.driftc(&[&compile[..], &["--dim", "n=1..10000000"]].concat());
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let suggested = err.split("lower the upper bounds with ").nth(1).unwrap_or_else(|| panic!("{err}"));
    let options: Vec<&str> = suggested.split(',').next().unwrap().split_whitespace().collect();
    place.done(&[&compile[..], &options].concat());
}

/// Files of `tests/language`.
fn language(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/language").join(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn unknown_sizes_of_language_models_are_refused() {
    let place = Place::new();
    let (t, bundle) = (target(), place.text("b.drift"));
    for name in ["llama.gguf", "llama", "concat.onnx"] {
        let m = language(name);
        let compile = |dim: &str| ["compile", &m, "-t", &t, "-o", &bundle, "--dim", dim].map(str::to_owned);
        let refused = |dim: &str, says: &[&str]| {
            let args = compile(dim);
            place.refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), says);
        };
        refused("foo=3", &["the model has no size `foo`", "`context`"]);
        refused("ctx=24", &["the model has no size `ctx`", "did you mean `context`?"]);
        let args = compile("context=24");
        place.done(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let (out, _) = place.done(&["inspect", &bundle]);
        assert!(out.contains("past in 0..23"), "{name}: {out}");
    }
    // Samples ask for the model as in the file, which a note says.
    let (m, ids) = (language("concat.onnx"), format!("input_ids={}", language("concat.ids.npy")));
    let (_, err) = place.done(&["compile", &m, "-t", &t, "-o", &bundle, "--like", &ids]);
    assert!(err.contains("the model is compiled unchanged, without functions that generate text"), "{err}");
    let both =
        ["compile", &language("llama"), "-t", &t, "-o", &bundle, "--dim", "seq=8", "--dim", "context=24"];
    place.refused(&both, &["no size `context`", "leave out"]);
}

/// Few weights of image networks are quantized. A note tells how many; if there are none, `--weights` is refused.
#[test]
fn weights_that_are_not_quantized_are_named() {
    let place = Place::new();
    let (t, bundle) = (target(), place.text("b.drift"));
    let m = place.model("conv.onnx", &conv(&["1", "3", "8", "8"], 4));
    let compile = ["compile", &m, "-t", &t, "-o", &bundle, "--weights", "q8"];
    place.refused(
        &compile,
        &["--weights q8 quantizes no weight", "filters of few channels (432 B) are not quantized"],
    );
    let mut with_head = conv(&["1", "3", "8", "8"], 4);
    let g = with_head.graph.as_mut().unwrap();
    g.node.push(node("MatMul", &["y", "head"], &["z"]));
    g.initializer.push(floats("head", &[8, 4], &[0.5; 32]));
    g.output = graph(vec![], vec![], &["z"]).output;
    let m = place.model("head.onnx", &with_head);
    let (_, err) = place.done(&["compile", &m, "-t", &t, "-o", &bundle, "--weights", "q8"]);
    assert!(err.contains("--weights q8 changes 1 of 2 float constants: 128 B of 560 B"), "{err}");
    assert!(err.contains("filters of few channels (432 B) are not quantized"), "{err}");
}

#[test]
fn targets_have_the_names_of_devices() {
    let place = Place::new();
    let m = place.model("conv.onnx", &conv(&["1", "3", "8", "8"], 4));
    let bundle = place.text("b.drift");
    for (name, profile) in
        [("RTX 4090", "nvidia-ada"), ("snapdragon 8 gen 2", "adreno-740"), ("NVIDIA-Hopper", "nvidia-hopper")]
    {
        let (out, _) = place.done(&["compile", &m, "-t", name, "-o", &bundle]);
        assert!(out.contains(&format!("target {profile} at f32")), "{out}");
    }
    let (_, err) = place.done(&["compile", &m, "-t", "RTX 4090", "-o", &bundle]);
    assert!(err.contains("note: target `RTX 4090` is the profile nvidia-ada"), "{err}");
    let compile = |name: &str| ["compile", &m, "-t", name, "-o", &bundle].map(str::to_owned);
    for (name, says) in [
        ("nvidia-hoper", ["no target is called `nvidia-hoper`", "did you mean `nvidia-hopper`?"]),
        ("RTX 6000", ["names devices of several targets", "`nvidia-turing`"]),
    ] {
        let args = compile(name);
        place.refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), &says);
    }
    let args = compile("here");
    let (_, err) = place.done(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(err.contains("note: target `here` is"), "{err}");
    let x = place.floats("x", &[1, 3, 8, 8], 1.0);
    assert!(place.done(&["run", &bundle, "-t", "here", "--input", &x]).0.contains("y: f32[1, 4, 8, 8]"));
    assert!(place.done(&["targets", "list"]).0.contains("Snapdragon 8 Gen 2"));
}

/// Paths that cannot be written are refused before the model is read: the models do not exist.
#[test]
fn outputs_are_checked_first() {
    let place = Place::new();
    let (file, folder) = (place.write("file", b""), place.text(""));
    let missing = format!("{file}-missing/out");
    let below = format!("{file}/out");
    for (command, option) in [
        (vec!["compile", "no.onnx", "-t", "lavapipe"], "-o"),
        (vec!["tune", "no.onnx", "-t", "lavapipe"], "-o"),
        (vec!["logits", "no.drift", "--ids", "no.npy"], "-o"),
        (vec!["inspect", "no.drift"], "--html"),
        (vec!["generate", "no.drift", "--ids", "no.npy"], "--ids-out"),
        (vec!["run", "no.drift"], "--trace"),
        (vec!["run", "no.drift"], "--pipeline-cache"),
        (vec!["targets", "probe"], "-o"),
    ] {
        let refused = |path: &str, says: &str| {
            place.refused(&[&command[..], &[option, path]].concat(), &[&format!("`{path}`"), says]);
        };
        refused(&missing, "does not exist");
        refused(&below, "is not a folder");
        refused(&folder, "is a folder");
    }
    for (command, option) in [
        (vec!["run", "no.drift"], "--output-dir"),
        (vec!["compile", "no.onnx", "-t", "lavapipe", "-o", "x.drift"], "--emit-dir"),
        (vec!["man"], "--output-dir"),
    ] {
        place.refused(
            &[&command[..], &[option, &below]].concat(),
            &[&format!("`{below}`"), "is not a folder"],
        );
    }
    let x = ["compile", "no.onnx", "-t", "lavapipe", "-o", "/dev/null"];
    place.refused(&x, &["`/dev/null` is not a regular file"]);
}

/// Files of other kinds are named, with a step that helps.
#[test]
fn other_files_are_named() {
    let place = Place::new();
    let m = place.model("conv.onnx", &conv(&["1", "3", "8", "8"], 4));
    let bundle = place.text("det.drift");
    place.done(&["compile", &m, "-t", &target(), "-o", &bundle]);
    let out = place.text("out.drift");
    for command in [
        vec!["compile", &bundle, "-t", "lavapipe", "-o", &out],
        vec!["verify", &bundle, "-t", "lavapipe"],
        vec!["estimate", &bundle, "-t", "lavapipe"],
        vec!["tune", &bundle, "-t", "lavapipe", "-o", &out],
    ] {
        let inspect = format!("`driftc inspect {bundle}`");
        let run = format!("`driftc run {bundle}`");
        place.refused(&command, &[&format!("{bundle} is a bundle"), "takes a model", &inspect, &run]);
    }
    let folder = place.0.path().join("hf");
    fs::create_dir(&folder).unwrap();
    let in_folder = |name: &str, content: &[u8]| -> PathBuf {
        fs::write(folder.join(name), content).unwrap();
        folder.join(name)
    };
    let weights = in_folder("model.safetensors", b"\x02\0\0\0\0\0\0\0{}");
    let config = in_folder("config.json", b"{}");
    let give = format!("give the folder of the model: {}", folder.display());
    for (name, content, says) in [
        ("m.pth", &b"PK\x03\x04....archive/data.pkl"[..], ["a PyTorch checkpoint", "torch.onnx.export"]),
        ("m.tflite", b"\x1c\0\0\0TFL3", ["a TensorFlow Lite model", "tf2onnx.convert --tflite"]),
        ("m.pb", b"\x0a\x05\x0a\x03abc", ["a TensorFlow graph", "tf2onnx.convert --graphdef"]),
        ("m.zip", b"PK\x03\x04....a.txt", ["a ZIP archive", "unpack"]),
        ("m.txt", b"hello\n", ["a text file", ".gguf file"]),
        ("m.json", b"{\"a\": 1}", ["a JSON file", "config.json"]),
        ("m.safetensors", b"\x02\0\0\0\0\0\0\0{}", ["a file of weights", "config.json"]),
        ("m.onnx", b"version https://git-lfs.github.com/spec/v1\n", ["a Git LFS pointer", "git lfs pull"]),
        ("empty.onnx", b"", ["an empty file", "download"]),
    ] {
        let path = place.write(name, content);
        place.refused(&["compile", &path, "-t", "lavapipe", "-o", &out], &says);
        place.refused(&["run", &path], &says);
    }
    for path in [weights, config] {
        place.refused(&["estimate", path.to_str().unwrap(), "-t", "lavapipe"], &[&give]);
    }
    let all = place.text("");
    place.refused(&["run", &all], &["is a folder without config.json", &m]);
}
