//! Tests of inheritance, of errors in profiles, and of the fields of built-in profiles.

use toml::{Table, Value};

use super::costs::{self, Number};
use super::{Api, BUILTIN, COSTS, TargetError, TargetProfile, names};

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
fn builtin_profiles_load_under_their_names() {
    for (name, _) in BUILTIN {
        let profile = TargetProfile::load(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(profile.name, *name);
    }
    assert!(names().is_sorted(), "the table of built-in profiles must be sorted by name");
}

#[test]
fn values_of_builtin_profiles_have_sources_in_their_files() {
    for (name, text) in BUILTIN {
        let profile = TargetProfile::load(name).expect("it loads");
        let table: Table = toml::from_str(text).expect("it is TOML");
        for path in leaves(&table) {
            let exempt = ["name", "inherits", "summary"].contains(&path.as_str());
            let needs_no_source = exempt || path.starts_with("source.") || path == "quirks";
            assert!(needs_no_source || profile.source_of(&path).is_some(), "{name}: {path} has no source");
        }
    }
}

#[test]
fn numbers_of_a_profile_are_consistent() {
    for name in names() {
        let profile = TargetProfile::load(name).expect("it loads");
        let (machine, peak) = (&profile.machine, &profile.machine.peak);
        // A child without matrix units would inherit its parent's peaks for them. Profiles of other APIs may lack
        // cooperative matrices although the device has matrix units.
        let vulkan = profile.api.name == Api::Vulkan;
        let matrix = profile.features.cooperative_matrix;
        assert!(!vulkan || matrix == (peak.matrix_f16.is_some() || peak.matrix_int8.is_some()), "{name}");
        assert!(
            machine.cache_bandwidth_gb_s >= machine.bandwidth_gb_s,
            "{name}: the cache is slower than the memory"
        );
        assert!(
            peak.matrix_f16.is_none_or(|p| p >= peak.f16),
            "{name}: cooperative matrices are slower than f16 arithmetic"
        );
        let memory = profile.limits.max_workgroup_memory;
        assert!(memory >= 16384, "{name}: less workgroup memory than Vulkan requires");
        let most = profile.subgroup.preferred.saturating_mul(profile.limits.max_workgroup_subgroups);
        assert!(most >= profile.prefer.workgroup_invocations, "{name}: too few subgroups");
    }
}

#[test]
fn devices_are_recognized_by_name() {
    for (vendor, device, profile) in [
        (0x5143, "Adreno (TM) 740", "adreno-740"),
        (0x5143, "Turnip Adreno (TM) 830", "adreno-830"),
        (0x13b5, "Mali-G720-Immortalis MC12", "mali-g720"),
        (0x8086, "Intel(R) Arc(tm) Graphics (MTL)", "intel-meteor-lake"),
        (0x8086, "Intel(R) Arc(TM) 140V GPU (16GB)", "intel-xe2"),
        (0x8086, "Intel(R) Arc(tm) A770 Graphics (DG2)", "intel-arc-a770"),
        (0x8086, "Intel(R) Arc(tm) Pro B50 Graphics (BMG G21)", "intel-battlemage"),
        (0x1002, "AMD Radeon RX 6800 XT (RADV NAVI21)", "amd-rdna2"),
        (0x1002, "AMD Radeon RX 7900 XTX (RADV NAVI31)", "amd-rdna3"),
        (0x10de, "NVIDIA GeForce RTX 2080 Ti", "nvidia-turing"),
        (0x10de, "NVIDIA GeForce RTX 3090", "nvidia-ampere"),
        (0x10de, "NVIDIA GeForce RTX 4090", "nvidia-ada"),
        (0x10de, "NVIDIA RTX 6000 Ada Generation", "nvidia-ada"),
        (0x10de, "NVIDIA H200", "nvidia-hopper"),
        (0x106b, "Apple M1", "apple-m1"),
        (0x106b, "Apple M4 Pro", "apple-m4"),
        (0x10005, "llvmpipe (LLVM 15.0.6, 256 bits)", "lavapipe"),
    ] {
        let info =
            drift_format::device::DeviceInfo { name: device.into(), vendor_id: vendor, ..Default::default() };
        let found = TargetProfile::for_device(&info).expect("the profiles load");
        assert_eq!(found.map(|p| p.name).as_deref(), Some(profile), "{device}");
    }
}

#[test]
fn the_readme_documents_every_field() {
    let readme = include_str!("../../../targets/README.md");
    let baseline = TargetProfile::load("vulkan-baseline").expect("it loads");
    let mut all: Table = toml::from_str(&baseline.to_toml().expect("it prints")).expect("it is TOML");
    all.remove("source");
    // Cost parameters are documented in the kernels' structs.
    all.insert("costs".to_owned(), Value::Boolean(true));
    let optional = [
        "device.vendor_id",
        "device.products",
        "machine.peak.matrix_f16",
        "machine.peak.matrix_int8",
        "fit.problems",
        "fit.worst",
        "fit.regret",
        "fit.margin",
    ];
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
    assert_eq!(mine.limits.max_uniform_range, base.limits.max_uniform_range);
    assert_eq!(mine.source_of("limits.max_workgroup_size"), Some("measured"));
    assert_eq!(mine.source_of("limits.max_uniform_range"), base.source_of("limits.max_uniform_range"));
}

#[test]
fn a_parents_source_does_not_apply_to_a_childs_value() {
    let mine = child("[limits]\nmax_uniform_range = 256").expect("it loads");
    assert_eq!(mine.source_of("limits.max_uniform_range"), None);
}

#[test]
fn unused_fields_are_ignored() {
    let plain = child("").expect("it loads");
    let told = "[api]\nversion = \"1.3\"\n[features]\nint64 = true\n[machine]\nunified_memory = true\n\
                [source]\nmachine = \"probe\"\n\"features.int64\" = \"probe\"";
    assert_eq!(child(told).expect("it loads"), plain);
}

#[test]
fn a_profiles_own_cost_parameters_override_its_costs_file() {
    let folder = std::env::temp_dir().join(format!("driftc-costs-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("costs")).expect("a folder");
    let profile = "name = \"mine\"\nsummary = \"s\"\ninherits = \"vulkan-baseline\"\n";
    std::fs::write(
        folder.join("mine.toml"),
        format!("{profile}[costs.matvec]\nextra_row_step_latencies = 0.5\n"),
    )
    .expect("a file");
    let write = |text: &str| std::fs::write(folder.join("costs").join("mine.toml"), text).expect("a file");
    write(
        "[costs.matvec]\nextra_row_step_latencies = 0.25\ncached_step_latencies = 0.75\n[source]\ncosts = \"fitted\"\n",
    );
    let path = folder.join("mine.toml").display().to_string();
    let mine = TargetProfile::load(&path).expect("it loads");
    let number = |name: &str| mine.costs.get("matvec").and_then(|group| group.get(name)).cloned();
    assert_eq!(number("extra_row_step_latencies"), Some(Number::One(0.5)));
    assert_eq!(number("cached_step_latencies"), Some(Number::One(0.75)));
    assert_eq!(
        number("uncached_step_latencies"),
        costs::generic()["matvec"].get("uncached_step_latencies").cloned()
    );
    assert_eq!(mine.costs_source("matvec"), "fitted");
    write("[machine]\nlaunch_us = 1.0\n");
    let error = TargetProfile::load(&path).expect_err("only parameters stand there");
    assert!(matches!(&error, TargetError::Field { field, .. } if field == "machine"), "{error}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn the_accuracy_of_a_fit_is_not_inherited() {
    for name in names() {
        let profile = TargetProfile::load(name).expect("it loads");
        let fitted = COSTS.iter().any(|(known, _)| *known == name);
        assert_eq!(profile.fit.is_some(), fitted, "{name}");
        assert_eq!(profile.source.keys().any(|path| path.starts_with("fit.")), fitted, "{name}");
    }
    for (name, _) in COSTS {
        let child = format!("name = \"mine\"\ninherits = \"{name}\"\nsummary = \"a test\"");
        let mine = TargetProfile::from_toml(&child, "mine.toml").expect("it loads");
        let parent = TargetProfile::load(name).expect("it loads");
        assert_eq!((mine.costs, mine.fit), (parent.costs, None));
    }
}

#[test]
fn printed_profiles_parse_to_equal_profiles() {
    for name in names() {
        let profile = TargetProfile::load(name).expect("it loads");
        let again =
            TargetProfile::from_toml(&profile.to_toml().expect("it prints"), "again.toml").expect("it loads");
        assert_eq!(TargetProfile { inherits: None, ..profile.clone() }, again);
        assert_eq!(profile.hash(), again.hash());
    }
}

#[test]
fn the_hash_covers_facts_but_not_sources() {
    let base = child("").expect("it loads").hash();
    assert_eq!(base, child("[source]").expect("it loads").hash());
    assert_ne!(base, child("[machine]\nlaunch_us = 3.0").expect("it loads").hash());
}

#[test]
fn errors_name_the_field() {
    assert_eq!(field_error("[limits]\nmax_pushes = 1").0, "limits.max_pushes");
    assert_eq!(field_error("color = 1").0, "color");
    assert_eq!(field_error("[limits]\nmax_uniform_range = \"big\"").0, "limits.max_uniform_range");
    assert_eq!(field_error("[limits]\nstorage_buffer_alignment = 48").0, "limits.storage_buffer_alignment");
    assert_eq!(field_error("[machine]\nlaunch_us = nan").0, "machine.launch_us");
    assert_eq!(field_error("[api]\nname = \"new\"").0, "api.name");
    assert_eq!(field_error("[features]\ncooperative_matrix = true").0, "features.cooperative_matrix");
    assert_eq!(field_error("[api]\nname = \"webgpu\"").0, "limits.separate_read_write_buffers");
    assert_eq!(field_error("[source]\n\"limits.max_uniform_range\" = \"x\"").0, "source");
    assert_eq!(field_error("[[quirks]]\nname = \"q\"\nsource = \"s\"").0, "quirks.name");
    assert_eq!(field_error("[costs.nothing]\nx = 1.0").0, "costs.nothing");
    assert_eq!(field_error("[costs.matvec]\nx = 1.0").0, "costs.matvec.x");
    assert_eq!(field_error("[costs.matvec]\nrow = [1.0, 2.0]").0, "costs.matvec.row");
    assert_eq!(field_error("[costs.matvec]\nrow = -1.0").0, "costs.matvec.row");
    assert_eq!(field_error("[fit]\nproblems = 1\nworst = 0.5\nregret = 1.0\nmargin = 2.0").0, "fit");
    let quirk = "[[quirks]]\nname = \"constant-buffer-sync\"\ndriver_from = \"v1\"\nsource = \"s\"";
    assert_eq!(field_error(quirk).0, "quirks");
}

#[test]
fn errors_for_unknown_profiles_list_the_known_ones() {
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
fn relative_parents_load_and_cycles_are_errors() {
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
