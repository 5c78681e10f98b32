//! Bounds of a symbolic dimension, by interval arithmetic.

use super::{Atom, Bounds, Dim, Term, gcd};

/// Maximum common multiple of the divisors of a size's floor divisions. Above it, bounds of the size are computed
/// without tightening for floor divisions.
const MAX_DIVISOR: i64 = 1 << 20;

/// Maximum nesting of floor divisions and of `positive(x)`, the maximum of x and zero, up to which bounds of a size are
/// tightened. Each level multiplies the work.
const MAX_NESTED: u32 = 4;

impl Dim {
    /// Returns bounds of the size's value, by interval arithmetic. An undeclared symbol ranges from 1 to `i64::MAX`.
    /// Two rules tighten the bounds. A floor division counts as the quotient minus the remainder that the floor drops,
    /// so `4 * (n + 3)//4 - n` is 0 to 3. A term `positive(x)`, the maximum of x and zero, counts as both of its cases,
    /// so `n - positive(n - 5)` is at most 5.
    pub fn range(&self, bounds: &Bounds) -> (i64, i64) {
        self.range_within(bounds, MAX_NESTED)
    }

    /// Returns bounds of the size's value like [`Self::range`], but tightens them only down to nesting level `depth`.
    fn range_within(&self, bounds: &Bounds, depth: u32) -> (i64, i64) {
        if let Some(value) = self.as_known() {
            return (value, value);
        }
        let all = self.interval(bounds, depth);
        let Some(depth) = depth.checked_sub(1) else { return all };
        let others = [self.without_floors(bounds, depth), self.without_positive(bounds, depth)];
        // All of these bounds are valid, so their intersection is.
        others.into_iter().flatten().fold(all, |(low, high), (l, h)| (low.max(l), high.min(h)))
    }

    /// Returns bounds of the size's value without the tightening rules: the sum of the intervals of its terms.
    fn interval(&self, bounds: &Bounds, depth: u32) -> (i64, i64) {
        let (mut low, mut high) = (0i64, 0i64);
        for term in &self.terms {
            let mut interval = (term.coefficient, term.coefficient);
            for factor in &term.factors {
                let f = match factor {
                    Atom::Symbol(name) => bounds.get(&**name).copied().unwrap_or((1, i64::MAX)),
                    Atom::FloorDiv(inner, divisor) => {
                        let (a, b) = inner.range_within(bounds, depth.saturating_sub(1));
                        (a.div_euclid(*divisor), b.div_euclid(*divisor))
                    }
                    Atom::Positive(inner) => {
                        let (a, b) = inner.range_within(bounds, depth.saturating_sub(1));
                        (a.max(0), b.max(0))
                    }
                };
                let corners = [
                    interval.0.saturating_mul(f.0),
                    interval.0.saturating_mul(f.1),
                    interval.1.saturating_mul(f.0),
                    interval.1.saturating_mul(f.1),
                ];
                interval = corners.iter().fold((i64::MAX, i64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
            }
            low = low.saturating_add(interval.0);
            high = high.saturating_add(interval.1);
        }
        (low, high)
    }

    /// Returns bounds of the size's value that treat each floor division `x//d` that is the only factor of a term as
    /// `x/d - r/d` with `r` from 0 to `d - 1`. Returns `None` if there is no such term, or if numbers overflow.
    fn without_floors(&self, bounds: &Bounds, depth: u32) -> Option<(i64, i64)> {
        let single_floor = |t: &Term| match t.factors.as_slice() {
            [Atom::FloorDiv(inner, divisor)] => Some(((**inner).clone(), *divisor)),
            _ => None,
        };
        let mut common = 1i64;
        for (_, divisor) in self.terms.iter().filter_map(single_floor) {
            common = common.checked_mul(divisor / gcd(common, divisor))?;
        }
        if common == 1 || common > MAX_DIVISOR {
            return None;
        }
        let (mut sum, mut low, mut high) = (Self::default(), 0i64, 0i64);
        for term in &self.terms {
            let Some((inner, divisor)) = single_floor(term) else {
                let coefficient = term.coefficient.checked_mul(common)?;
                sum = sum.add(&Self { terms: vec![Term { coefficient, ..term.clone() }] });
                continue;
            };
            let times = term.coefficient.checked_mul(common / divisor)?;
            sum = sum.add(&inner.scale(times));
            let dropped = times.checked_mul(divisor - 1)?.checked_neg()?;
            (low, high) = (low.checked_add(dropped.min(0))?, high.checked_add(dropped.max(0))?);
        }
        let (l, h) = sum.range_within(bounds, depth);
        let (l, h) = (l.checked_add(low)?, h.checked_add(high)?);
        // The sum is a multiple of the common divisor.
        Some((l.div_euclid(common) + i64::from(l.rem_euclid(common) != 0), h.div_euclid(common)))
    }

    /// Returns bounds of the size's value that treat a factor `positive(x)` as its two cases, x and zero. This is done
    /// for the first term with such a factor whose other factors cannot be negative. Returns `None` if there is no such
    /// term.
    fn without_positive(&self, bounds: &Bounds, depth: u32) -> Option<(i64, i64)> {
        let positive_term = |(i, term): (usize, &Term)| {
            let at = term.factors.iter().position(|f| matches!(f, Atom::Positive(_)))?;
            let mut others = term.clone();
            let Atom::Positive(inner) = others.factors.remove(at) else { return None };
            others.coefficient = 1;
            let times = Self { terms: vec![others] };
            (times.interval(bounds, depth).0 >= 0).then(|| (i, term.coefficient, times.mul(&inner)))
        };
        let (i, coefficient, inside) = self.terms.iter().enumerate().find_map(positive_term)?;
        let mut rest = self.clone();
        rest.terms.remove(i);
        let zero = rest.range_within(bounds, depth);
        let nonzero = rest.add(&inside.scale(coefficient)).range_within(bounds, depth);
        // The sum is the maximum of both cases for a positive coefficient, else the minimum.
        let combine = if coefficient > 0 { i64::max } else { i64::min };
        Some((combine(zero.0, nonzero.0), combine(zero.1, nonzero.1)))
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::dim::{Bounds, Dim};

    #[test]
    fn bounds_of_positive_parts_are_tight() {
        let bounds = Bounds::from([("n".into(), (1, 32)), ("m".into(), (3, 9))]);
        let range = |text: &str| Dim::parse(text).unwrap().range(&bounds);
        assert_eq!(range("5-positive(5-n)"), (1, 5));
        assert_eq!(range("n-positive(n-5)"), (1, 5));
        assert_eq!(range("m*n-m*positive(n-5)"), (3, 45));
        assert_eq!(range("n+positive(4-n)"), (4, 32));
        assert_eq!(range("positive(2-positive(5-n))"), (0, 2));
        assert_eq!(range("positive(n-m)-n+m"), (0, 8));
        assert_eq!(range("positive(n)-n"), (0, 0));
    }

    #[test]
    fn bounds_of_floors_are_tight() {
        let bounds = Bounds::from([("n".into(), (1, 100)), ("m".into(), (3, 9))]);
        let range = |text: &str| Dim::parse(text).unwrap().range(&bounds);
        assert_eq!(range("4*((n+3)//4)-n"), (0, 3));
        assert_eq!(range("n-8*(n)//8"), (0, 7));
        assert_eq!(range("2*((n-1)//2)+3-n"), (1, 2));
        assert_eq!(range("((n+1)//2+1)//2-(n)//4"), (0, 1));
        assert_eq!(range("(n)//2*(m)//2"), (0, 200));
        assert_eq!(range("(n*m+1)//2-n*m"), (-450, -1));
    }
}
