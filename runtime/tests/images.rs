//! Tests of images and texel buffers on the device of the tests, in a bundle built by hand.

mod common;

use common::write_bundle_with;
use drift_runtime::device::{probe, unmet};
use drift_runtime::format::{
    Binding, BindingKind, DeviceType, Dispatch, Expr, Feature, Function, HostType, Image, ImageKind,
    Pipeline, Port, Slot, SlotKind, Texture, Variant, WeightPlacement, WeightSlot,
};
use drift_runtime::{Array, Bundle, Error, Options, Session};
use std::cell::RefCell;

const TEXELS: usize = 8;

/// Constants that increase by one per texel.
fn constants() -> Vec<f32> {
    (0..TEXELS * 4).map(|i| (i / 4) as f32).collect()
}

fn f16_constants() -> Vec<u8> {
    constants().into_iter().flat_map(|value| half::f16::from_f32(value * 2.0).to_le_bytes()).collect()
}

fn texture(kind: ImageKind, element: DeviceType) -> Texture {
    Texture { kind, element }
}

fn image(texture: Texture, extent: [u32; 3], chunk: Option<u32>) -> Slot {
    let image = Image { texture, extent, chunk };
    Slot { kind: SlotKind::Image(image), size: image.size().unwrap_or(0) }
}

/// Function `main` writes x plus the constants to three images, multiplied by 1, 2 and 4. It adds the sum of the images
/// to twice the constants, which are read from an f16 buffer.
fn variant([to, from, texels]: [u32; 3], [flat, f16_chunk]: [u32; 2]) -> Variant {
    use BindingKind::{ImageRead, ImageWrite, StorageRead, StorageReadWrite, Texels};
    let d2 = texture(ImageKind::D2, DeviceType::F32);
    let layered = texture(ImageKind::D2Array, DeviceType::F16);
    let solid = texture(ImageKind::D3, DeviceType::I32);
    let slots = vec![
        Slot { kind: SlotKind::Input(0), size: 128 },
        Slot { kind: SlotKind::Output(0), size: 128 },
        Slot { kind: SlotKind::Arena, size: 128 },
        Slot { kind: SlotKind::Weights(0), size: 320 },
        image(d2, [4, 2, 1], Some(flat)),
        image(d2, [4, 2, 1], None),
        image(layered, [2, 2, 2], None),
        image(solid, [2, 2, 2], None),
    ];
    let function = Function {
        name: "main".to_owned(),
        inputs: vec![port("x", 0)],
        outputs: vec![port("y", 1)],
        dispatches: vec![
            dispatch(0, &slots, &[0, 4, 5, 6, 7], false),
            dispatch(1, &slots, &[5, 6, 7, 2], true),
            dispatch(2, &slots, &[3, 2, 1], true),
        ],
        slots,
        ..Function::default()
    };
    let mut variant = Variant {
        target: "any".to_owned(),
        pipelines: vec![
            pipeline(
                "to_images",
                to,
                &[StorageRead, ImageRead(d2), ImageWrite(d2), ImageWrite(layered), ImageWrite(solid)],
            ),
            pipeline(
                "from_images",
                from,
                &[ImageRead(d2), ImageRead(layered), ImageRead(solid), StorageReadWrite],
            ),
            pipeline("from_texels", texels, &[Texels(DeviceType::F16), StorageRead, StorageReadWrite]),
        ],
        weights: vec![WeightSlot { size: 320 }],
        placements: vec![WeightPlacement { chunk: f16_chunk, slot: 0, offset: 256 }],
        functions: vec![function],
        ..Variant::default()
    };
    variant.requirements.features.insert(Feature::RobustImageAccess2);
    variant.requirements.limits = variant.needed_limits();
    variant
}

fn pipeline(name: &str, artifact: u32, bindings: &[BindingKind]) -> Pipeline {
    Pipeline {
        name: name.to_owned(),
        artifact,
        entry: "main".to_owned(),
        bindings: bindings.to_vec(),
        required_subgroup_size: None,
        workgroup_size: [8, 1, 1],
        workgroup_memory: 0,
    }
}

