//! Search for the profile of a device by the name under which the device is sold.

use super::{TargetError, TargetProfile, builtin};
use crate::suggest::closest;

/// A device name of a built-in profile.
struct Product {
    profile: &'static str,
    name: String,
}

/// Agreement of a requested name with a device name, best last. The number of words of the device name decides between
/// device names that the requested name contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Agreement {
    /// The device name contains the words of the requested name.
    Part,
    /// The requested name contains the words of the device name; the number counts these words.
    Whole(usize),
    /// The names have equal letters and digits.
    Equal,
}

/// Returns the built-in profile for a device name such as `RTX 4090`. Returns `None` if no profile has such a device.
///
/// # Errors
/// If devices of several profiles have the name, or a built-in profile is malformed.
pub(super) fn find(name: &str) -> Result<Option<&'static str>, TargetError> {
    let wanted = words(name);
    let mut best: Option<Agreement> = None;
    let mut found: Vec<Product> = Vec::new();
    for product in products()? {
        let Some(agreement) = agreement(&wanted, &words(&product.name)) else { continue };
        if best.is_none_or(|best| agreement > best) {
            best = Some(agreement);
            found.clear();
        }
        if best == Some(agreement) {
            found.push(product);
        }
    }
    let Some(first) = found.first() else { return Ok(None) };
    if found.iter().all(|product| product.profile == first.profile) {
        return Ok(Some(first.profile));
    }
    let list = found.iter().map(|product| format!("{} (`{}`)", product.name, product.profile));
    Err(TargetError::Ambiguous { name: name.to_owned(), devices: list.collect::<Vec<_>>().join(", ") })
}

/// Returns the name of a profile or device that is similar to an unknown name. Device names must have equal digits,
/// because another number is another device.
pub(super) fn similar(name: &str) -> Option<String> {
    if let Some(profile) = closest(name, builtin::names()) {
        return Some(profile.to_owned());
    }
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let names: Vec<String> = products().ok()?.into_iter().map(|product| product.name).collect();
    let alike = names.iter().map(String::as_str).filter(|device| digits(device) == digits(name));
    closest(name, alike).map(str::to_owned)
}

fn products() -> Result<Vec<Product>, TargetError> {
    let mut products = Vec::new();
    for profile in builtin::names() {
        let names = TargetProfile::load(profile)?.device.products;
        products.extend(names.into_iter().map(|name| Product { profile, name }));
    }
    Ok(products)
}

/// Words of a name in lower case. `+` counts as a letter, because it is a part of device names.
fn words(name: &str) -> Vec<String> {
    let name = name.to_lowercase();
    let words = name.split(|c: char| !c.is_alphanumeric() && c != '+').filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

fn agreement(wanted: &[String], device: &[String]) -> Option<Agreement> {
    let contains = |long: &[String], short: &[String]| {
        !short.is_empty() && long.windows(short.len()).any(|words| words == short)
    };
    if wanted.concat() == device.concat() {
        Some(Agreement::Equal)
    } else if contains(wanted, device) {
        Some(Agreement::Whole(device.len()))
    } else {
        contains(device, wanted).then_some(Agreement::Part)
    }
}

#[cfg(test)]
mod tests {
    use super::{find, products, similar, words};
    use crate::target::TargetError;

    #[test]
    fn device_names_lead_to_profiles() {
        for (name, profile) in [
            ("RTX 4090", "nvidia-ada"),
            ("rtx 3090 ti", "nvidia-ampere"),
            ("NVIDIA GeForce RTX 2080 Ti", "nvidia-turing"),
            ("geforce rtx4090", "nvidia-ada"),
            ("Snapdragon 8 Gen 2", "adreno-740"),
            ("snapdragon 8 elite", "adreno-830"),
            ("Samsung Galaxy S23+", "adreno-740"),
            ("Apple M1 Max", "apple-m1"),
            ("pixel 8 pro", "mali-g715"),
            ("Quadro RTX 6000", "nvidia-turing"),
        ] {
            assert_eq!(find(name).unwrap(), Some(profile), "{name}");
        }
        assert_eq!(find("RTX 9999").unwrap(), None);
        assert_eq!(find("").unwrap(), None);
    }

    #[test]
    fn names_of_several_profiles_are_ambiguous() {
        for name in ["RTX 6000", "snapdragon 8 gen"] {
            let error = find(name).unwrap_err();
            assert!(matches!(&error, TargetError::Ambiguous { .. }), "{error}");
        }
        let error = find("snapdragon 8 gen").unwrap_err().to_string();
        assert!(error.contains("`adreno-740`") && error.contains("`adreno-750`"), "{error}");
    }

    #[test]
    fn similar_names_are_suggested() {
        assert_eq!(similar("nvidia-hoper").as_deref(), Some("nvidia-hopper"));
        assert_eq!(similar("GeForce RXT 4090").as_deref(), Some("GeForce RTX 4090"));
        assert_eq!(similar("zzz"), None);
    }

    #[test]
    fn each_device_has_one_profile() {
        let all = products().unwrap();
        for product in &all {
            assert!(!words(&product.name).is_empty());
            let others =
                all.iter().filter(|other| words(&other.name).concat() == words(&product.name).concat());
            assert_eq!(others.count(), 1, "{}", product.name);
        }
    }
}
