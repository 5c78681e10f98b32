//! Symbolic dimensions.
//!
//! A [`Dim`] is a polynomial of symbols with integer coefficients. A factor may also be a floor division by a positive
//! integer (for strided convolutions over a symbolic extent) or the maximum of a sum and zero (for slices that may end
//! after a symbolic extent).
//! The form is canonical, so two dimensions are equal exactly if their representations are.
//! Arithmetic saturates: a saturated size exceeds the element limit of [`super::tensor`] anyway.

mod range;
mod text_form;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values of the symbols for one evaluation.
pub type Bindings = BTreeMap<String, i64>;

/// Declared bounds of the symbols, inclusive.
pub type Bounds = BTreeMap<String, (i64, i64)>;

/// Maximum number of terms in a product of two symbolic sizes. Real models stay below 10; a hostile model must not
/// exhaust memory.
const MAX_TERMS: usize = 1024;

/// A factor of a term of a symbolic dimension.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A named symbol.
    Symbol(Arc<str>),
    /// Floor of a sum divided by a positive integer.
    FloorDiv(Box<Dim>, i64),
    /// Maximum of a sum and zero.
    Positive(Box<Dim>),
}

/// A term of a symbolic dimension: a coefficient times sorted factors; a constant if there is no factor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// Sorted factors. A factor that occurs n times stands for its n-th power.
    pub factors: Vec<Atom>,
    /// Coefficient, never 0.
    pub coefficient: i64,
}

impl Term {
    /// Compares the exponents of two terms' factors lexicographically. The term with the higher exponent is greater.
    fn degree_cmp(&self, other: &Self) -> Ordering {
        let pairs = self.factors.iter().zip(&other.factors);
        let unequal = pairs.map(|(a, b)| b.cmp(a)).find(|order| order.is_ne());
        unequal.unwrap_or_else(|| self.factors.len().cmp(&other.factors.len()))
    }

    /// Returns the exact quotient of two terms; `None` if the divisor does not divide the term.
    fn div_exact(&self, divisor: &Self) -> Option<Self> {
        if self.coefficient.checked_rem(divisor.coefficient)? != 0 {
            return None;
        }
        let mut factors = self.factors.clone();
        for factor in &divisor.factors {
            let at = factors.iter().position(|f| f == factor)?;
            factors.remove(at);
        }
        Some(Self { factors, coefficient: self.coefficient.checked_div(divisor.coefficient)? })
    }
}

/// A symbolic dimension: a canonical sum of terms.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim {
    terms: Vec<Term>,
}

impl Dim {
    /// Creates a known size.
    pub fn known(value: i64) -> Self {
        if value == 0 {
            return Self::default();
        }
        Self { terms: vec![Term { factors: Vec::new(), coefficient: value }] }
    }

    /// Creates a size from a symbol's name.
    pub fn symbol(name: &str) -> Self {
        Self { terms: vec![Term { factors: vec![Atom::Symbol(name.into())], coefficient: 1 }] }
    }

    /// Returns the terms of the size in canonical order.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Returns the size as a number; `None` if it contains a symbol.
    pub fn as_known(&self) -> Option<i64> {
        match self.terms.as_slice() {
            [] => Some(0),
            [term] if term.factors.is_empty() => Some(term.coefficient),
            _ => None,
        }
    }