/// A dispatch of one workgroup that binds whole slots, except slot 3: there it binds only the 64 bytes of f16 constants
/// at offset 256.
fn dispatch(pipeline: u32, slots: &[Slot], slot_indices: &[u32], barrier_before: bool) -> Dispatch {
    let binding = |slot: &u32| {
        let size = slots[*slot as usize].size;
        let (offset, size) = if *slot == 3 { (256, 64) } else { (0, size) };
        Binding { slot: *slot, offset, size }
    };
    Dispatch {
        pipeline,
        bindings: slot_indices.iter().map(binding).collect(),
        grid: [1, 1, 1].map(Expr::constant),
        params: Vec::new(),
        params_offset: 0,
        barrier_before,
        label: "test".to_owned(),
        flops: Expr::default(),
        bytes: Expr::default(),
    }
}

/// A port of 32 floats at the start of a slot.
fn port(name: &str, slot: u32) -> Port {
    Port {
        name: name.to_owned(),
        host_type: HostType::F32,
        device_type: DeviceType::F32,
        shape: vec![Expr::constant(32)],
        slot,
        offset: 0,
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

fn bundle(edit: &dyn Fn(&mut Variant)) -> Result<Vec<u8>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let added = RefCell::new(None);
    write_bundle_with(
        &folder.path().join("images.drift"),
        &mut |writer| {
            let shaders = [
                writer.spirv(&words(include_bytes!("kernels/to_images.spv")))?,
                writer.spirv(&words(include_bytes!("kernels/from_images.spv")))?,
                writer.spirv(&words(include_bytes!("kernels/from_texels.spv")))?,
            ];
            let flat: Vec<u8> = constants().into_iter().flat_map(f32::to_le_bytes).collect();
            let flat = writer.chunk(|out| out.write_all(&flat))?;
            let f16_chunk = writer.chunk(|out| out.write_all(&f16_constants()))?;
            added.replace(Some((shaders, [flat, f16_chunk])));
            Ok(())
        },
        &|variants| {
            let (shaders, chunks) = added.borrow().unwrap();
            let mut one = variant(shaders, chunks);
            edit(&mut one);
            *variants = vec![one];
        },
    )
}

#[test]
fn all_kinds_of_images_round_trip() {
    let x: Vec<f32> = (0..32).map(|i| i as f32 - 7.0).collect();
    let want: Vec<f32> = x.iter().zip(constants()).map(|(x, c)| 7.0 * (x + c) + 2.0 * c).collect();
    for always_stage in [false, true] {
        let options = Options { always_stage, ..Options::default() };
        let file = Bundle::from_vec(bundle(&|_| ()).unwrap()).unwrap();
        let mut session = Session::from_bundle(file, &options).unwrap();
        let allocations = session.stats().allocations;
        for _ in 0..2 {
            let y = session.run("main", &[("x", Array::from_f32(&[32], &x).as_ref())]).unwrap();
            assert_eq!(y, [Array::from_f32(&[32], &want)]);
        }
        assert_eq!(session.stats().allocations, allocations);
    }
}

#[test]
fn functions_reuse_images_of_equal_description() {
    let file = bundle(&|variant| {
        let mut second = variant.functions[0].clone();
        second.name = "again".to_owned();
        // Another image slot with the description of an existing one.
        let slot = second.slots[5].clone();
        second.slots.push(slot);
        variant.functions.push(second);
        variant.requirements.limits = variant.needed_limits();
    });
    let bundle = Bundle::from_vec(file.unwrap()).unwrap();
    let (images, indices) = bundle.manifest().variants[0].images();
    assert_eq!(images.len(), 5);
    assert_eq!(indices, [0, 1, 2, 3, 0, 1, 2, 3, 4]);
    let mut session = Session::from_bundle(bundle, &Options::default()).unwrap();
    let x = Array::from_f32(&[32], &[0.0; 32]);
    let first = session.run("main", &[("x", x.as_ref())]).unwrap();
    assert_eq!(session.run("again", &[("x", x.as_ref())]).unwrap(), first);
}

#[test]
fn invalid_images_are_rejected() {
    type Edit = (&'static str, fn(&mut Variant));
    fn slot(variant: &mut Variant, index: usize, edit: impl Fn(&mut Image)) {
        let slot = &mut variant.functions[0].slots[index];
        if let SlotKind::Image(image) = &mut slot.kind {
            edit(image);
        }
    }
    let edits: &[Edit] = &[
        ("slots[5]", |v| slot(v, 5, |i| i.extent = [0, 2, 1])),
        ("slots[5]", |v| slot(v, 5, |i| i.extent = [2, 2, 2])),
        ("slots[5]", |v| slot(v, 5, |i| i.extent = [u32::MAX, u32::MAX, 1])),
        ("slots[7]", |v| slot(v, 7, |i| i.extent = [u32::MAX; 3])),
        ("slots[5]", |v| v.functions[0].slots[5].size = 64),
        // A chunk of another size, and a chunk that does not exist.
        ("slots[5]", |v| slot(v, 5, |i| i.chunk = Some(2))),
        ("slots[5]", |v| slot(v, 5, |i| i.chunk = Some(99))),
        // A write to a constant.
        ("dispatches[0].bindings[2]", |v| v.functions[0].dispatches[0].bindings[2].slot = 4),
        // An image instead of a buffer, a buffer instead of an image, another kind, and a partial image.
        ("dispatches[0].bindings[0]", |v| v.functions[0].dispatches[0].bindings[0].slot = 5),
        ("dispatches[0].bindings[1]", |v| v.functions[0].dispatches[0].bindings[1].slot = 0),
        ("dispatches[0].bindings[3]", |v| v.functions[0].dispatches[0].bindings[3].slot = 7),
        ("dispatches[0].bindings[2]", |v| v.functions[0].dispatches[0].bindings[2].size = 64),
    ];
    for (index, (expected, edit)) in edits.iter().enumerate() {
        match bundle(edit) {
            Err(Error::Invalid { place, reason }) => {
                assert_eq!(place, format!("variants[0].functions[0].{expected}"), "edit {index}: {reason}");
            }
            other => panic!("edit {index}: {:?}", other.map(|_| ())),
        }
    }
    let many = bundle(&|variant| {
        let slot = variant.functions[0].slots[5].clone();
        variant.functions[0].slots.extend(std::iter::repeat_n(slot, 5000));
        variant.requirements.limits.device_memory = u64::MAX;
    });
    assert!(matches!(many, Err(Error::Invalid { .. })));
}

#[test]
fn images_that_exceed_the_device_are_listed() {
    let file = bundle(&|variant| {
        let slots = &mut variant.functions[0].slots;
        slots.push(image(texture(ImageKind::D2, DeviceType::F16), [1 << 20, 1, 1], None));
        slots.push(image(texture(ImageKind::D3, DeviceType::F16), [1, 1 << 20, 1], None));
        slots.push(image(texture(ImageKind::D2Array, DeviceType::F16), [1, 1, 1 << 20], None));
        variant.requirements.limits = variant.needed_limits();
    });
    let bundle = Bundle::from_vec(file.unwrap()).unwrap();
    let mut device = probe(None).unwrap();
    device.images.max_storage_images = 2;
    device.images.texel_alignment = 512;
    let reasons = unmet(bundle.manifest(), &bundle.manifest().variants[0], &device).join("\n");
    for part in
        ["max_2d is", "max_3d is", "max_array_layers is", "max_storage_images is 2", "texel_alignment"]
    {
        assert!(reasons.contains(part), "{part} in {reasons}");
    }
}
