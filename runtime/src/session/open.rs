//! Selects the device and the variants of bundles, and looks up functions, ports and symbols by name.

use super::options::Options;
use crate::bundle::Bundle;
use crate::device::backend::{Candidate, Context};
use crate::device::{DeviceInfo, choose_variant, unmet};
use crate::error::{Error, Result, Unmet};
use crate::format::{Function, Variant};

/// Selects a device and a variant of each bundle, and opens the device for these variants.
pub(super) fn open_device(bundles: &[Bundle], options: &Options) -> Result<(Vec<usize>, Context)> {
    let candidate = Candidate::select(options.backend, options.device.as_deref())?;
    let mut indices = Vec::with_capacity(bundles.len());
    let mut variants = Vec::with_capacity(bundles.len());
    for bundle in bundles {
        let index = select_variant(bundle, candidate.info(), options.target.as_deref())?;
        indices.push(index);
        variants.push(bundle.manifest().variants.get(index).ok_or(Error::NotABundle)?);
    }
    let context = candidate.open(&variants, options.always_stage)?;
    Ok((indices, context))
}

/// Returns the index of the variant for a target. Without a target, returns the index of the variant that fits the
/// device best.
fn select_variant(bundle: &Bundle, device: &DeviceInfo, target: Option<&str>) -> Result<usize> {
    let manifest = bundle.manifest();
    let Some(target) = target else { return choose_variant(manifest, device) };
    let index = manifest.variants.iter().position(|variant| variant.target == *target);
    let known = || manifest.variants.iter().map(|variant| variant.target.clone()).collect();
    let index = index.ok_or_else(|| Error::NoSuchTarget { name: target.to_owned(), known: known() })?;
    let variant = manifest.variants.get(index).ok_or(Error::NotABundle)?;
    let reasons = unmet(manifest, variant, device);
    if !reasons.is_empty() {
        let variants = vec![Unmet { target: variant.target.clone(), reasons }];
        return Err(Error::Unmet { device: device.name.clone(), variants });
    }
    Ok(index)
}

/// Returns the index of the general function of this name, and the function.
pub(super) fn find_function<'a>(variant: Option<&'a Variant>, name: &str) -> Result<(usize, &'a Function)> {
    let functions = variant.map_or(&[][..], |variant| &variant.functions);
    functions.iter().enumerate().find(|(_, function)| function.name == name).ok_or_else(|| {
        Error::NoSuchFunction {
            name: name.to_owned(),
            known: functions.iter().map(|function| function.name.clone()).collect(),
        }
    })
}

/// Returns the index of `name` in `known`, or an error that lists the known names.
pub(super) fn find_name<'a>(
    function: &Function,
    kind: &'static str,
    known: impl Iterator<Item = &'a str>,
    name: &str,
) -> Result<usize> {
    let known: Vec<&str> = known.collect();
    known.iter().position(|known| *known == name).ok_or_else(|| Error::NoSuchName {
        function: function.name.clone(),
        kind,
        name: name.to_owned(),
        known: known.into_iter().map(str::to_owned).collect(),
    })
}
