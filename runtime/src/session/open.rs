//! Which device and which variant, and where things of a name are.

use super::Options;
use crate::bundle::Bundle;
use crate::device::vulkan::{Candidate, Context};
use crate::device::{choose_variant, unmet};
use crate::error::{Error, Result, Unmet};
use crate::format::{Function, Variant};
use std::sync::Arc;

/// Chooses a device and a variant, and opens the former for the latter.
pub(super) fn open_device(bundle: &Bundle, options: &Options) -> Result<(usize, Arc<Context>)> {
    let candidate = Candidate::choose(options.device.as_deref())?;
    let manifest = bundle.manifest();
    let index = match &options.target {
        None => choose_variant(manifest, &candidate.info)?,
        Some(target) => {
            let index = manifest.variants.iter().position(|variant| variant.target == *target);
            let known = || manifest.variants.iter().map(|variant| variant.target.clone()).collect();
            index.ok_or_else(|| Error::NoSuchTarget { name: target.clone(), known: known() })?
        }
    };
    let variant = manifest.variants.get(index).ok_or(Error::NotABundle)?;
    let reasons = unmet(variant, &candidate.info);
    if !reasons.is_empty() {
        let variants = vec![Unmet { target: variant.target.clone(), reasons }];
        return Err(Error::Unmet { device: candidate.info.name.clone(), variants });
    }
    Ok((index, candidate.open(variant, options.always_stage)?))
}

/// The first function of a name, and its index.
pub(super) fn find<'a>(variant: Option<&'a Variant>, name: &str) -> Result<(usize, &'a Function)> {
    let functions = variant.map_or(&[][..], |variant| &variant.functions);
    functions.iter().enumerate().find(|(_, function)| function.name == name).ok_or_else(|| {
        Error::NoSuchFunction {
            name: name.to_owned(),
            known: functions.iter().map(|function| function.name.clone()).collect(),
        }
    })
}

/// The index of a name among those known.
pub(super) fn position<'a>(
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
