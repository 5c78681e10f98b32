//! Tests that load and run bundles on a Vulkan device. They fail without such a device; CI has lavapipe.

mod common;

use common::{WEIGHTS, edited_bundle, small_bundle, with_variant, write_bundle, write_bundle_with};
use drift_runtime::device::{choose_variant, probe, unmet};
use drift_runtime::format::{
    Expr, Feature, Features, Function, HostType, MatrixScope, MatrixShape, MatrixType, SlotKind,
    WeightPlacement,
};
use drift_runtime::{Array, ArrayRef, Bundle, Error, LoadProgress, OnProgress, Options, Session};
use std::sync::{Arc, Mutex};

fn load(bytes: Vec<u8>) -> Result<Session, Error> {
    Session::from_bundle(Bundle::from_vec(bytes)?, &Options::default())
}

fn ids(values: &[i64]) -> Array {
    Array::from_i64(&[1, values.len()], values)
}

#[test]
fn static_functions_run() {
    let mut session = load(small_bundle()).unwrap();
    let x = [1.0f32, 2.0, 3.0, 4.0];
    let outputs = session.run("main", &[("x", Array::from_f32(&[4], &x).as_ref())]).unwrap();
    let expected: Vec<f32> = x.iter().zip(WEIGHTS).map(|(x, w)| x + w + w).collect();
    assert_eq!(outputs, [Array::from_f32(&[2, 2], &expected)]);
}

#[test]
fn symbolic_functions_create_no_objects_after_load() {
    let mut session = load(small_bundle()).unwrap();
    let before = session.stats();
    assert_eq!(before.pipelines, 3);
    for n in [1usize, 7, 8, 9, 64, 100, 3] {
        let values: Vec<i64> = (0..n).map(|i| i64::try_from(i).unwrap() - 5).collect();
        let outputs = session.run("scale", &[("ids", ids(&values).as_ref())]).unwrap();
        let expected: Vec<i64> = values.iter().map(|value| value * 3).collect();
        assert_eq!(outputs, [Array::from_i64(&[n], &expected)], "n = {n}");
    }
    let after = session.stats();
    assert_eq!((after.pipelines, after.allocations), (before.pipelines, before.allocations));
    assert_eq!(after.allocated_bytes, before.allocated_bytes);
}

/// Adds two specializations after function `scale`: for 3 to 7 numbers, which multiplies by 5, and for 5 numbers, which
/// multiplies by 7.
fn with_specializations() -> Vec<u8> {
    edited_bundle(&|variants| {
        let specialize = |general: &Function, min, max, factor| {
            let mut specialization = general.clone();
            (specialization.symbols[0].min, specialization.symbols[0].max) = (min, max);
            specialization.dispatches[0].params[1] = Expr::constant(factor);
            specialization
        };
        let functions = &mut variants[0].functions;
        let (few, five) = (specialize(&functions[1], 3, 7, 5), specialize(&functions[1], 5, 5, 7));
        functions.splice(2..2, [few, five]);
        variants[0].requirements.limits = variants[0].needed_limits();
    })
}

#[test]
fn the_last_matching_specialization_runs() {
    let mut session = load(with_specializations()).unwrap();
    let before = session.stats();
    assert_eq!(session.functions().len(), 5);
    let bounds = |f: &Function| (f.symbols[0].min, f.symbols[0].max);
    assert_eq!(bounds(session.last_replayed("scale").unwrap()), (1, 100));
    for (n, factor, range) in [
        (2usize, 3i64, (1, 100)),
        (3, 5, (3, 7)),
        (5, 7, (5, 5)),
        (7, 5, (3, 7)),
        (8, 3, (1, 100)),
        (5, 7, (5, 5)),
    ] {
        let values: Vec<i64> = (0..n).map(|i| i64::try_from(i).unwrap() - 5).collect();
        let outputs = session.run("scale", &[("ids", ids(&values).as_ref())]).unwrap();
        let expected: Vec<i64> = values.iter().map(|value| value * factor).collect();
        assert_eq!(outputs, [Array::from_i64(&[n], &expected)], "n = {n}");
        assert_eq!(bounds(session.last_replayed("scale").unwrap()), range);
        assert_eq!(session.replay_timed("scale").unwrap().len(), 1);
    }
    assert!(session.run("scale", &[("ids", ids(&[0; 101]).as_ref())]).is_err());
    assert_eq!(session.stats().allocations, before.allocations);
    // Specializations use the ports of the general function, so they add only parameters, which fit existing
    // blocks.
    let single = load(small_bundle()).unwrap().stats();
    assert_eq!((before.allocations, before.allocated_bytes), (single.allocations, single.allocated_bytes));
}

