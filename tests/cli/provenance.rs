//! Tests of `driftc inspect --provenance`.

use std::process::Command;

use crate::fixture::{driftc, file, json, refused, target, text};

#[test]
fn provenance_is_an_in_toto_statement() {
    let bundle = file("add.drift");
    let done = driftc(&["inspect", &bundle, "--provenance"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(done.stdout, driftc(&["inspect", &bundle, "--provenance"]).stdout);
    let (statement, inspected) = (json(&done), json(&driftc(&["inspect", &bundle, "--json"])));
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    let keys: Vec<&String> = statement.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["_type", "predicate", "predicateType", "subject"]);
    let sum = Command::new("sha256sum").arg(&bundle).output().unwrap();
    let sha256 = text(&sum.stdout).split(' ').next().unwrap().to_owned();
    let subject = serde_json::json!([{ "name": "add.drift", "digest": { "sha256": sha256 } }]);
    assert_eq!(statement["subject"], subject);
    let definition = &statement["predicate"]["buildDefinition"];
    let parameters = &definition["externalParameters"];
    assert_eq!(parameters["model"], "add.onnx");
    assert_eq!(parameters["targets"][0], target());
    assert_eq!(parameters["options"], inspected["provenance"]["flags"]);
    let dependencies = &definition["resolvedDependencies"];
    assert_eq!(dependencies[0]["digest"]["blake3"], inspected["provenance"]["model_hash"]);
    assert_eq!(dependencies[1]["digest"]["blake3"], inspected["variants"][0]["profile_hash"]);
    let builder = &statement["predicate"]["runDetails"]["builder"];
    assert_eq!(builder["version"]["driftc"], env!("CARGO_PKG_VERSION"));
    for uri in [&definition["buildType"], &builder["id"]] {
        assert!(uri.as_str().unwrap().starts_with("urn:driftc:"), "{uri}");
    }
    refused(&["inspect", &file("add.onnx"), "--provenance"], 2, "need a bundle");
    refused(&["inspect", &bundle, "--provenance", "--json"], 2, "cannot be used with");
}
