//! Generation of a target profile from what a device's driver reports.
//!
//! The profile inherits from the baseline profile. For numbers that the driver does not report, above all speeds, the profile has
//! conservative values. Reported values have the source `probe`.

use drift_format::device::{DeviceInfo, IntDotAcceleration};
use drift_format::{self as format, Feature};
use toml::{Table, Value};

use super::{Api, IntDotSigns, MatrixScope, MatrixShape, MatrixType, SubgroupOp, TargetError, TargetProfile};

const PARENT: &str = "vulkan-baseline";
/// Maximum subgroup size in Vulkan.
const MAX_SUBGROUP: u32 = 128;

const SUBGROUP_OPS: [(Feature, SubgroupOp); 9] = [
    (Feature::SubgroupBasic, SubgroupOp::Basic),
    (Feature::SubgroupVote, SubgroupOp::Vote),
    (Feature::SubgroupArithmetic, SubgroupOp::Arithmetic),
    (Feature::SubgroupBallot, SubgroupOp::Ballot),
    (Feature::SubgroupShuffle, SubgroupOp::Shuffle),
    (Feature::SubgroupShuffleRelative, SubgroupOp::ShuffleRelative),
    (Feature::SubgroupClustered, SubgroupOp::Clustered),
    (Feature::SubgroupQuad, SubgroupOp::Quad),
    (Feature::SubgroupRotate, SubgroupOp::Rotate),
];

impl TargetProfile {
    /// Returns the first built-in profile that matches a device.
    ///
    /// # Errors
    /// If a built-in profile is malformed.
    pub fn for_device(device: &DeviceInfo) -> Result<Option<TargetProfile>, TargetError> {
        let device_name = device.name.to_lowercase();
        for name in super::names() {
            let profile = TargetProfile::load(name)?;
            if profile.api.name != Api::Vulkan {
                continue;
            }
            let vendor = profile.device.vendor_id.is_none_or(|id| id == device.vendor_id);
            if vendor && profile.device.names.iter().any(|part| device_name.contains(&part.to_lowercase())) {
                return Ok(Some(profile));
            }
        }
        Ok(None)
    }
}

/// Returns the TOML of a profile for a device. The default name is derived from the device's name.
///
/// # Errors
/// If values that the driver reports contradict each other, or the name has characters that a profile's name must not have.
pub fn from_device(device: &DeviceInfo, name: Option<&str>) -> Result<String, TargetError> {
    let name = name.map_or_else(|| plain_name(&device.name), str::to_owned);
    let wrong = |error: toml::ser::Error| TargetError::write(&name, &error);
    let mut table = Table::new();
    let driver = format!("{} {}", device.driver_name, device.driver_info);
    table.insert("name".into(), name.as_str().into());
    table.insert("inherits".into(), PARENT.into());
    table.insert("summary".into(), format!("{}, {}", device.name, driver.trim()).into());
    let names = Value::Array(vec![device.name.as_str().into()]);
    table.insert(
        "device".into(),
        value(&[("vendor_id", i64::from(device.vendor_id).into()), ("names", names)]),
    );
    table.insert("limits".into(), limits(device));
    table.insert("features".into(), features(device).map_err(wrong)?);
    let matrix: Vec<MatrixShape> = device.matrix_shapes.iter().filter_map(matrix_shape).collect();
    if !matrix.is_empty() {
        table.insert("matrix".into(), Value::try_from(&matrix).map_err(wrong)?);
    }
    let sizes = subgroup_sizes(device);
    if !sizes.is_empty() {
        let preferred = if sizes.contains(&device.subgroup_size) { device.subgroup_size } else { sizes[0] };
        let sizes = Value::Array(sizes.into_iter().map(|s| i64::from(s).into()).collect());
        let preferred = i64::from(preferred).into();
        table.insert("subgroup".into(), value(&[("sizes", sizes), ("preferred", preferred)]));
    }
    let set = ["device", "limits", "features", "matrix", "subgroup"];
    let sources = set.iter().filter(|key| table.contains_key(**key));
    let told = format!("probe: {}", driver.trim());
    let sources: Vec<(&str, Value)> = sources.map(|key| (*key, told.as_str().into())).collect();
    table.insert("source".into(), value(&sources));
    let text = toml::to_string(&table).map_err(wrong)?;
    let text = format!(
        "# Made by `driftc targets probe`. Values that the driver does not report are inherited and conservative;\n\
         # targets/README.md says how to measure them.\n\n{text}"
    );
    TargetProfile::from_toml(&text, &format!("{name}.toml"))?;
    Ok(text)
}