/// Returns a bundle with weights in chunks of odd sizes with gaps, some larger than the staging window.
fn large_weights() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.drift");
    let sizes = [5_000_003usize, 1, 13 << 20, 4 << 20, 77];
    let mut chunks = Vec::new();
    write_bundle_with(
        &path,
        &mut |writer| {
            for (number, size) in sizes.iter().enumerate() {
                let chunk = writer.chunk(|out| {
                    let bytes: Vec<u8> = (0..*size).map(|at| large_byte(number, at)).collect();
                    bytes.chunks(1 << 20).try_for_each(|part| out.write_all(part))
                });
                chunks.push(chunk?);
            }
            Ok(())
        },
        &|variants| {
            let variant = &mut variants[0];
            let mut end = variant.weights[0].size;
            for (number, size) in sizes.iter().enumerate() {
                let offset = end.next_multiple_of(4) + 8;
                let chunk = u32::try_from(number + 1).unwrap();
                variant.placements.push(WeightPlacement { chunk, slot: 0, offset });
                end = offset + *size as u64;
            }
            variant.weights[0].size = end.next_multiple_of(256) + 256;
            let main = &mut variant.functions[0];
            main.slots[3].size = variant.weights[0].size;
            variant.requirements.limits = variant.needed_limits();
        },
    )
    .unwrap()
}

fn large_byte(number: usize, at: usize) -> u8 {
    // Bits of small floats, so that sums are exact.
    if at % 4 == 3 {
        0x40
    } else {
        u8::try_from((at / 4 * 7 + number * 31) % 16 * 16 * usize::from(at % 4 == 2)).unwrap()
    }
}

#[test]
fn staged_and_direct_uploads_agree() {
    let bytes = large_weights();
    let bundle = Bundle::from_vec(bytes.clone()).unwrap();
    let variant = &bundle.manifest().variants[0];
    let mut expected = vec![0u8; usize::try_from(variant.weights[0].size).unwrap()];
    for placement in &variant.placements {
        let chunk = &bundle.manifest().chunks[placement.chunk as usize];
        let (from, to) = (usize::try_from(chunk.offset).unwrap(), usize::try_from(placement.offset).unwrap());
        let size = usize::try_from(chunk.size).unwrap();
        expected[to..to + size].copy_from_slice(&bundle.bytes()[from..from + size]);
    }
    for always_stage in [false, true] {
        // Each load reads other weights. All three bindings of the weights slot move together, so y = x + 3 * w.
        for weights_offset in [
            0u64,
            256,
            512,
            4 << 20,
            (5 << 20) + 256,
            16 << 20,
            (21 << 20) + 512,
            expected.len() as u64 - 256,
        ] {
            let weights_offset = weights_offset / 256 * 256;
            let moved = {
                let mut variants = variant.clone();
                // The same weights again, in a second slot.
                let again = variant.placements.iter().cloned();
                variants.placements.extend(again.map(|placement| WeightPlacement { slot: 1, ..placement }));
                variants.weights.push(variant.weights[0].clone());
                variants.requirements.limits = variants.needed_limits();
                if weights_offset >= 4 << 20 {
                    variants.functions[0].slots[3].kind = SlotKind::Weights(1);
                }
                for dispatch in &mut variants.functions[0].dispatches {
                    for binding in dispatch.bindings.iter_mut().filter(|binding| binding.slot == 3) {
                        binding.offset = weights_offset;
                    }
                }
                variants
            };
            let options = Options { always_stage, ..Options::default() };
            let mut session = Session::from_bundle(with_variant(&bytes, moved), &options).unwrap();
            let y = session.run("main", &[("x", Array::from_f32(&[4], &[0.0; 4]).as_ref())]).unwrap();
            let start = usize::try_from(weights_offset).unwrap();
            let weights =
                Array { dtype: HostType::F32, shape: vec![4], bytes: expected[start..start + 16].to_vec() };
            let sums: Vec<f64> = weights.to_f64().iter().map(|weight| 3.0 * weight).collect();
            assert_eq!(
                y[0].to_f64(),
                sums,
                "weights at offset {weights_offset}, always_stage {always_stage}"
            );
        }
    }
}

