//! Remedies for tensors whose size exceeds a limit of the target: bounds of symbols with which the size is within the
//! limit.

use std::collections::BTreeSet;

use crate::error::Within;
use crate::ir::dim::{Bounds, Dim};

/// Returns the remedies for a size that exceeds a limit. Each remedy is a list of bounds that together suffice: lower
/// upper bounds of one symbol, or of all symbols if one is not enough. Returns no remedy if bounds cannot help.
pub(crate) fn remedies(size: &Dim, bounds: &Bounds, limit: u64) -> Vec<Vec<Within>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut symbols = BTreeSet::new();
    size.symbols(&mut symbols);
    let ranges: Vec<&String> =
        symbols.iter().filter(|s| bounds.get(*s).is_some_and(|(l, h)| l < h)).collect();
    // Largest common upper bound of some symbols for which the size fits.
    let largest = |names: &[&String]| {
        let fits = |max: i64| {
            let mut bounds = bounds.clone();
            for name in names {
                if let Some((low, high)) = bounds.get_mut(*name) {
                    *high = max.min(*high).max(*low);
                }
            }
            size.range(&bounds).1 <= limit
        };
        let ends = |end: fn(&(i64, i64)) -> i64| names.iter().filter_map(move |n| bounds.get(*n).map(end));
        let (mut low, mut high) = (ends(|b| b.0).min()?, ends(|b| b.1).max()?);
        if !fits(low) {
            return None;
        }
        while low < high {
            let middle = low + (high - low + 1) / 2;
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        Some(low)
    };
    let within = |name: &String, max: i64| {
        let (low, high) = bounds.get(name).copied().unwrap_or((1, max));
        Within { symbol: name.clone(), low, high: max.min(high).max(low) }
    };
    let single: Vec<Vec<Within>> = ranges
        .iter()
        .filter_map(|name| Some(vec![within(name, largest(std::slice::from_ref(name))?)]))
        .collect();
    if !single.is_empty() {
        return single;
    }
    let all = largest(&ranges).map(|max| ranges.iter().map(|name| within(name, max)).collect());
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::remedies;
    use crate::ir::dim::{Bounds, Dim};

    #[test]
    fn suggested_bounds_fit() {
        let bounds: Bounds = [("h".to_string(), (32, 1024)), ("w".to_string(), (32, 1024))].into();
        let size = Dim::parse("4*h*w").unwrap();
        let text = |limit: u64| {
            let remedies = remedies(&size, &bounds, limit);
            let options =
                |remedy: &Vec<_>| remedy.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            remedies.iter().map(options).collect::<Vec<_>>().join(" or ")
        };
        assert_eq!(text(4 * 1024 * 100), "--dim h=32..100 or --dim w=32..100");
        assert_eq!(text(4 * 40 * 40 + 3), "--dim h=32..40 --dim w=32..40");
        assert_eq!(text(100), "");
        assert!(remedies(&Dim::known(9), &bounds, 1).is_empty());
    }
}
