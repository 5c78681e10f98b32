//! Provenance of a bundle as an in-toto statement (version 1) with the predicate of SLSA (version 1).
//!
//! The statement follows from the bundle's bytes and file name alone: it has no times and no facts about the machine.

use std::collections::BTreeMap;
use std::path::Path;

use drift_runtime::Bundle;
use serde::Serialize;
use sha2::{Digest, Sha256};

const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const PREDICATE: &str = "https://slsa.dev/provenance/v1";
/// Build type: `driftc compile`. `docs/SECURITY.md` describes its parameters.
const BUILD_TYPE: &str = "urn:driftc:compile:v1";
/// Id of the builder: the program driftc on a machine that it does not know.
const BUILDER: &str = "urn:driftc:local";

#[derive(Debug, Serialize)]
pub(super) struct Statement<'a> {
    #[serde(rename = "_type")]
    kind: &'static str,
    subject: [Resource<'a>; 1],
    #[serde(rename = "predicateType")]
    predicate_type: &'static str,
    predicate: Predicate<'a>,
}

/// Name of a file or another input, with its hashes by algorithm.
#[derive(Debug, Serialize)]
struct Resource<'a> {
    name: String,
    digest: BTreeMap<&'a str, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Predicate<'a> {
    build_definition: BuildDefinition<'a>,
    run_details: RunDetails<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BuildDefinition<'a> {
    build_type: &'static str,
    external_parameters: Parameters<'a>,
    resolved_dependencies: Vec<Resource<'a>>,
}

#[derive(Debug, Serialize)]
struct Parameters<'a> {
    model: &'a str,
    targets: Vec<&'a str>,
    /// Options that changed the bundle.
    options: &'a [String],
}

#[derive(Debug, Serialize)]
struct RunDetails<'a> {
    builder: Builder<'a>,
}

#[derive(Debug, Serialize)]
struct Builder<'a> {
    id: &'static str,
    version: BTreeMap<&'a str, &'a str>,
}

/// Returns the statement about a bundle file.
pub(super) fn statement<'a>(bundle: &'a Bundle, path: &Path) -> Statement<'a> {
    let manifest = bundle.manifest();
    let provenance = &manifest.provenance;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sha256 = Sha256::digest(bundle.bytes());
    let sha256: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    let hashed = |name: String, hash: String| Resource { name, digest: BTreeMap::from([("blake3", hash)]) };
    let model = hashed(provenance.model_name.clone(), provenance.model_hash.to_string());
    let profiles = manifest.variants.iter().map(|variant| {
        hashed(format!("target profile {}", variant.target), variant.profile_hash.to_string())
    });
    let notes = provenance.notes.iter();
    let tuning =
        notes.filter(|(key, _)| key == "tuning").map(|(_, hash)| hashed("tuning".to_owned(), hash.clone()));
    Statement {
        kind: STATEMENT,
        subject: [Resource { name, digest: BTreeMap::from([("sha256", sha256)]) }],
        predicate_type: PREDICATE,
        predicate: Predicate {
            build_definition: BuildDefinition {
                build_type: BUILD_TYPE,
                external_parameters: Parameters {
                    model: &provenance.model_name,
                    targets: manifest.variants.iter().map(|variant| variant.target.as_str()).collect(),
                    options: &provenance.flags,
                },
                resolved_dependencies: std::iter::once(model).chain(profiles).chain(tuning).collect(),
            },
            run_details: RunDetails {
                builder: Builder {
                    id: BUILDER,
                    version: BTreeMap::from([("driftc", provenance.compiler_version.as_str())]),
                },
            },
        },
    }
}
