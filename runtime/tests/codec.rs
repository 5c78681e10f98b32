//! Tests of the bundle format: the reader returns what was written, and malformed bytes give errors, never panics.

mod common;

use common::{edited_bundle, encode, small_bundle, with_manifest, with_minor, write_bundle};
use drift_runtime::codec::{VERSION_MINOR, read_manifest, read_manifest_as};
use drift_runtime::format::{
    ArtifactKind, Expr, ExprOp, Function, Hash, HostType, Manifest, SlotKind, Variant,
};
use drift_runtime::{Bundle, Error};

fn read(bytes: Vec<u8>) -> Result<Bundle, Error> {
    let bundle = Bundle::from_vec(bytes)?;
    bundle.verify()?;
    Ok(bundle)
}

fn manifest_bytes(file: &[u8]) -> &[u8] {
    let offset = u64::from_le_bytes(file[24..32].try_into().unwrap());
    &file[usize::try_from(offset).unwrap()..]
}

#[test]
fn written_bundles_read_back() {
    let bundle = read(small_bundle()).unwrap();
    let variant = &bundle.manifest().variants[0];
    assert_eq!(variant.target, "any");
    assert_eq!(variant.functions.len(), 3);
    assert_eq!(bundle.attachment("vocabulary.txt").unwrap(), Some(b"one\ntwo\n".as_slice()));
    assert_eq!(bundle.attachment("merges.txt").unwrap(), None);
    let again = encode(bundle.manifest());
    assert_eq!(again, manifest_bytes(bundle.bytes()));
}

#[test]
fn writing_is_deterministic_and_leaves_no_temporary_file() {
    assert_eq!(small_bundle(), small_bundle());
    let folder = tempfile::tempdir().unwrap();
    write_bundle(&folder.path().join("a.drift"), &|_| ()).unwrap();
    let result = write_bundle(&folder.path().join("b.drift"), &|variants| variants.clear());
    assert!(matches!(result, Err(Error::Invalid { .. })));
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a.drift"]);
}

#[test]
fn equal_chunks_are_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chunks.drift");
    let mut writer = drift_runtime::codec::BundleWriter::create(&path).unwrap();
    let a = writer.chunk(|out| out.write_all(&[1; 1000])).unwrap();
    let b = writer.chunk(|out| out.write_all(&[2; 3000])).unwrap();
    let again = writer.chunk(|out| out.write_all(&[1; 1000])).unwrap();
    assert_eq!((a, b, again), (0, 1, 0));
    assert!(writer.chunk(|_| Ok(())).is_err());
    let last = writer.chunk(|out| out.write_all(&[2; 3000])).unwrap();
    assert_eq!(last, 1);
    let summary = writer.finish(Default::default(), vec![Variant::default()]).unwrap();
    assert_eq!(summary.chunk_bytes, 4000);
    assert_eq!(summary.file_size, std::fs::metadata(&path).unwrap().len());
    let bundle = Bundle::open(&path).unwrap();
    bundle.verify().unwrap();
    let offsets: Vec<u64> = bundle.manifest().chunks.iter().map(|chunk| chunk.offset).collect();
    assert_eq!(offsets, [256, 1280]);
}

#[test]
fn every_flipped_byte_is_an_error() {
    let bytes = small_bundle();
    for index in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[index] ^= flip;
            assert!(read(damaged).is_err(), "byte {index} ^ {flip:#x}");
        }
    }
}

#[test]
fn every_truncation_and_extension_is_an_error() {
    let bytes = small_bundle();
    for length in 0..bytes.len() {
        assert!(read(bytes[..length].to_vec()).is_err(), "length {length}");
    }
    assert!(read([bytes.as_slice(), &[0]].concat()).is_err());
}

#[test]
fn damaged_manifests_with_valid_hashes_never_panic() {
    let bytes = small_bundle();
    let manifest = manifest_bytes(&bytes);
    let mut n_errors = 0;
    for index in 0..manifest.len() {
        for flip in [0x01, 0x02, 0x10, 0x80, 0xff] {
            let mut damaged = manifest.to_vec();
            damaged[index] ^= flip;
            n_errors += u32::from(read_manifest(&with_manifest(&bytes, &damaged)).is_err());
        }
        assert!(read_manifest(&with_manifest(&bytes, &manifest[..index])).is_err(), "length {index}");
    }
    assert!(n_errors > 0);
    let longer = [manifest, &[0]].concat();
    assert!(matches!(read_manifest(&with_manifest(&bytes, &longer)), Err(Error::Corrupt { .. })));
}

