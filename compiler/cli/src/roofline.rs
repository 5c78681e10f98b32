//! The least time that a dispatch can take by the numbers of a profile: its bytes at the memory's bandwidth or its
//! operations at the arithmetic peak, whichever takes longer.

use drift_runtime::codec::section;
use drift_runtime::format::{Dispatch, Variant};
use drift_runtime::{Bundle, Session};
use driftc::target::TargetProfile;

use crate::failure::Result;
use crate::output::note;

/// The SPIR-V capability of cooperative matrices.
const MATRIX_CAPABILITY: u32 = 6022;
const SPIRV_HEADER_WORDS: usize = 5;
const OP_CAPABILITY: u32 = 17;

/// What bounds a dispatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Floor {
    pub(crate) ns: f64,
    pub(crate) bound: &'static str,
}

/// The profile that the session's variant was compiled for; where this program does not know it, or knows another one
/// of that name, the one made for the device, if any.
pub(crate) fn profile_of(session: &Session, given: Option<&str>) -> Result<Option<TargetProfile>> {
    if let Some(name) = given {
        return Ok(Some(TargetProfile::load(name)?));
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
            let instead = other.as_ref().map_or("no floors are given", |p| p.name.as_str());
            note(&format!("profile {} is unknown here: {instead}; --profile FILE names it", variant.target));
            Ok(other)
        }
    }
}

/// The floor of a dispatch that does so much.
pub(crate) fn floor(profile: &TargetProfile, matrix: bool, flops: i64, moved: i64) -> Floor {
    let machine = &profile.machine;
    let peak = match (matrix, machine.peak.matrix_f16) {
        (true, Some(peak)) => peak,
        _ => machine.peak.f32,
    };
    let (arithmetic, memory) = (flops as f64 / peak, moved as f64 / machine.bandwidth_gb_s);
    match arithmetic > memory {
        true => Floor { ns: arithmetic, bound: "arithmetic" },
        false => Floor { ns: memory, bound: "memory" },
    }
}

/// Whether a dispatch's shader computes with cooperative matrices.
pub(crate) fn uses_matrices(bundle: &Bundle, variant: &Variant, dispatch: &Dispatch) -> bool {
    let pipeline = variant.pipelines.get(dispatch.pipeline as usize);
    let artifact = pipeline.and_then(|p| bundle.manifest().artifacts.get(p.artifact as usize));
    let bytes = artifact.and_then(|a| section(bundle.bytes(), a.offset, a.size).ok());
    bytes.is_some_and(|bytes| has_capability(bytes, MATRIX_CAPABILITY))
}

/// Whether a SPIR-V module declares a capability: they come first, each as one instruction of two words.
fn has_capability(module: &[u8], wanted: u32) -> bool {
    let (words, _) = module.as_chunks::<4>();
    let words: Vec<u32> =
        words.iter().skip(SPIRV_HEADER_WORDS).take(256).map(|w| u32::from_le_bytes(*w)).collect();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().take_while(|[op, _]| *op == (2 << 16 | OP_CAPABILITY)).any(|[_, which]| *which == wanted)
}

#[cfg(test)]
mod tests {
    use super::{floor, has_capability};
    use driftc::target::TargetProfile;

    #[test]
    fn the_slower_of_memory_and_arithmetic_is_the_floor() {
        let mut profile = TargetProfile::load("vulkan-baseline").unwrap();
        profile.machine.bandwidth_gb_s = 10.0;
        profile.machine.peak.f32 = 100.0;
        profile.machine.peak.matrix_f16 = Some(1000.0);
        let told = |matrix, flops, moved| {
            let floor = floor(&profile, matrix, flops, moved);
            (floor.ns, floor.bound)
        };
        assert_eq!(told(false, 1000, 50), (10.0, "arithmetic"));
        assert_eq!(told(true, 1000, 50), (5.0, "memory"));
        assert_eq!(told(false, 0, 20), (2.0, "memory"));
    }

    #[test]
    fn capabilities_are_read_up_to_the_first_other_instruction() {
        let words = [0x0723_0203, 0, 0, 9, 0, 2 << 16 | 17, 1, 2 << 16 | 17, 6022, 3 << 16 | 14, 0, 1];
        let bytes: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
        assert!(has_capability(&bytes, 6022) && has_capability(&bytes, 1));
        assert!(!has_capability(&bytes, 0) && !has_capability(&[], 1));
    }
}
