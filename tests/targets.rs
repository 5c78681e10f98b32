//! Tests that real models compile for every built-in profile within the profile's limits, and that variants of one bundle share
//! weights.

use std::collections::BTreeMap;
use std::path::Path;

use drift_runtime::Bundle;
use drift_runtime::format::{Feature, Hash, Variant};
use driftc::compile::{Model, Options, compile};
use driftc::import::onnx;
use driftc::passes::Precision;
use driftc::target::{TargetProfile, names};

fn model(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name).join("model.onnx");
    let imported = onnx::load(&path, &onnx::Options::default()).unwrap_or_else(|e| panic!("{e}"));
    Model { graph: imported.graph, name: name.into(), hash: imported.hash, ..Model::default() }
}

fn bundle(model: &Model, targets: &[TargetProfile], precision: Precision) -> Bundle {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.drift");
    let options = Options { precision, ..Options::default() };
    compile(model, targets, &options, &path).unwrap_or_else(|e| panic!("{e}"));
    Bundle::open(&path).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn models_compile_for_every_profile_within_its_limits() {
    let models = ["selfie_seg_like", "gpt2"].map(model);
    for name in names() {
        let target = TargetProfile::load(name).unwrap();
        for model in &models {
            for precision in [Precision::F32, Precision::F16] {
                if precision == Precision::F16 && !target.features.f16 {
                    continue;
                }
                let bundle = bundle(model, std::slice::from_ref(&target), precision);
                let variant = &bundle.manifest().variants[0];
                within(&target, variant, &format!("{} for {name} at {}", model.name, precision.name()));
            }
        }
    }
}

/// Checks that a variant of a bundle requires no more limits and features than the profile offers.
#[track_caller]
fn within(target: &TargetProfile, variant: &Variant, what: &str) {
    let (needs, has) = (variant.needed_limits(), &target.limits);
    let features = variant.requirements.features;
    for (limit, needed, offered) in [
        ("storage range", needs.max_storage_buffer_range, has.max_storage_buffer_range),
        ("uniform range", needs.max_uniform_buffer_range, has.max_uniform_range),
        ("allocation", needs.max_buffer_size, has.max_allocation),
        ("invocations", needs.max_workgroup_invocations.into(), has.max_workgroup_invocations.into()),
        ("workgroup memory", needs.max_workgroup_memory.into(), has.max_workgroup_memory.into()),
        ("storage buffers", needs.max_storage_buffers.into(), has.max_storage_buffers.into()),
        ("uniform buffers", needs.max_uniform_buffers.into(), has.max_uniform_buffers.into()),
    ] {
        assert!(
            needed <= offered,
            "{what}: the variant needs a {limit} of {needed}, but the profile offers {offered}"
        );
    }
    for axis in 0..3 {
        assert!(needs.max_workgroup_size[axis] <= has.max_workgroup_size[axis], "{what}: workgroup");
        assert!(needs.max_grid[axis] <= has.max_workgroup_count[axis], "{what}: grid");
    }
    for (feature, offered) in [
        (Feature::ShaderF16, target.features.f16),
        (Feature::Storage16bit, target.features.storage_16),
        (Feature::IntDotProduct, target.features.int_dot_product),
        (Feature::SubgroupSizeControl, target.features.subgroup_size_control),
        (Feature::CooperativeMatrix, target.features.cooperative_matrix),
    ] {
        assert!(offered || !features.contains(feature), "{what}: {} is not there", feature.name());
    }
}

#[test]
fn a_fat_bundle_stores_each_packed_tensor_once() {
    let six = ["adreno-750", "amd-rdna3", "apple-m4", "intel-xe2", "mali-g720", "nvidia-hopper"];
    let targets = six.map(|name| TargetProfile::load(name).unwrap());
    let model = model("mobilenet_v1");
    let fat = bundle(&model, &targets, Precision::F16);
    let manifest = fat.manifest();
    let mut distinct: BTreeMap<Hash, u64> = BTreeMap::new();
    for chunk in &manifest.chunks {
        assert_eq!(distinct.insert(chunk.hash, chunk.size), None, "a chunk is stored twice");
    }
    // The fat bundle holds exactly what the single bundles hold.
    let mut alone: BTreeMap<Hash, u64> = BTreeMap::new();
    let mut sum = 0;
    for target in &targets {
        let single = bundle(&model, std::slice::from_ref(target), Precision::F16);
        sum += single.manifest().chunks.iter().map(|c| c.size).sum::<u64>();
        alone.extend(single.manifest().chunks.iter().map(|c| (c.hash, c.size)));
    }
    assert_eq!(distinct, alone);
    let stored = distinct.values().sum::<u64>();
    assert!(
        stored < sum / 5 * 3,
        "a bundle for six targets must store less than 60 % of the six single bundles' weights, but stores {stored} of {sum} bytes"
    );
}
