//! What to say when sizes are over a limit of the target: the option that helps, with a value that would work.

use std::collections::BTreeSet;

use crate::ir::dim::{Bounds, Dim};

/// Which upper bounds keep a size within a limit: that of one symbol where that is enough, else those of all.
pub(crate) fn remedy(size: &Dim, bounds: &Bounds, limit: u64) -> String {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut symbols = BTreeSet::new();
    size.symbols(&mut symbols);
    let open: Vec<&String> = symbols.iter().filter(|s| bounds.get(*s).is_some_and(|(l, h)| l < h)).collect();
    // The largest bound, for all of the symbols at once, under which the size fits.
    let largest = |names: &[&String]| {
        let fits = |most: i64| {
            let mut bounds = bounds.clone();
            for name in names {
                if let Some((low, high)) = bounds.get_mut(*name) {
                    *high = most.min(*high).max(*low);
                }
            }
            size.range(&bounds).1 <= limit
        };
        let of = |pick: fn(&(i64, i64)) -> i64| names.iter().filter_map(move |n| bounds.get(*n).map(pick));
        let (mut low, mut high) = (of(|b| b.0).min()?, of(|b| b.1).max()?);
        if !fits(low) {
            return None;
        }
        while low < high {
            let middle = low + (high - low + 1) / 2;
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        Some(low)
    };
    let say = |name: &String, most: i64| {
        let (low, high) = bounds.get(name).copied().unwrap_or((1, most));
        format!("--dim {name}={low}..{}", most.min(high).max(low))
    };
    let alone: Vec<String> =
        open.iter().filter_map(|name| Some(say(name, largest(std::slice::from_ref(name))?))).collect();
    let other = "pick a target with a larger limit";
    if !alone.is_empty() {
        return format!("lower an upper bound with {}, or {other}", alone.join(" or "));
    }
    match largest(&open) {
        Some(most) => {
            let all: Vec<String> = open.iter().map(|name| say(name, most)).collect();
            format!("lower the upper bounds with {}, or {other}", all.join(" "))
        }
        None => format!("no symbol's bound decides it: make the model's inputs smaller, or {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::remedy;
    use crate::ir::dim::{Bounds, Dim};

    #[test]
    fn the_value_would_work() {
        let bounds: Bounds = [("h".to_string(), (32, 1024)), ("w".to_string(), (32, 1024))].into();
        let size = Dim::parse("4*h*w").unwrap();
        let one = remedy(&size, &bounds, 4 * 1024 * 100);
        assert!(one.contains("--dim h=32..100 or --dim w=32..100,"), "{one}");
        let both = remedy(&size, &bounds, 4 * 40 * 40 + 3);
        assert!(both.contains("--dim h=32..40 --dim w=32..40,"), "{both}");
        let none = remedy(&size, &bounds, 100);
        assert!(none.contains("no symbol's bound"), "{none}");
        assert!(remedy(&Dim::known(9), &bounds, 1).contains("no symbol's bound"));
    }
}