fn value(entries: &[(&str, Value)]) -> Value {
    Value::Table(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

fn limits(device: &DeviceInfo) -> Value {
    let (limits, images) = (&device.limits, &device.images);
    // Numbers beyond TOML's range are effectively unlimited.
    let number = |n: u64| Value::from(i64::try_from(n).unwrap_or(i64::MAX));
    let sizes = |sizes: [u32; 3]| Value::Array(sizes.iter().map(|s| number((*s).into())).collect());
    value(&[
        ("max_storage_buffer_range", number(limits.max_storage_buffer_range)),
        ("max_uniform_range", number(limits.max_uniform_buffer_range)),
        ("max_allocation", number(limits.max_buffer_size)),
        ("max_storage_buffers", number(limits.max_storage_buffers.into())),
        ("max_uniform_buffers", number(limits.max_uniform_buffers.into())),
        ("max_storage_images", number(images.max_storage_images.into())),
        ("max_sampled_images", number(images.max_sampled_images.into())),
        ("max_workgroup_invocations", number(limits.max_workgroup_invocations.into())),
        ("max_workgroup_size", sizes(limits.max_workgroup_size)),
        ("max_workgroup_count", sizes(limits.max_grid)),
        ("max_workgroup_memory", number(limits.max_workgroup_memory.into())),
        ("max_workgroup_subgroups", number(workgroup_subgroups(device).into())),
        ("storage_buffer_alignment", number(limits.storage_alignment.into())),
        ("uniform_buffer_alignment", number(limits.uniform_alignment.into())),
        ("texel_buffer_alignment", number(images.texel_alignment.max(4).into())),
        ("max_texel_buffer_elements", number(images.max_texel_buffer_elements.into())),
        ("max_texture_2d", number(images.max_2d.into())),
        ("max_texture_3d", number(images.max_3d.into())),
        ("max_texture_layers", number(images.max_array_layers.into())),
    ])
}

fn features(device: &DeviceInfo) -> Result<Value, toml::ser::Error> {
    let has = |feature| Value::from(device.features.contains(feature));
    let ops: Vec<SubgroupOp> =
        SUBGROUP_OPS.iter().filter(|(f, _)| device.features.contains(*f)).map(|(_, op)| *op).collect();
    let matrix = device.matrix_shapes.iter().any(|shape| matrix_shape(shape).is_some());
    Ok(value(&[
        ("f16", has(Feature::ShaderF16)),
        ("storage_16", has(Feature::Storage16bit)),
        ("int8", has(Feature::ShaderInt8)),
        ("int_dot_product", has(Feature::IntDotProduct)),
        ("int_dot_accelerated", Value::try_from(int_dot_accelerated(device))?),
        ("subgroup_size_control", has(Feature::SubgroupSizeControl)),
        ("full_subgroups", has(Feature::FullSubgroups)),
        ("subgroup_ops", Value::try_from(&ops)?),
        ("cooperative_matrix", matrix.into()),
        ("robust_image_access", has(Feature::RobustImageAccess)),
        ("robust_image_access2", has(Feature::RobustImageAccess2)),
    ]))
}

fn int_dot_accelerated(device: &DeviceInfo) -> Vec<IntDotSigns> {
    let IntDotAcceleration { unsigned, signed, mixed } = device.int_dot_accelerated;
    let all = [(unsigned, IntDotSigns::Unsigned), (signed, IntDotSigns::Signed), (mixed, IntDotSigns::Mixed)];
    all.into_iter().filter_map(|(accelerated, signs)| accelerated.then_some(signs)).collect()
}

/// Maximum number of subgroups per workgroup: the number that the driver reports, or else a number that follows from the maximum
/// invocations per workgroup.
fn workgroup_subgroups(device: &DeviceInfo) -> u32 {
    let fit = (device.limits.max_workgroup_invocations / device.subgroup_size.max(1)).max(1);
    if device.max_workgroup_subgroups > 0 { device.max_workgroup_subgroups } else { fit }
}

/// Returns the powers of two in a device's range of subgroup sizes.
fn subgroup_sizes(device: &DeviceInfo) -> Vec<u32> {
    let range = device.min_subgroup_size..=device.max_subgroup_size;
    (0..=MAX_SUBGROUP.trailing_zeros()).map(|bit| 1 << bit).filter(|size| range.contains(size)).collect()
}

fn matrix_shape(shape: &format::MatrixShape) -> Option<MatrixShape> {
    if shape.saturating || shape.c != shape.result {
        return None;
    }
    let scope = match shape.scope {
        format::MatrixScope::Subgroup => MatrixScope::Subgroup,
        format::MatrixScope::Workgroup => MatrixScope::Workgroup,
        format::MatrixScope::Device | format::MatrixScope::QueueFamily => return None,
    };
    Some(MatrixShape {
        m: shape.m,
        n: shape.n,
        k: shape.k,
        a: matrix_type(shape.a)?,
        b: matrix_type(shape.b)?,
        c: matrix_type(shape.c)?,
        scope,
        invocations: None,
        fragments: None,
    })
}

fn matrix_type(of: format::MatrixType) -> Option<MatrixType> {
    Some(match of {
        format::MatrixType::F16 => MatrixType::F16,
        format::MatrixType::Bf16 => MatrixType::Bf16,
        format::MatrixType::F32 => MatrixType::F32,
        format::MatrixType::I8 => MatrixType::I8,
        format::MatrixType::U8 => MatrixType::U8,
        format::MatrixType::I32 => MatrixType::I32,
        format::MatrixType::U32 => MatrixType::U32,
        _ => return None,
    })
}

/// Returns the ASCII letters and digits of a name in lower case, with single `-` for other characters.
fn plain_name(name: &str) -> String {
    let mut plain = String::new();
    for c in name.chars() {
        match c.is_ascii_alphanumeric() {
            true => plain.push(c.to_ascii_lowercase()),
            false if !plain.is_empty() && !plain.ends_with('-') => plain.push('-'),
            false => {}
        }
    }
    let plain = plain.trim_end_matches('-');
    if plain.is_empty() { "device".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{TargetProfile, from_device, plain_name};
    use drift_format::device::DeviceInfo;
    use drift_format::{self as format, Feature, Features, Limits};

    fn device() -> DeviceInfo {
        DeviceInfo {
            name: "Some Device (rev 2)".into(),
            vendor_id: 0x1234,
            features: Features::NONE.with(Feature::ShaderF16).with(Feature::SubgroupBasic),
            limits: Limits {
                max_storage_buffer_range: u64::from(u32::MAX),
                max_uniform_buffer_range: 65536,
                max_buffer_size: u64::MAX,
                max_workgroup_invocations: 1024,
                max_workgroup_size: [1024, 1024, 64],
                max_workgroup_memory: 32768,
                max_grid: [65535; 3],
                max_storage_buffers: 16,
                max_uniform_buffers: 12,
                storage_alignment: 16,
                uniform_alignment: 64,
                ..Limits::default()
            },
            subgroup_size: 32,
            min_subgroup_size: 8,
            max_subgroup_size: 32,
            matrix_shapes: vec![format::MatrixShape {
                m: 16,
                n: 16,
                k: 16,
                a: format::MatrixType::F16,
                b: format::MatrixType::F16,
                c: format::MatrixType::F32,
                result: format::MatrixType::F32,
                scope: format::MatrixScope::Subgroup,
                saturating: false,
            }],
            ..DeviceInfo::default()
        }
    }

    #[test]
    fn a_probed_profile_loads() {
        let text = from_device(&device(), None).unwrap();
        let profile = TargetProfile::from_toml(&text, "probe").unwrap();
        assert_eq!(profile.name, "some-device-rev-2");
        assert!(profile.features.f16 && profile.features.cooperative_matrix);
        assert_eq!((profile.subgroup.sizes.as_slice(), profile.subgroup.preferred), (&[8, 16, 32][..], 32));
        let probed = |path| profile.source_of(path).is_some_and(|s| s.starts_with("probe:"));
        assert!(probed("limits.max_storage_buffers") && probed("matrix") && probed("subgroup.sizes"));
        assert!(!probed("machine.peak.f32"));
        assert_eq!(profile.limits.max_workgroup_subgroups, 32);
        assert_eq!(profile.matrix.len(), 1);
        assert!(from_device(&device(), Some("no/name")).is_err());
        assert_eq!(TargetProfile::for_device(&device()).unwrap(), None);
    }

    #[test]
    fn names_become_plain() {
        assert_eq!(plain_name("  A b-C(1) "), "a-b-c-1");
        assert_eq!(plain_name("§"), "device");
    }
}
