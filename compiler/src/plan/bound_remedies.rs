//! Advice for tensors whose size exceeds a limit of the target: command-line options that help, with values that work.

use std::collections::BTreeSet;

use crate::ir::dim::{Bounds, Dim};

/// Returns advice for the user: upper bounds of symbols that keep a size within a limit. Names one symbol if its bound suffices,
/// else all symbols.
pub(crate) fn remedy(size: &Dim, bounds: &Bounds, limit: u64) -> String {
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
    let option = |name: &String, max: i64| {
        let (low, high) = bounds.get(name).copied().unwrap_or((1, max));
        format!("--dim {name}={low}..{}", max.min(high).max(low))
    };
    let single: Vec<String> =
        ranges.iter().filter_map(|name| Some(option(name, largest(std::slice::from_ref(name))?))).collect();
    let other = "choose a target with a larger limit";
    if !single.is_empty() {
        return format!("lower the upper bound of a symbolic size with {}, or {other}", single.join(" or "));
    }
    match largest(&ranges) {
        Some(max) => {
            let all: Vec<String> = ranges.iter().map(|name| option(name, max)).collect();
            format!("lower the upper bounds of the symbolic sizes with {}, or {other}", all.join(" "))
        }
        None => format!("no bound of a symbol helps: make the model's inputs smaller, or {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::remedy;
    use crate::ir::dim::{Bounds, Dim};

    #[test]
    fn suggested_bounds_fit() {
        let bounds: Bounds = [("h".to_string(), (32, 1024)), ("w".to_string(), (32, 1024))].into();
        let size = Dim::parse("4*h*w").unwrap();
        let one = remedy(&size, &bounds, 4 * 1024 * 100);
        assert!(one.contains("--dim h=32..100 or --dim w=32..100,"), "{one}");
        let both = remedy(&size, &bounds, 4 * 40 * 40 + 3);
        assert!(both.contains("--dim h=32..40 --dim w=32..40,"), "{both}");
        let none = remedy(&size, &bounds, 100);
        assert!(none.contains("no bound of a symbol"), "{none}");
        assert!(remedy(&Dim::known(9), &bounds, 1).contains("no bound of a symbol"));
    }
}