#[test]
fn damage_in_any_section_is_detected() {
    let bytes = large_weights();
    let bundle = Bundle::from_vec(bytes.clone()).unwrap();
    for extent in bundle.manifest().extents() {
        let mut damaged = bytes.clone();
        damaged[usize::try_from(extent.offset + extent.size - 1).unwrap()] ^= 1;
        let error = load(damaged).err().unwrap().to_string();
        assert!(error.contains(&extent.section), "{}: {error}", extent.section);
    }
    // A trusted file is loaded without verification.
    let mut damaged = bytes.clone();
    damaged[usize::try_from(bundle.manifest().chunks[1].offset).unwrap()] ^= 1;
    let options = Options { trust_file: true, ..Options::default() };
    assert!(Session::from_bundle(Bundle::from_vec(damaged).unwrap(), &options).is_ok());
}

#[test]
fn inputs_and_outputs_are_staged() {
    let options = Options { always_stage: true, ..Options::default() };
    let mut session = Session::from_bundle(Bundle::from_vec(small_bundle()).unwrap(), &options).unwrap();
    let allocations = session.stats().allocations;
    // Runs with new copies, and repeated runs, the third of which uses its recorded command buffer.
    for n in [3usize, 100, 100, 100, 1, 1, 100, 3, 3, 3] {
        let values: Vec<i64> = (0..n).map(|i| i64::try_from(i * 7 % (n + 2)).unwrap()).collect();
        let outputs = session.run("scale", &[("ids", ids(&values).as_ref())]).unwrap();
        assert_eq!(outputs[0].to_f64(), values.iter().map(|value| *value as f64 * 3.0).collect::<Vec<_>>());
        session.replay("scale").unwrap();
        assert_eq!(session.read_output("scale", "tripled").unwrap(), outputs[0]);
    }
    assert_eq!(session.stats().allocations, allocations);
}

#[test]
fn states_persist_until_reset() {
    let mut session = load(small_bundle()).unwrap();
    let half = [1.0f32, 2.0, -0.5, 0.25].map(|value| half::f16::from_f32(value).to_le_bytes()).concat();
    let x = ArrayRef { dtype: HostType::F16, shape: &[4], bytes: &half };
    for n in [1.0, 2.0, 3.0] {
        let outputs = session.run("sum", &[("x", x)]).unwrap();
        assert_eq!(outputs[0].dtype, HostType::F64);
        assert_eq!(outputs[0].to_f64(), [n, 2.0 * n, -0.5 * n, 0.25 * n]);
    }
    session.reset_states().unwrap();
    assert_eq!(session.run("sum", &[("x", x)]).unwrap()[0].to_f64(), [1.0, 2.0, -0.5, 0.25]);
}

#[test]
fn write_replay_and_read_are_separate_steps() {
    let mut session = load(small_bundle()).unwrap();
    assert!(matches!(session.replay("main"), Err(Error::Missing { kind: "input", .. })));
    session.write_input("main", "x", Array::from_f32(&[4], &[0.0; 4]).as_ref()).unwrap();
    assert!(matches!(session.read_output("main", "y"), Err(Error::NotRun(_))));
    session.replay_on_device("main").unwrap();
    assert!(matches!(session.read_output("main", "y"), Err(Error::NotRun(_))));
    session.replay("main").unwrap();
    let y = session.read_output("main", "y").unwrap();
    assert_eq!(y.to_f64(), WEIGHTS.map(|weight| f64::from(weight) * 2.0));
}

#[test]
fn dispatches_are_timed() {
    let mut session = load(small_bundle()).unwrap();
    session.write_input("main", "x", Array::from_f32(&[4], &[0.0; 4]).as_ref()).unwrap();
    for _ in 0..2 {
        let times = session.replay_timed("main").unwrap();
        assert_eq!(times.len(), 3);
        assert!(times.windows(2).all(|pair| pair[0].end <= pair[1].end), "{times:?}");
    }
    assert!(session.read_output("main", "y").is_ok());
}

