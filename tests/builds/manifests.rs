//! Wrong manifests: a clear error each, and nothing is written.

use crate::fixture::text;
use crate::project::Project;

/// Texts of the manifest, what replaces them, and what the error says.
const WRONG: &[(&str, &str, &str)] = &[
    ("split = true", "splits = true", "unknown field `splits`"),
    ("[targets]", "[target]", "unknown field `target`"),
    ("path = \"first.onnx\"", "path = \"no.onnx\"", "no.onnx: No such file"),
    ("path = \"first.onnx\"", "path = \"*.no\"", "path `*.no`: no file matches"),
    ("path = \"first.onnx\"", "path = \"***\"", "path `***`:"),
    ("name = \"f16\"", "name = \"all\"", "both write"),
    ("name = \"second\"", "name = \"a/b\"", "model `a/b`: a name has only"),
    ("name = \"small\"", "name = \"\"", "artifact ``: a name has only"),
    ("targets = [\"both\", \"lavapipe\"]", "targets = \"bot\"", "did you mean the group `both`?"),
    ("targets = [\"both\", \"lavapipe\"]", "targets = \"lavapip\"", "did you mean `lavapipe`?"),
    ("targets = [\"both\", \"lavapipe\"]", "targets = []", "artifact `all` has no targets"),
    ("targets = \"./lavapipe.toml\"", "targets = \"./none.toml\"", "none.toml"),
    ("precision = \"f16\"", "precision = \"f8\"", "invalid value 'f8' for '--precision"),
    ("precision = \"f16\"", "calibrate = \"text.txt\"", "--weights"),
    ("dims = { n = 2 }", "dims = { n = \"4..2\" }", "the range 4..2 is empty"),
    ("# budget", "budget = { bytes = \"4 apples\" }", "`4 apples` is no number of bytes"),
    ("# budget", "budget = { size = 4 }", "unknown field `size`"),
    ("[targets]", "include = [\"drift.toml\"]\n[targets]", "includes itself"),
    ("[targets]", "include = [\"none.toml\"]\n[targets]", "none.toml: No such file"),
    ("[targets]", "= 3", "is not a manifest"),
];

#[test]
fn a_wrong_manifest_is_refused_with_its_reason() {
    for (old, new, says) in WRONG {
        let project = Project::new();
        let whole = text(&project.bytes("drift.toml"));
        project.write("drift.toml", whole.replacen(old, new, 1).as_bytes());
        let built = project.build(&[]);
        let errors = text(&built.stderr);
        assert!(matches!(built.status.code(), Some(1 | 2)), "{new}: {:?}\n{errors}", built.status);
        assert!(errors.contains(says), "{new}: `{says}` in\n{errors}");
        assert!(!project.path("bundles").exists() && !project.path("drift.lock").exists(), "{new}");
    }
}

#[test]
fn included_files_add_models_and_targets() {
    let project = Project::new();
    std::fs::create_dir(project.path("more")).unwrap();
    project.write("more/third.onnx", &crate::fixture::model(&[("Abs", &["a"], "y")]));
    project.write("more/fourth.onnx", &crate::fixture::model(&[("Exp", &["a"], "y")]));
    let more = "[targets]\nmine = [\"../lavapipe.toml\"]\n[[model]]\npath = \"*.onnx\"\n[[model.artifact]]\n\
                name = \"own\"\ntargets = \"mine\"\n";
    project.write("more/models.toml", more.as_bytes());
    project.replace("drift.toml", "[targets]", "include = [\"more/*.toml\"]\n[targets]");
    let built = project.build(&[]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let names: Vec<String> = project.bundles().into_keys().filter(|name| name.contains("own")).collect();
    assert_eq!(names, ["fourth.own.drift", "third.own.drift"]);
    // A group has one meaning.
    project.write("more/models.toml", format!("{more}\n").replace("mine =", "both =").as_bytes());
    let built = project.build(&[]);
    assert!(text(&built.stderr).contains("`both` is defined again"), "{}", text(&built.stderr));
}

#[test]
fn a_model_of_several_files_is_one_bundle() {
    let project = Project::new();
    let linked = "[[model]]\npath = [\"first.onnx\", \"second.onnx\"]\nlinks = [\"first.y=second.a\"]\ndims = { n = 2 }\n\
                  [[model.artifact]]\nname = \"linked\"\ntargets = \"lavapipe\"\n";
    project.write("drift.toml", linked.as_bytes());
    let built = project.build(&[]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let bundle = "bundles/first+second.linked.drift";
    let line = ["first.onnx", "second.onnx", "--link", "first.y=second.a", "--dim", "n=2", "-t", "lavapipe"];
    let compiled = project.driftc(&[&["compile"], &line[..], &["-o", "line.drift"]].concat());
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    assert_eq!(project.bytes(bundle), project.bytes("line.drift"));
    // The bundle depends on every file.
    assert!(text(&project.build(&[]).stdout).contains("1 up to date"));
    project.write("second.onnx", &crate::fixture::model(&[("Abs", &["a"], "y")]));
    let built = project.build(&[]);
    assert!(text(&built.stdout).contains("1 built"), "{}", text(&built.stdout));
    assert_ne!(project.bytes(bundle), project.bytes("line.drift"));
    project.replace("drift.toml", "first.y=second.a", "first.z=second.a");
    let built = project.build(&[]);
    assert_eq!(built.status.code(), Some(1));
    assert!(text(&built.stderr).contains("which does not exist"), "{}", text(&built.stderr));
}

#[test]
fn a_new_manifest_builds() {
    let project = Project::new();
    let refused = project.build(&["--init", "first.onnx"]);
    assert!(text(&refused.stderr).contains("drift.toml exists already"), "{}", text(&refused.stderr));
    std::fs::remove_file(project.path("drift.toml")).unwrap();
    let missing = project.build(&[]);
    assert!(text(&missing.stderr).contains("driftc build --init MODEL"), "{}", text(&missing.stderr));
    let done = project.build(&["--init", "first.onnx", "second.onnx"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let built = project.build(&[]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    assert!(text(&built.stdout).contains("4 bundles: 4 built"), "{}", text(&built.stdout));
}

#[test]
fn unknown_names_are_refused() {
    let project = Project::new();
    let built = project.build(&["--only", "second.al"]);
    assert_eq!(built.status.code(), Some(2));
    assert!(text(&built.stderr).contains("did you mean `second.all`?"), "{}", text(&built.stderr));
    for url in ["ftp://a/b", "nothing", "s3://"] {
        let built = project.build(&["--shared-cache", url]);
        assert_eq!(built.status.code(), Some(2), "{url}: {}", text(&built.stderr));
        assert!(text(&built.stderr).contains("cannot be used"), "{}", text(&built.stderr));
    }
}