    /// Returns the symbol's name if the size is exactly one symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        match self.terms.as_slice() {
            [Term { factors, coefficient: 1 }] => match factors.as_slice() {
                [Atom::Symbol(name)] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// True if the size is the given number.
    pub fn is(&self, value: i64) -> bool {
        self.as_known() == Some(value)
    }

    fn from_terms(mut terms: Vec<Term>) -> Self {
        terms.sort();
        let mut merged: Vec<Term> = Vec::with_capacity(terms.len());
        for term in terms {
            match merged.last_mut() {
                Some(last) if last.factors == term.factors => {
                    last.coefficient = last.coefficient.saturating_add(term.coefficient);
                }
                _ => merged.push(term),
            }
        }
        merged.retain(|t| t.coefficient != 0);
        Self { terms: merged }
    }

    /// Returns both sizes as numbers if neither contains a symbol. In this common case arithmetic on terms is not
    /// needed.
    fn both_known(&self, other: &Self) -> Option<(i64, i64)> {
        Some((self.as_known()?, other.as_known()?))
    }

    /// Adds two sizes.
    pub fn add(&self, other: &Self) -> Self {
        if let Some((a, b)) = self.both_known(other) {
            return Self::known(a.saturating_add(b));
        }
        Self::from_terms(self.terms.iter().chain(&other.terms).cloned().collect())
    }

    /// Subtracts a size.
    pub fn sub(&self, other: &Self) -> Self {
        self.add(&other.scale(-1))
    }

    /// Adds an integer.
    pub fn plus(&self, value: i64) -> Self {
        self.add(&Self::known(value))
    }

    /// Multiplies the size by an integer.
    pub fn scale(&self, factor: i64) -> Self {
        if let Some(value) = self.as_known() {
            return Self::known(value.saturating_mul(factor));
        }
        Self::from_terms(
            self.terms
                .iter()
                .map(|t| Term {
                    factors: t.factors.clone(),
                    coefficient: t.coefficient.saturating_mul(factor),
                })
                .collect(),
        )
    }

    /// Multiplies two sizes; saturates if the product may have more than `MAX_TERMS` terms.
    pub fn mul(&self, other: &Self) -> Self {
        if let Some((a, b)) = self.both_known(other) {
            return Self::known(a.saturating_mul(b));
        }
        if self.terms.len().saturating_mul(other.terms.len()) > MAX_TERMS {
            return Self::known(i64::MAX);
        }
        let mut terms = Vec::with_capacity(self.terms.len() * other.terms.len());
        for a in &self.terms {
            for b in &other.terms {
                let mut factors: Vec<Atom> = a.factors.iter().chain(&b.factors).cloned().collect();
                factors.sort();
                terms.push(Term { factors, coefficient: a.coefficient.saturating_mul(b.coefficient) });
            }
        }
        Self::from_terms(terms)
    }

    /// Returns the exact quotient of two sizes; `None` if the divisor does not divide the size as a polynomial.
    pub fn div_exact(&self, divisor: &Self) -> Option<Self> {
        let lead = divisor.leading()?;
        let (mut rest, mut quotient) = (self.clone(), Self::default());
        // Every step removes the leading term, so the number of steps is limited by the number of terms.
        for _ in 0..MAX_TERMS {
            let Some(term) = rest.leading() else {
                // The check detects products that saturated.
                return (quotient.mul(divisor) == *self).then_some(quotient);
            };
            let step = Self { terms: vec![term.div_exact(lead)?] };
            rest = rest.sub(&step.mul(divisor));
            quotient = quotient.add(&step);
        }
        None
    }

    /// Returns the leading term of the polynomial: the greatest one in lexicographic order of exponents.
    fn leading(&self) -> Option<&Term> {
        self.terms.iter().max_by(|a, b| a.degree_cmp(b))
    }

    /// Divides the size by a positive integer and rounds down.
    pub fn floor_div(&self, divisor: i64) -> Self {
        if divisor <= 1 {
            return self.clone();
        }
        if let Some(value) = self.as_known() {
            return Self::known(value.div_euclid(divisor));
        }
        // Multiples of the divisor move out of the floor; coefficients from 0 to `divisor - 1` stay in it.
        let split = |f: fn(i64, i64) -> i64| {
            let terms =
                self.terms.iter().map(|t| Term { coefficient: f(t.coefficient, divisor), ..t.clone() });
            Self::from_terms(terms.collect())
        };
        let (whole, rest) = (split(i64::div_euclid), split(i64::rem_euclid));
        if rest.as_known().is_some() {
            return whole;
        }
        // Cancel the common factor of the divisor and all terms with symbols.
        let symbolic = rest.terms.iter().filter(|t| !t.factors.is_empty());
        let common = symbolic.fold(divisor, |g, t| gcd(g, t.coefficient));
        if common > 1 {
            let terms = rest.terms.iter().map(|t| Term { coefficient: t.coefficient / common, ..t.clone() });
            return whole.add(&Self::from_terms(terms.collect()).floor_div(divisor / common));
        }
        // floor((x//a + y) / b) is floor((x + a*y) / (a*b)).
        let merged = rest.terms.iter().enumerate().find_map(|(i, term)| match term {
            Term { factors, coefficient: 1 } => match factors.as_slice() {
                [Atom::FloorDiv(inner, by)] => Some((i, inner, *by, by.checked_mul(divisor)?)),
                _ => None,
            },
            _ => None,
        });
        if let Some((i, inner, by, divisor)) = merged {
            let mut others = rest.clone();
            others.terms.remove(i);
            return whole.add(&inner.add(&others.scale(by)).floor_div(divisor));
        }
        let atom = Atom::FloorDiv(Box::new(rest), divisor);
        whole.add(&Self { terms: vec![Term { factors: vec![atom], coefficient: 1 }] })
    }

    /// Divides the size by a positive integer and rounds up.
    pub fn ceil_div(&self, divisor: i64) -> Self {
        self.plus(divisor.saturating_sub(1)).floor_div(divisor)
    }

    /// Returns the maximum of the size and zero.
    pub fn positive(&self) -> Self {
        if let Some(value) = self.as_known() {
            return Self::known(value.max(0));
        }
        // The common factor of all terms moves out.
        let common = self.terms.iter().fold(0, |g, t| gcd(t.coefficient.saturating_abs(), g)).max(1);
        let terms = self.terms.iter().map(|t| Term { coefficient: t.coefficient / common, ..t.clone() });
        let atom = Atom::Positive(Box::new(Self::from_terms(terms.collect())));
        Self { terms: vec![Term { factors: vec![atom], coefficient: common }] }
    }

    /// Returns the maximum of the size and zero. Simplifies to the size itself or to zero if the bounds of the symbols
    /// allow it.
    pub fn positive_within(&self, bounds: &Bounds) -> Self {
        match self.range(bounds) {
            (0.., _) => self.clone(),
            (_, ..=0) => Self::default(),
            _ => self.positive(),
        }
    }

    /// Returns the maximum of two sizes, simplified if the bounds of the symbols decide which is larger.
    pub fn larger(&self, other: &Self, bounds: &Bounds) -> Self {
        other.add(&self.sub(other).positive_within(bounds))
    }

    /// Returns the minimum of two sizes, simplified if the bounds of the symbols decide which is smaller.
    pub fn smaller(&self, other: &Self, bounds: &Bounds) -> Self {
        self.sub(&self.sub(other).positive_within(bounds))
    }

    /// Evaluates the size for values of its symbols; `None` if a symbol has no value.
    pub fn eval(&self, bindings: &Bindings) -> Option<i64> {
        let mut sum = 0i64;
        for term in &self.terms {
            let mut product = term.coefficient;
            for factor in &term.factors {
                let value = match factor {
                    Atom::Symbol(name) => *bindings.get(&**name)?,
                    Atom::FloorDiv(inner, divisor) => inner.eval(bindings)?.div_euclid(*divisor),
                    Atom::Positive(inner) => inner.eval(bindings)?.max(0),
                };
                product = product.saturating_mul(value);
            }
            sum = sum.saturating_add(product);
        }
        Some(sum)
    }

    /// Replaces the symbols of the size by their values; symbols without a value stay.
    pub fn substitute(&self, bindings: &Bindings) -> Self {
        let mut sum = Self::default();
        for term in &self.terms {
            let mut product = Self::known(term.coefficient);
            for factor in &term.factors {
                let value = match factor {
                    Atom::Symbol(name) => match bindings.get(&**name) {
                        Some(value) => Self::known(*value),
                        None => Self::symbol(name),
                    },
                    Atom::FloorDiv(inner, divisor) => inner.substitute(bindings).floor_div(*divisor),
                    Atom::Positive(inner) => inner.substitute(bindings).positive(),
                };
                product = product.mul(&value);
            }
            sum = sum.add(&product);
        }
        sum
    }

    /// True if all coefficients are multiples of `divisor`, so that the size is a multiple for all values of its
    /// symbols.
    pub fn is_multiple_of(&self, divisor: i64) -> bool {
        self.terms.iter().all(|t| t.coefficient % divisor == 0)
    }

    /// Adds the names of the size's symbols to `names`.
    pub fn symbols(&self, names: &mut std::collections::BTreeSet<String>) {
        for factor in self.terms.iter().flat_map(|t| &t.factors) {
            match factor {
                Atom::Symbol(name) => {
                    names.insert(name.to_string());
                }
                Atom::FloorDiv(inner, _) | Atom::Positive(inner) => inner.symbols(names),
            }
        }
    }
}

/// Greatest common divisor of two nonnegative integers.
fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Product of sizes.
pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
    dims.into_iter().fold(Dim::known(1), |a, b| a.mul(b))
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        Self::known(value)
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Self {
        Self::known(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::{Bindings, Bounds, Dim};

    #[test]
    fn canonical_and_printed() {
        let s = Dim::symbol("seq");
        let a = s.scale(2).plus(1).mul(&s);
        assert_eq!(a.to_string(), "seq+2*seq*seq");
        assert_eq!(Dim::parse(&a.to_string()), Some(a.clone()));
        assert_eq!(a.sub(&a), Dim::known(0));
        let d = s.plus(1).floor_div(2);
        assert_eq!(d.to_string(), "(seq+1)//2");
        assert_eq!(Dim::parse("(seq+1)//2"), Some(d.clone()));
        assert_eq!(d.eval(&Bindings::from([("seq".into(), 4)])), Some(2));
        assert_eq!(d.range(&Bounds::from([("seq".into(), (1, 9))])), (1, 5));
    }

    #[test]
    fn nested_floors_merge() {
        let s = Dim::symbol("s");
        let half = s.plus(-1).floor_div(2).plus(1);
        let quarter = half.plus(-1).floor_div(2).plus(1);
        assert_eq!(quarter.to_string(), "(s+3)//4");
        assert_eq!(s.scale(-6).plus(7).floor_div(4).to_string(), "-2*s+(s+1)//2+1");
        let mixed = s.floor_div(3).add(&Dim::symbol("t")).floor_div(2);
        assert_eq!(mixed.to_string(), "(s+3*t)//6");
        for value in -9..9 {
            let bindings = Bindings::from([("s".into(), value), ("t".into(), 5)]);
            assert_eq!(mixed.eval(&bindings), Some((value.div_euclid(3) + 5).div_euclid(2)));
        }
    }

    #[test]
    fn exact_division() {
        let s = Dim::symbol("seq");
        let b = Dim::symbol("batch");
        let n = s.mul(&b).scale(384);
        assert_eq!(n.div_exact(&Dim::known(12).mul(&b)), Some(s.scale(32)));
        assert_eq!(n.div_exact(&Dim::known(5)), None);
        assert_eq!(n.div_exact(&Dim::known(0)), None);
    }

    #[test]
    fn exact_division_by_sums() {
        let dim = |text: &str| Dim::parse(text).unwrap();
        let (h, w) = (dim("(h-1)//2+1"), dim("(w-1)//2+1"));
        let all = h.mul(&w).mul(&dim("batch")).scale(120);
        assert_eq!(all.div_exact(&h.mul(&w)), Some(dim("120*batch")));
        assert_eq!(all.div_exact(&w.scale(8)), Some(h.mul(&dim("15*batch"))));
        assert_eq!(all.div_exact(&h.plus(1)), None);
        assert_eq!(dim("a*a-b*b").div_exact(&dim("a+b")), Some(dim("a-b")));
        assert_eq!(dim("a*a+b*b").div_exact(&dim("a+b")), None);
        assert_eq!(Dim::known(0).div_exact(&h), Some(Dim::known(0)));
        let huge = Dim::known(i64::MAX).mul(&h);
        assert_eq!(huge.mul(&h).div_exact(&huge.plus(1)), None);
    }

    #[test]
    fn larger_and_smaller() {
        let bounds = Bounds::from([("n".into(), (1, 100)), ("m".into(), (3, 9))]);
        let (n, m) = (Dim::symbol("n"), Dim::symbol("m"));
        let (large, small) = (n.larger(&m.scale(4), &bounds), n.smaller(&m.scale(4), &bounds));
        for a in 1..=100 {
            for b in 3..=9 {
                let bindings = Bindings::from([("n".into(), a), ("m".into(), b)]);
                let both = [&large, &small].map(|d| d.eval(&bindings));
                assert_eq!(both, [Some(a.max(4 * b)), Some(a.min(4 * b))]);
                assert_eq!([&large, &small].map(|d| d.substitute(&bindings).as_known()), both);
            }
        }
        assert_eq!(n.larger(&Dim::known(1), &bounds), n);
        assert_eq!(n.smaller(&Dim::known(0), &bounds), Dim::known(0));
        let part = n.scale(4).plus(-28).positive();
        assert_eq!(part.to_string(), "4*positive(n-7)");
        assert_eq!(Dim::parse(&part.to_string()), Some(part.clone()));
        assert_eq!(part.div_exact(&n.plus(-7).positive()), Some(Dim::known(4)));
        assert_eq!(Dim::parse("positive(positive"), None);
    }
}