#[test]
fn invalid_requests_are_errors() {
    let mut session = load(small_bundle()).unwrap();
    let four = Array::from_f32(&[4], &[0.0; 4]);
    let error = session.run("mian", &[]).unwrap_err();
    assert!(matches!(&error, Error::NoSuchFunction { known, .. } if known.len() == 3), "{error}");
    let error = session.run("main", &[("z", four.as_ref())]).unwrap_err();
    assert_eq!(error.to_string(), "function `main` has no input `z`; there are: `x`");
    let error = session.run("main", &[]).unwrap_err();
    assert!(matches!(&error, Error::Missing { name, .. } if name == "x"), "{error}");
    let error = session.run("main", &[("x", ids(&[1, 2]).as_ref())]).unwrap_err();
    assert!(
        matches!(error, Error::WrongType { expected: HostType::F32, given: HostType::I64, .. }),
        "{error}"
    );
    let error = session.run("main", &[("x", Array::from_f32(&[5], &[0.0; 5]).as_ref())]).unwrap_err();
    assert_eq!(error.to_string(), "`x` takes shape [4], but the array given has shape [5]");
    let error = session.run("main", &[("x", Array::from_f32(&[1, 4], &[0.0; 4]).as_ref())]).unwrap_err();
    assert!(matches!(error, Error::WrongShape { .. }), "{error}");
    let short = ArrayRef { dtype: HostType::F32, shape: &[4], bytes: &[0; 15] };
    let error = session.run("main", &[("x", short)]).unwrap_err();
    assert!(matches!(error, Error::WrongLength { expected: 16, given: 15, .. }), "{error}");
    let error = session.run("scale", &[("ids", ids(&[0; 101]).as_ref())]).unwrap_err();
    assert!(matches!(&error, Error::OutOfBounds { given: 101, max: 100, dimension: 1, .. }), "{error}");
    let error = session.run("scale", &[("ids", ids(&[]).as_ref())]).unwrap_err();
    assert!(matches!(&error, Error::OutOfBounds { given: 0, min: 1, .. }), "{error}");
    let error = session.run("scale", &[("ids", ids(&[1, 1 << 40]).as_ref())]).unwrap_err();
    assert!(matches!(&error, Error::ValueOutOfRange { index: 1, .. }), "{error}");
    assert!(matches!(session.replay("scale"), Err(Error::Missing { .. })));
    let huge = ArrayRef { dtype: HostType::F32, shape: &[usize::MAX, usize::MAX], bytes: &[] };
    assert!(session.run("main", &[("x", huge)]).is_err());
    assert!(session.set_symbol("scale", "m", 1).is_err());
    session.set_symbol("scale", "n", 4).unwrap();
    let error = session.run("scale", &[("ids", ids(&[1, 2]).as_ref())]).unwrap_err();
    assert!(matches!(error, Error::WrongShape { .. }), "{error}");
    assert!(session.run("scale", &[("ids", ids(&[1, 2, 3, 4]).as_ref())]).is_ok());
}

