//! Inheritance, the errors a profile's author meets, and the schema of the built-in profiles.

use toml::{Table, Value};

use super::{BUILTIN, TargetError, TargetProfile, names};

fn child(body: &str) -> Result<TargetProfile, TargetError> {
    let text = format!("name = \"mine\"\ninherits = \"vulkan-baseline\"\nsummary = \"a test\"\n{body}");
    TargetProfile::from_toml(&text, "mine.toml")
}

#[track_caller]
fn field_error(body: &str) -> (String, String) {
    match child(body) {
        Err(TargetError::Field { file, field, reason, .. }) => {
            assert_eq!(file, "`mine.toml`");
            (field, reason)
        }
        other => panic!("expected a field error, got {other:?}"),
    }
}

#[test]
fn every_builtin_profile_loads_under_its_own_name() {
    for (name, _) in BUILTIN {
        let profile = TargetProfile::load(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(profile.name, *name);
    }
    assert!(names().is_sorted(), "the table is sorted by name");
}

#[test]
fn every_value_of_a_builtin_profile_has_a_source_in_its_own_file() {
    for (name, text) in BUILTIN {
        let profile = TargetProfile::load(name).expect("it loads");
        let table: Table = toml::from_str(text).expect("it is TOML");
        for path in leaves(&table) {
            let exempt = ["name", "inherits", "summary"].contains(&path.as_str());
            let own = exempt || path.starts_with("source.") || path.starts_with("quirks");
            assert!(own || profile.source_of(&path).is_some(), "{name}: {path} has no source");
        }
    }
}

#[test]
fn the_readme_documents_every_field_with_its_unit() {
    let readme = include_str!("../../../targets/README.md");
    let baseline = TargetProfile::load("vulkan-baseline").expect("it loads");
    let mut all: Table = toml::from_str(&baseline.to_toml().expect("it prints")).expect("it is TOML");
    all.remove("source");
    let optional = ["device.vendor_id", "machine.peak.matrix_f16", "machine.peak.matrix_int8"];
    for path in leaves(&all).into_iter().chain(optional.map(str::to_owned)) {
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{path}` |")));
        let cells = row.map(|row| row.trim_matches('|').split('|').count());
        assert_eq!(cells, Some(4), "targets/README.md has no row of four cells for {path}");
    }
}

#[test]
fn a_child_replaces_single_values_and_whole_lists() {
    let mine =
        child("[limits]\nmax_workgroup_size = [1, 2, 3]\n[source]\nlimits = \"measured\"").expect("it loads");
    let base = TargetProfile::load("vulkan-baseline").expect("it loads");
    assert_eq!(mine.limits.max_workgroup_size, [1, 2, 3]);
    assert_eq!(mine.limits.max_push_constants, base.limits.max_push_constants);
    assert_eq!(mine.source_of("limits.max_workgroup_size"), Some("measured"));
    assert_eq!(mine.source_of("limits.max_push_constants"), base.source_of("limits.max_push_constants"));
}

#[test]
fn a_parents_source_does_not_vouch_for_a_childs_number() {
    let mine = child("[limits]\nmax_push_constants = 256").expect("it loads");
    assert_eq!(mine.source_of("limits.max_push_constants"), None);
}

#[test]
fn a_printed_profile_reads_back_equal_and_hashes_equal() {
    for name in names() {
        let profile = TargetProfile::load(name).expect("it loads");
        let again =
            TargetProfile::from_toml(&profile.to_toml().expect("it prints"), "again.toml").expect("it loads");
        assert_eq!(TargetProfile { inherits: None, ..profile.clone() }, again);
        assert_eq!(profile.hash(), again.hash());
    }
}

#[test]
fn the_hash_covers_facts_and_not_remarks() {
    let base = child("").expect("it loads").hash();
    assert_eq!(base, child("[source]").expect("it loads").hash());
    assert_ne!(base, child("[machine]\nlaunch_us = 3.0").expect("it loads").hash());
}

#[test]
fn errors_name_the_field() {
    assert_eq!(field_error("[limits]\nmax_pushes = 1").0, "limits.max_pushes");
    assert_eq!(field_error("colour = 1").0, "colour");
    assert_eq!(field_error("[limits]\nmax_push_constants = \"big\"").0, "limits.max_push_constants");
    assert_eq!(field_error("[limits]\nstorage_buffer_alignment = 48").0, "limits.storage_buffer_alignment");
    assert_eq!(field_error("[machine]\nlaunch_us = nan").0, "machine.launch_us");
    assert_eq!(field_error("[api]\nversion = \"new\"").0, "api.version");
    assert_eq!(field_error("[features]\ncooperative_matrix = true").0, "features.cooperative_matrix");
    assert_eq!(field_error("[source]\n\"limits.max_push_constants\" = \"x\"").0, "source");
    assert_eq!(field_error("[[quirks]]\nname = \"q\"\ndriver_from = \"v1\"\nsource = \"s\"").0, "quirks");
}

#[test]
fn an_unknown_parent_and_an_unknown_name_list_what_exists() {
    let text = "name = \"mine\"\ninherits = \"nothing\"";
    let error = TargetProfile::from_toml(text, "mine.toml").expect_err("no such parent").to_string();
    assert!(error.contains("`mine.toml`") && error.contains("lavapipe"), "{error}");
    let error =
        TargetProfile::from_toml("name = \"mine\"\nsummary = \"s\"", "mine.toml").expect_err("no parent");
    assert!(matches!(&error, TargetError::Field { field, .. } if field == "api"), "{error}");
    let error = TargetProfile::load("nothing").expect_err("no such target").to_string();
    assert!(error.contains("vulkan-baseline"), "{error}");
}

#[test]
fn files_inherit_by_relative_path_and_a_circle_is_refused() {
    let folder = std::env::temp_dir().join(format!("driftc-target-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |name: &str, parent: &str| {
        let text = format!("name = \"{name}\"\nsummary = \"a test\"\ninherits = \"{parent}\"");
        std::fs::write(folder.join(format!("{name}.toml")), text).expect("a file");
    };
    write("a", "lavapipe");
    write("b", "a.toml");
    let path = folder.join("b.toml").display().to_string();
    assert_eq!(TargetProfile::load(&path).expect("it loads").name, "b");
    write("a", "b.toml");
    let error = TargetProfile::load(&path).expect_err("a circle");
    assert!(matches!(error, TargetError::Cycle { .. }), "{error}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

fn leaves(table: &Table) -> Vec<String> {
    fn walk(table: &Table, prefix: &str, out: &mut Vec<String>) {
        for (key, value) in table {
            match value {
                Value::Table(inner) => walk(inner, &format!("{prefix}{key}."), out),
                _ => out.push(format!("{prefix}{key}")),
            }
        }
    }
    let mut out = Vec::new();
    walk(table, "", &mut out);
    out
}