#[test]
fn huge_counts_are_rejected_quickly() {
    let bytes = small_bundle();
    let start = std::time::Instant::now();
    // Replaces every byte by the length 2^64 - 1, so that every list and string length is tested.
    let huge = [253, 255, 255, 255, 255, 255, 255, 255, 255];
    let manifest = manifest_bytes(&bytes);
    let mut n_accepted = 0;
    for index in 0..manifest.len() {
        let hostile = [&manifest[..index], &huge, &manifest[index + 1..]].concat();
        n_accepted += usize::from(read_manifest(&with_manifest(&bytes, &hostile)).is_ok());
    }
    // Some bytes belong to plain numbers that may be large, such as limits, report sizes and feature bits.
    assert!(n_accepted < manifest.len() / 10, "{n_accepted} of {}", manifest.len());
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn other_versions_and_other_files_are_rejected() {
    let mut bytes = small_bundle();
    bytes[8] = 2;
    let hash = Hash::digest(&bytes[..96]);
    bytes[96..128].copy_from_slice(&hash.0);
    assert!(matches!(read(bytes), Err(Error::Version { .. })));
    assert!(matches!(read(b"PK\x03\x04 something else".to_vec()), Err(Error::NotABundle)));
    assert!(matches!(read(Vec::new()), Err(Error::NotABundle)));
    assert!(matches!(Bundle::open("no such file".as_ref()), Err(Error::Io { .. })));
}

/// Returns the bundle with a manifest in which the kind of the first artifact has a number that no version lists.
fn with_unknown_value(file: &[u8]) -> Vec<u8> {
    let mut manifest = read_manifest(file).unwrap();
    let mut bytes = encode(&manifest);
    manifest.artifacts[0].kind = ArtifactKind::Hlsl;
    let other = encode(&manifest);
    let kind = bytes.iter().zip(&other).position(|(a, b)| a != b).unwrap();
    bytes[kind] = 200;
    with_manifest(file, &bytes)
}

#[test]
fn a_later_minor_version_matters_only_if_its_additions_are_used() {
    let next = VERSION_MINOR + 1;
    let bytes = small_bundle();
    let manifest = read_manifest(&bytes).unwrap();
    for minor in [0, VERSION_MINOR, next, u16::MAX] {
        assert_eq!(read(with_minor(&bytes, minor)).unwrap().manifest(), &manifest);
    }
    assert_eq!(read_manifest_as(&bytes, next).unwrap(), manifest);
    let message = |file: &[u8], known| read_manifest_as(file, known).unwrap_err().to_string();
    let versions = format!("needs format version 1.{next}, but this runtime knows version 1.{VERSION_MINOR}");
    let unknown = with_unknown_value(&bytes);
    let claimed = with_minor(&unknown, next);
    assert!(message(&claimed, VERSION_MINOR).contains(&versions));
    // Bytes after the manifest may be an addition. A shortened bundle is damaged.
    let longer = [with_minor(&bytes, next).as_slice(), b"more"].concat();
    assert!(message(&longer, VERSION_MINOR).contains(&versions));
    assert!(message(&claimed[..claimed.len() - 1], VERSION_MINOR).contains("corrupt bundle"));
    // A reader of the version that a bundle claims knows all its additions, so the bundle is damaged.
    assert!(message(&unknown, VERSION_MINOR).contains("corrupt bundle, manifest"));
    assert!(message(&claimed, next).contains("corrupt bundle, manifest"));
}

/// Inserts a specialization after function `scale`: a copy of the function that `edit` has modified.
fn add_specialization(manifest: &mut Manifest, edit: fn(&mut Function)) {
    let functions = &mut manifest.variants[0].functions;
    let mut specialization = functions[1].clone();
    specialization.symbols[0].max = 7;
    edit(&mut specialization);
    functions.insert(2, specialization);
}

#[test]
fn invalid_manifests_are_rejected_with_their_place() {
    type Edit = (&'static str, fn(&mut Manifest));
    let edits: &[Edit] = &[
        ("variants[0].pipelines[1]", |m| m.variants[0].pipelines[1].artifact = 99),
        ("variants[0].pipelines[0]", |m| m.variants[0].pipelines[0].artifact = 3),
        ("variants[0].pipelines[0]", |m| m.variants[0].pipelines[0].entry = "a\0b".to_owned()),
        ("variants[0].pipelines[0]", |m| m.variants[0].pipelines[0].required_subgroup_size = Some(32)),
        ("variants[0].pipelines[0]", |m| m.variants[0].pipelines[0].workgroup_size = [0, 1, 1]),
        ("variants[0].placements.[0]", |m| m.variants[0].placements[0].chunk = 1),
        ("variants[0].placements.[0]", |m| m.variants[0].placements[0].offset = u64::MAX - 3),
        ("variants[0].placements", |m| {
            let mut second = m.variants[0].placements[0].clone();
            second.offset = 260;
            m.variants[0].placements.push(second);
        }),
        ("variants[0].functions[0].slots[3]", |m| m.variants[0].functions[0].slots[3].size = 1024),
        ("variants[0].functions[0].slots[0]", |m| {
            m.variants[0].functions[0].slots[0].kind = SlotKind::Input(7);
        }),
        ("variants[0].functions[0].slots[0]", |m| m.variants[0].functions[0].inputs[0].slot = 1),
        ("variants[0].functions[0].inputs[0]", |m| {
            m.variants[0].functions[0].inputs[0].shape.push(Expr::constant(9));
        }),
        ("variants[0].functions[0].inputs[0]", |m| {
            m.variants[0].functions[0].inputs[0].shape.push(Expr::constant(-1));
        }),
        ("variants[0].functions[0].dispatches[0].bindings[0]", |m| {
            m.variants[0].functions[0].dispatches[0].bindings[0].offset = 4;
        }),
        ("variants[0].functions[0].dispatches[0].bindings[2]", |m| {
            // A write to the weights.
            m.variants[0].functions[0].dispatches[0].bindings[2].slot = 3;
        }),
        ("variants[0].functions[0].dispatches[0].bindings[1]", |m| {
            m.variants[0].functions[0].dispatches[0].bindings[1].size = 1 << 40;
        }),
        ("variants[0].functions[0].dispatches[0]", |m| {
            m.variants[0].functions[0].dispatches[0].bindings.pop();
        }),
        ("variants[0].functions[0].dispatches[1]", |m| {
            m.variants[0].functions[0].dispatches[1].grid[2] = Expr::constant(1 << 33);
        }),
        ("variants[0].functions[0].dispatches[1].expression", |m| {
            m.variants[0].functions[0].dispatches[1].grid[2] = Expr::symbol(0);
        }),
        ("variants[0].functions[1].dispatches[0].expression", |m| {
            m.variants[0].functions[1].dispatches[0].params[0] = Expr(vec![ExprOp::Add]);
        }),
        ("variants[0].functions[1].dispatches[0]", |m| {
            m.variants[0].functions[1].dispatches[0].params_offset = 4;
        }),
        ("variants[0].functions[1]", |m| m.variants[0].functions[1].symbols[0].min = 101),
        ("variants[0].functions[1].inputs[0]", |m| m.variants[0].functions[1].symbols[0].max = 101),
        ("variants[0].functions", |m| m.variants[0].functions[2].name = "main".to_owned()),
        ("variants[0].functions[1]", |m| m.variants[0].functions[1].name = "main".to_owned()),
        ("variants[0].functions[2]", |m| {
            add_specialization(m, |specialization| specialization.symbols[0].max = 101);
        }),
        ("variants[0].functions[2]", |m| {
            add_specialization(m, |specialization| specialization.symbols[0].name.push('m'));
        }),
        ("variants[0].functions[2]", |m| {
            add_specialization(m, |specialization| specialization.inputs.clear());
        }),
        ("variants[0].functions[2]", |m| {
            add_specialization(m, |specialization| specialization.slots[1].size = 396);
        }),
        ("variants[0].functions[2]", |m| add_specialization(m, |s| s.outputs[0].host_type = HostType::I32)),
        ("variants[0].requirements", |m| m.variants[0].requirements.limits.storage_alignment = 3),
        ("variants[0].requirements.limits", |m| {
            m.variants[0].requirements.limits.max_workgroup_invocations = 4;
        }),
        ("attachments[0]", |m| m.attachments[0].artifact = 0),
        ("chunks[0]", |m| m.chunks[0].offset += 4),
        ("artifacts[0]", |m| m.artifacts[0].size = 2),
    ];
    let bytes = small_bundle();
    let manifest = read_manifest(&bytes).unwrap();
    for (index, (expected, edit)) in edits.iter().enumerate() {
        let mut edited = manifest.clone();
        edit(&mut edited);
        match read_manifest(&with_manifest(&bytes, &encode(&edited))) {
            Err(Error::Invalid { place, reason }) => assert_eq!(&place, expected, "edit {index}: {reason}"),
            other => panic!("edit {index}: {:?}", other.map(|_| ())),
        }
    }
}

#[test]
fn sections_that_overlap_or_exceed_the_file_are_rejected() {
    let bytes = small_bundle();
    let manifest = read_manifest(&bytes).unwrap();
    let edits: &[fn(&mut Manifest)] = &[
        |m| m.chunks[0].offset = u64::MAX - 255,
        |m| m.chunks[0].size = u64::MAX,
        |m| m.artifacts[0].offset = m.artifacts[1].offset,
        |m| m.artifacts[1].size += 16,
        |m| m.artifacts[0].offset = 0,
        |m| m.chunks.clear(),
    ];
    for (index, edit) in edits.iter().enumerate() {
        let mut edited = manifest.clone();
        edit(&mut edited);
        assert!(read_manifest(&with_manifest(&bytes, &encode(&edited))).is_err(), "edit {index}");
    }
}

#[test]
fn valid_edits_are_accepted() {
    let bytes = edited_bundle(&|variants| {
        let mut second = variants[0].clone();
        second.target = "another".to_owned();
        variants.push(second);
    });
    assert_eq!(read(bytes).unwrap().manifest().variants.len(), 2);
    let mut manifest = read_manifest(&small_bundle()).unwrap();
    add_specialization(&mut manifest, |_| ());
    manifest.variants[0].requirements.limits = manifest.variants[0].needed_limits();
    let file = with_manifest(&small_bundle(), &encode(&manifest));
    assert_eq!(read_manifest(&file).unwrap().variants[0].functions.len(), 4);
}