#[test]
fn every_unmet_requirement_is_listed() {
    let bytes = edited_bundle(&|variants| {
        let requirements = &mut variants[0].requirements;
        requirements.api_version.minor = 99;
        requirements.features = Features(1 << 62 | Feature::CooperativeMatrix.bit());
        requirements.limits.max_workgroup_memory = 1 << 30;
        requirements.subgroup_sizes = vec![2];
        let f64_matrix = MatrixType::F64;
        requirements.matrix_shapes = vec![MatrixShape {
            m: 3,
            n: 5,
            k: 7,
            a: f64_matrix,
            b: f64_matrix,
            c: f64_matrix,
            result: f64_matrix,
            scope: MatrixScope::Device,
            saturating: true,
        }];
    });
    let Err(error) = load(bytes) else { panic!("it loaded") };
    let text = error.to_string();
    assert!(matches!(error, Error::Unmet { .. }), "{text}");
    for part in ["any:", "Vulkan 1.99", "feature number 62", "max_workgroup_memory", "subgroup size", "3x5x7"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn hints_select_the_variant() {
    let device = probe(None).unwrap();
    let name = device.name.to_uppercase();
    let bytes = edited_bundle(&|variants| {
        let mut unfit = variants[0].clone();
        unfit.requirements.features = Features(1 << 63);
        unfit.requirements.hints.device_names = vec![name.clone()];
        let mut hinted = variants[0].clone();
        hinted.target = "hinted".to_owned();
        hinted.requirements.hints.vendor_ids = vec![device.vendor_id];
        variants.push(unfit);
        variants.push(hinted);
    });
    let bundle = Bundle::from_vec(bytes.clone()).unwrap();
    assert_eq!(choose_variant(bundle.manifest(), &device).unwrap(), 2);
    assert_eq!(unmet(bundle.manifest(), &bundle.manifest().variants[1], &device).len(), 1);
    assert_eq!(load(bytes.clone()).unwrap().variant().target, "hinted");
    let options = |target: &str| Options { target: Some(target.to_owned()), ..Options::default() };
    let session = Session::from_bundle(Bundle::from_vec(bytes.clone()).unwrap(), &options("any")).unwrap();
    assert_eq!(session.variant().target, "any");
    let none = Session::from_bundle(Bundle::from_vec(bytes).unwrap(), &options("none"));
    assert!(matches!(none, Err(Error::NoSuchTarget { .. })));
}

#[test]
fn unknown_devices_are_errors() {
    let options = Options { device: Some("no such device".to_owned()), ..Options::default() };
    let result = Session::from_bundle(Bundle::from_vec(small_bundle()).unwrap(), &options);
    match result {
        Err(Error::NoDevice { wanted: Some(wanted), found }) => {
            assert_eq!(wanted, "no such device");
            assert!(!found.is_empty());
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn damaged_weights_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.drift");
    let mut bytes = write_bundle(&path, &|_| ()).unwrap();
    assert!(Session::load(&path, &Options::default()).is_ok());
    let chunk = Bundle::from_vec(bytes.clone()).unwrap().manifest().chunks[0].offset;
    bytes[usize::try_from(chunk).unwrap() + 3] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    match Session::load(&path, &Options::default()) {
        Err(Error::Corrupt { section, at, .. }) => assert_eq!((section.as_str(), at), ("chunk 0", chunk)),
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn shaders_without_their_entry_point_are_rejected() {
    let bytes = edited_bundle(&|variants| variants[0].pipelines[0].entry = "other".to_owned());
    match load(bytes) {
        Err(Error::Invalid { reason, .. }) => assert!(reason.contains("`other`"), "{reason}"),
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn a_bundle_without_functions_loads() {
    let bytes = edited_bundle(&|variants| {
        variants[0].functions.clear();
        variants[0].pipelines.clear();
    });
    assert_eq!(load(bytes).unwrap().functions().len(), 0);
}

#[test]
fn the_pipeline_cache_survives_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipelines.bin");
    let options = Options { pipeline_cache: Some(path.clone()), ..Options::default() };
    let session = || Session::from_bundle(Bundle::from_vec(small_bundle()).unwrap(), &options);
    session().unwrap();
    let first = std::fs::read(&path).unwrap();
    session().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
    for damage in [b"".as_slice(), b"nonsense", &first[..first.len() - 1]] {
        std::fs::write(&path, damage).unwrap();
        session().unwrap();
        assert!(std::fs::read(&path).unwrap().len() >= 72);
    }
    // An unwritable path disables only the cache.
    let options =
        Options { pipeline_cache: Some(folder.path().join("no/such/folder/x")), ..Options::default() };
    Session::from_bundle(Bundle::from_vec(small_bundle()).unwrap(), &options).unwrap();
}

#[test]
fn loading_reports_every_created_pipeline() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    let on_progress = OnProgress::new(move |progress| seen.lock().unwrap().push(progress));
    let options = Options { on_progress: Some(on_progress), ..Options::default() };
    let session = Session::from_bundle(Bundle::from_vec(small_bundle()).unwrap(), &options).unwrap();
    let total = u32::try_from(session.variant().pipelines.len()).unwrap();
    assert!(total > 1);
    let expected = |total| (0..=total).map(|pipelines| LoadProgress { pipelines, total }).collect::<Vec<_>>();
    assert_eq!(std::mem::take(&mut *calls.lock().unwrap()), expected(total));
    // Bundles that are loaded together are counted together.
    let bundles = [(); 2].map(|()| Bundle::from_vec(small_bundle()).unwrap());
    Session::load_together(bundles.into(), &options).unwrap();
    assert_eq!(*calls.lock().unwrap(), expected(2 * total));
}

#[test]
fn the_probe_reports_the_device() {
    let device = probe(None).unwrap();
    assert!(!device.name.is_empty() && !device.driver_name.is_empty());
    assert!(device.features.contains(Feature::SubgroupBasic), "{:?}", device.features);
    assert!(device.limits.max_storage_buffer_range >= 1 << 27);
    assert!(device.limits.max_workgroup_invocations >= 128 && device.limits.device_memory > 0);
    assert!(device.subgroup_size.is_power_of_two() && device.min_subgroup_size <= device.subgroup_size);
}

#[test]
fn every_feature_of_the_device_can_be_required() {
    let device = probe(None).unwrap();
    let bytes = edited_bundle(&|variants| {
        let requirements = &mut variants[0].requirements;
        requirements.features = device.features;
        requirements.api_version = device.api_version;
        requirements.subgroup_sizes = vec![device.subgroup_size];
        requirements.matrix_shapes = device.matrix_shapes.clone();
        if device.features.contains(Feature::SubgroupSizeControl) {
            variants[0].pipelines[1].required_subgroup_size = Some(device.max_subgroup_size);
        }
    });
    let mut session = load(bytes).unwrap();
    assert_eq!(session.run("scale", &[("ids", ids(&[7]).as_ref())]).unwrap()[0].to_f64(), [21.0]);
}

#[test]
fn sessions_can_move_between_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<Session>();
}
