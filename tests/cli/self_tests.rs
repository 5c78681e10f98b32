//! Tests of `driftc compile --self-test` and `driftc check --self-test`.

use crate::fixture::{driftc, file, json, refused, target, text};

#[test]
fn bundles_carry_a_self_test() {
    let place = tempfile::tempdir().unwrap();
    let (bundle, model) = (file("add.drift"), file("add.onnx"));
    let done = driftc(&["check", &bundle, "--self-test"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(
        text(&done.stdout).contains("equal to the CPU reference in 1 self-test vector"),
        "{}",
        text(&done.stdout)
    );
    assert_eq!(json(&driftc(&["check", &bundle, "--json"]))["self_test_vectors"], serde_json::Value::Null);
    for (n_vectors, code) in [("3", 0), ("0", 1)] {
        let path = place.path().join("test.drift");
        let path = path.to_str().unwrap();
        let args =
            ["compile", &model, "-t", &target(), "--dim", "n=1..8", "-o", path, "--self-test", n_vectors];
        let report = json(&driftc(&[&args[..], &["--json"]].concat()));
        assert_eq!(report["self_test_vectors"].to_string(), n_vectors);
        let flags = json(&driftc(&["inspect", path, "--json"]))["provenance"]["flags"].to_string();
        assert!(flags.contains(&format!("--self-test {n_vectors}")), "{flags}");
        let checked = driftc(&["check", path, "--self-test", "--json"]);
        assert_eq!(checked.status.code(), Some(code));
        match code {
            0 => assert_eq!(json(&checked)["self_test_vectors"], 3),
            _ => assert!(json(&checked)["self_test_error"].as_str().unwrap().contains("has no self-test")),
        }
    }
    refused(&["check", &model, "--self-test"], 2, "need a bundle");
    refused(&["compile", &model, "-t", &target(), "-o", "x", "--self-test", "65"], 2, "65");
}
