//! Roofline of a dispatch, computed from the machine numbers of a target profile: the larger of bytes divided by
//! bandwidth and operations divided by peak throughput.

use drift_runtime::codec::section;
use drift_runtime::format::{Dispatch, Variant};
use drift_runtime::{Bundle, Session};
use driftc::target::TargetProfile;

use crate::failure::Result;
use crate::output::note;
use crate::session::DeviceArgs;
use crate::target_args::load_target;

/// SPIR-V capability number of `CooperativeMatrixKHR`.
const MATRIX_CAPABILITY: u32 = 6022;
const SPIRV_HEADER_WORDS: usize = 5;
const OP_CAPABILITY: u32 = 17;

/// Minimum time of a dispatch, and the resource that determines this time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Roofline {
    pub(crate) ns: f64,
    /// Resource that determines the minimum time: `memory` or `arithmetic`.
    pub(crate) bound: &'static str,
}

/// Target profile to compute rooflines from: the given profile, else the profile that the session's variant was
/// compiled for. If this program does not know that profile, falls back to the built-in profile of the device, if any.
pub(crate) fn roofline_profile(session: &Session, given: Option<&str>) -> Result<Option<TargetProfile>> {
    if let Some(name) = given {
        return Ok(Some(load_target(name, &DeviceArgs::default())?));
    }
    let variant = session.variant();
    match TargetProfile::load(&variant.target) {
        Ok(profile) => {
            if profile.hash().ok() != Some(variant.profile_hash.0) {
                note(&format!("profile {} has changed since the bundle was compiled", variant.target));
            }
            Ok(Some(profile))
        }
        Err(_) => {
            let other = TargetProfile::for_device(session.device())?;
            let fallback = other.as_ref().map_or_else(
                || "no roofline is shown".to_owned(),
                |p| format!("using {} for the roofline", p.name),
            );
            note(&format!("unknown profile {}: {fallback}; select one with --profile", variant.target));
            Ok(other)
        }
    }
}

/// Roofline of a dispatch with `flops` operations and `moved` bytes. If `matrix` is true, the peak throughput is the
/// matrix units'.
pub(crate) fn roofline(profile: &TargetProfile, matrix: bool, flops: i64, moved: i64) -> Roofline {
    let machine = &profile.machine;
    let peak = match (matrix, machine.peak.matrix_f16) {
        (true, Some(peak)) => peak,
        _ => machine.peak.f32,
    };
    let (arithmetic, memory) = (flops as f64 / peak, moved as f64 / machine.bandwidth_gb_s);
    match arithmetic > memory {
        true => Roofline { ns: arithmetic, bound: "arithmetic" },
        false => Roofline { ns: memory, bound: "memory" },
    }
}

/// Returns true if a dispatch's shader uses cooperative matrices.
pub(crate) fn uses_matrices(bundle: &Bundle, variant: &Variant, dispatch: &Dispatch) -> bool {
    let pipeline = variant.pipelines.get(dispatch.pipeline as usize);
    let artifact = pipeline.and_then(|p| bundle.manifest().artifacts.get(p.artifact as usize));
    let bytes = artifact.and_then(|a| section(bundle.bytes(), a.offset, a.size).ok());
    bytes.is_some_and(|bytes| has_capability(bytes, MATRIX_CAPABILITY))
}

/// Returns true if a SPIR-V module declares a capability. Capabilities come first, as instructions of two words.
fn has_capability(module: &[u8], wanted: u32) -> bool {
    let (words, _) = module.as_chunks::<4>();
    let words: Vec<u32> =
        words.iter().skip(SPIRV_HEADER_WORDS).take(256).map(|w| u32::from_le_bytes(*w)).collect();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().take_while(|[op, _]| *op == (2 << 16 | OP_CAPABILITY)).any(|[_, which]| *which == wanted)
}

#[cfg(test)]
mod tests {
    use super::{has_capability, roofline};
    use driftc::target::TargetProfile;

    #[test]
    fn the_roofline_is_the_larger_of_memory_and_arithmetic_time() {
        let mut profile = TargetProfile::load("vulkan-baseline").unwrap();
        profile.machine.bandwidth_gb_s = 10.0;
        profile.machine.peak.f32 = 100.0;
        profile.machine.peak.matrix_f16 = Some(1000.0);
        let computed = |matrix, flops, moved| {
            let roofline = roofline(&profile, matrix, flops, moved);
            (roofline.ns, roofline.bound)
        };
        assert_eq!(computed(false, 1000, 50), (10.0, "arithmetic"));
        assert_eq!(computed(true, 1000, 50), (5.0, "memory"));
        assert_eq!(computed(false, 0, 20), (2.0, "memory"));
    }

    #[test]
    fn capabilities_are_read_up_to_the_first_other_instruction() {
        let words = [0x0723_0203, 0, 0, 9, 0, 2 << 16 | 17, 1, 2 << 16 | 17, 6022, 3 << 16 | 14, 0, 1];
        let bytes: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
        assert!(has_capability(&bytes, 6022) && has_capability(&bytes, 1));
        assert!(!has_capability(&bytes, 0) && !has_capability(&[], 1));
    }
}
