//! Symbolic sizes.
//!
//! A [`Dim`] is a sum of products of symbols with integer coefficients, where a factor may also be a floor
//! division by a positive integer (strided convolutions over a symbolic extent need it) or the larger of a sum and
//! zero (slices that may end beyond a symbolic extent do).
//! The form is canonical, so two sizes are equal exactly when their representations are.
//! Arithmetic saturates: a size that large fails the element limit of [`super::tensor`] anyway.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Values of the symbols for one evaluation.
pub type Bindings = BTreeMap<String, i64>;

/// Declared bounds of the symbols, inclusive.
pub type Bounds = BTreeMap<String, (i64, i64)>;

/// Most terms of a product of sums; real models stay below ten, and a hostile one must not exhaust memory.
const MAX_TERMS: usize = 1024;

/// Largest common multiple of divisors that bounds are worked out with.
const MAX_DIVISOR: i64 = 1 << 20;

/// Floors and positive parts within others that bounds are worked out with; each level multiplies the work.
const MAX_NESTED: u32 = 4;

/// A factor of a term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A named symbol.
    Symbol(Arc<str>),
    /// Floor of a sum divided by a positive integer.
    FloorDiv(Box<Dim>, i64),
    /// The larger of a sum and zero.
    Positive(Box<Dim>),
}

/// A coefficient times sorted factors; no factors makes it a constant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// Sorted, possibly repeated.
    pub factors: Vec<Atom>,
    /// Never zero.
    pub coefficient: i64,
}

impl Term {
    /// Compares exponents, those of the first factor first; more of a factor is greater.
    fn degree_cmp(&self, other: &Self) -> Ordering {
        let pairs = self.factors.iter().zip(&other.factors);
        let unequal = pairs.map(|(a, b)| b.cmp(a)).find(|order| order.is_ne());
        unequal.unwrap_or_else(|| self.factors.len().cmp(&other.factors.len()))
    }

    /// Exact quotient.
    fn over(&self, divisor: &Self) -> Option<Self> {
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

/// A size: a canonical sum of terms.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim {
    terms: Vec<Term>,
}

impl Dim {
    /// A known size.
    pub fn known(value: i64) -> Self {
        if value == 0 {
            return Self::default();
        }
        Self { terms: vec![Term { factors: Vec::new(), coefficient: value }] }
    }

    /// The size named by a symbol.
    pub fn symbol(name: &str) -> Self {
        Self { terms: vec![Term { factors: vec![Atom::Symbol(name.into())], coefficient: 1 }] }
    }

    /// The terms in canonical order.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The value, when no symbol is involved.
    pub fn as_known(&self) -> Option<i64> {
        match self.terms.as_slice() {
            [] => Some(0),
            [term] if term.factors.is_empty() => Some(term.coefficient),
            _ => None,
        }
    }

    /// The symbol's name, when the size is just a symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        match self.terms.as_slice() {
            [Term { factors, coefficient: 1 }] => match factors.as_slice() {
                [Atom::Symbol(name)] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the size is the given number.
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

    /// Both values, when no symbol is involved: most sizes are numbers, and arithmetic of these needs no terms.
    fn both_known(&self, other: &Self) -> Option<(i64, i64)> {
        Some((self.as_known()?, other.as_known()?))
    }

    /// Sum.
    pub fn add(&self, other: &Self) -> Self {
        if let Some((a, b)) = self.both_known(other) {
            return Self::known(a.saturating_add(b));
        }
        Self::from_terms(self.terms.iter().chain(&other.terms).cloned().collect())
    }

    /// Difference.
    pub fn sub(&self, other: &Self) -> Self {
        self.add(&other.scale(-1))
    }

    /// Sum with an integer.
    pub fn plus(&self, value: i64) -> Self {
        self.add(&Self::known(value))
    }

    /// Product with an integer.
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

    /// Product; one of more than [`MAX_TERMS`] terms saturates.
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

    /// Exact quotient, when the divisor divides the size as one polynomial divides another.
    pub fn div_exact(&self, divisor: &Self) -> Option<Self> {
        let lead = divisor.leading()?;
        let (mut rest, mut quotient) = (self.clone(), Self::default());
        // Every step takes the leading term away, so there are no more steps than terms may come up.
        for _ in 0..MAX_TERMS {
            let Some(term) = rest.leading() else {
                // A product that saturated is no quotient.
                return (quotient.mul(divisor) == *self).then_some(quotient);
            };
            let step = Self { terms: vec![term.over(lead)?] };
            rest = rest.sub(&step.mul(divisor));
            quotient = quotient.add(&step);
        }
        None
    }

    /// The term that comes first in lexicographic order of exponents, which multiplication keeps.
    fn leading(&self) -> Option<&Term> {
        self.terms.iter().max_by(|a, b| a.degree_cmp(b))
    }

    /// Floor of the quotient by a positive integer.
    pub fn floor_div(&self, divisor: i64) -> Self {
        if divisor <= 1 {
            return self.clone();
        }
        if let Some(value) = self.as_known() {
            return Self::known(value.div_euclid(divisor));
        }
        // Multiples of the divisor leave the floor, and coefficients from 0 to the divisor less 1 stay.
        let part = |f: fn(i64, i64) -> i64| {
            let terms =
                self.terms.iter().map(|t| Term { coefficient: f(t.coefficient, divisor), ..t.clone() });
            Self::from_terms(terms.collect())
        };
        let (whole, rest) = (part(i64::div_euclid), part(i64::rem_euclid));
        if rest.as_known().is_some() {
            return whole;
        }
        // What all but the constant share with the divisor cancels.
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

    /// Ceiling of the quotient by a positive integer.
    pub fn ceil_div(&self, divisor: i64) -> Self {
        self.plus(divisor.saturating_sub(1)).floor_div(divisor)
    }

    /// The larger of the size and zero.
    pub fn positive(&self) -> Self {
        if let Some(value) = self.as_known() {
            return Self::known(value.max(0));
        }
        // What all terms share stands before it.
        let common = self.terms.iter().fold(0, |g, t| gcd(t.coefficient.saturating_abs(), g)).max(1);
        let terms = self.terms.iter().map(|t| Term { coefficient: t.coefficient / common, ..t.clone() });
        let atom = Atom::Positive(Box::new(Self::from_terms(terms.collect())));
        Self { terms: vec![Term { factors: vec![atom], coefficient: common }] }
    }

    /// The same, which is the size itself or zero where bounds of the symbols say so.
    pub fn positive_within(&self, bounds: &Bounds) -> Self {
        match self.range(bounds) {
            (0.., _) => self.clone(),
            (_, ..=0) => Self::default(),
            _ => self.positive(),
        }
    }

    /// The larger of two sizes.
    pub fn larger(&self, other: &Self, bounds: &Bounds) -> Self {
        other.add(&self.sub(other).positive_within(bounds))
    }

    /// The smaller of two sizes.
    pub fn smaller(&self, other: &Self, bounds: &Bounds) -> Self {
        self.sub(&self.sub(other).positive_within(bounds))
    }

    /// The value under bindings; `None` when a symbol is unbound.
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

    /// The size with the given symbols replaced by numbers.
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

    /// Bounds of the value within bounds of the symbols, by interval arithmetic; an undeclared symbol is 1 to
    /// `i64::MAX`. A floor division is also taken for the quotient less what the floor cuts off, so that
    /// `4 * (n + 3)//4 - n` is known to be 0 to 3, and a positive part for either of what it is, so that
    /// `n - positive(n - 5)` is known to be 5 at most.
    pub fn range(&self, bounds: &Bounds) -> (i64, i64) {
        self.range_within(bounds, MAX_NESTED)
    }

    /// The same, where what is nested deeper than `depth` is taken for what it is alone.
    fn range_within(&self, bounds: &Bounds, depth: u32) -> (i64, i64) {
        if let Some(value) = self.as_known() {
            return (value, value);
        }
        let all = self.interval(bounds, depth);
        let Some(depth) = depth.checked_sub(1) else { return all };
        let others = [self.without_floors(bounds, depth), self.without_positive(bounds, depth)];
        // All hold, so the tightest of each end does.
        others.into_iter().flatten().fold(all, |(low, high), (l, h)| (low.max(l), high.min(h)))
    }

    /// Bounds by those of each term.
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
                let ends = [
                    interval.0.saturating_mul(f.0),
                    interval.0.saturating_mul(f.1),
                    interval.1.saturating_mul(f.0),
                    interval.1.saturating_mul(f.1),
                ];
                interval = ends.iter().fold((i64::MAX, i64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
            }
            low = low.saturating_add(interval.0);
            high = high.saturating_add(interval.1);
        }
        (low, high)
    }

    /// Bounds with each floor `x//d` that stands alone in a term as `x/d - r/d`, `r` from 0 to `d - 1`; `None` where
    /// there is no such term or numbers are too large to tell.
    fn without_floors(&self, bounds: &Bounds, depth: u32) -> Option<(i64, i64)> {
        let alone = |t: &Term| match t.factors.as_slice() {
            [Atom::FloorDiv(inner, divisor)] => Some(((**inner).clone(), *divisor)),
            _ => None,
        };
        let mut common = 1i64;
        for (_, divisor) in self.terms.iter().filter_map(alone) {
            common = common.checked_mul(divisor / gcd(common, divisor))?;
        }
        if common == 1 || common > MAX_DIVISOR {
            return None;
        }
        let (mut sum, mut low, mut high) = (Self::default(), 0i64, 0i64);
        for term in &self.terms {
            let Some((inner, divisor)) = alone(term) else {
                let coefficient = term.coefficient.checked_mul(common)?;
                sum = sum.add(&Self { terms: vec![Term { coefficient, ..term.clone() }] });
                continue;
            };
            let times = term.coefficient.checked_mul(common / divisor)?;
            sum = sum.add(&inner.scale(times));
            let cut = times.checked_mul(divisor - 1)?.checked_neg()?;
            (low, high) = (low.checked_add(cut.min(0))?, high.checked_add(cut.max(0))?);
        }
        let (l, h) = sum.range_within(bounds, depth);
        let (l, h) = (l.checked_add(low)?, h.checked_add(high)?);
        // The whole is a multiple of the common divisor.
        Some((l.div_euclid(common) + i64::from(l.rem_euclid(common) != 0), h.div_euclid(common)))
    }

    /// Bounds with the first positive part as what is in it and as zero: it is the larger of both. `None` where there is
    /// none whose other factors are not negative.
    fn without_positive(&self, bounds: &Bounds, depth: u32) -> Option<(i64, i64)> {
        let part = |(i, term): (usize, &Term)| {
            let at = term.factors.iter().position(|f| matches!(f, Atom::Positive(_)))?;
            let mut others = term.clone();
            let Atom::Positive(inner) = others.factors.remove(at) else { return None };
            others.coefficient = 1;
            let times = Self { terms: vec![others] };
            (times.interval(bounds, depth).0 >= 0).then(|| (i, term.coefficient, times.mul(&inner)))
        };
        let (i, coefficient, inside) = self.terms.iter().enumerate().find_map(part)?;
        let mut rest = self.clone();
        rest.terms.remove(i);
        let zero = rest.range_within(bounds, depth);
        let itself = rest.add(&inside.scale(coefficient)).range_within(bounds, depth);
        // The sum is the larger of both where the part is added, and the smaller where it is taken away.
        let pick = if coefficient > 0 { i64::max } else { i64::min };
        Some((pick(zero.0, itself.0), pick(zero.1, itself.1)))
    }

    /// Whether the size is a multiple of `divisor` whatever the symbols are.
    pub fn is_multiple_of(&self, divisor: i64) -> bool {
        self.terms.iter().all(|t| t.coefficient % divisor == 0)
    }

    /// Adds the names of the symbols used to `names`.
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

    /// Parses what [`fmt::Display`] writes, for example `2*seq+(seq+1)//2` or `5-positive(5-seq)`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { rest: text.as_bytes(), depth: 0 };
        let dim = parser.sum()?;
        parser.rest.is_empty().then_some(dim)
    }
}

/// Greatest common divisor of two numbers from 0.
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

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // Constants sort first; written last they read naturally: `seq+1`.
        let constants = self.terms.iter().filter(|t| t.factors.is_empty());
        let ordered = self.terms.iter().filter(|t| !t.factors.is_empty()).chain(constants);
        for (i, term) in ordered.enumerate() {
            if i > 0 && term.coefficient >= 0 {
                f.write_str("+")?;
            }
            if term.factors.is_empty() || term.coefficient != 1 {
                if term.coefficient == -1 && !term.factors.is_empty() {
                    f.write_str("-")?;
                } else {
                    write!(f, "{}", term.coefficient)?;
                    if !term.factors.is_empty() {
                        f.write_str("*")?;
                    }
                }
            }
            for (j, factor) in term.factors.iter().enumerate() {
                if j > 0 {
                    f.write_str("*")?;
                }
                match factor {
                    Atom::Symbol(name) => f.write_str(name)?,
                    Atom::FloorDiv(inner, divisor) => write!(f, "({inner})//{divisor}")?,
                    Atom::Positive(inner) => write!(f, "positive({inner})")?,
                }
            }
        }
        Ok(())
    }
}

struct Parser<'a> {
    rest: &'a [u8],
    depth: u32,
}

impl Parser<'_> {
    fn eat(&mut self, token: &[u8]) -> bool {
        if self.rest.starts_with(token) {
            self.rest = &self.rest[token.len()..];
            return true;
        }
        false
    }

    fn sum(&mut self) -> Option<Dim> {
        self.depth += 1;
        if self.depth > 32 {
            return None;
        }
        let mut sum = Dim::default();
        let mut sign = if self.eat(b"-") { -1 } else { 1 };
        loop {
            sum = sum.add(&self.product()?.scale(sign));
            if self.eat(b"+") {
                sign = 1;
            } else if self.eat(b"-") {
                sign = -1;
            } else {
                self.depth -= 1;
                return Some(sum);
            }
        }
    }

    fn product(&mut self) -> Option<Dim> {
        let mut product = self.factor()?;
        while self.eat(b"*") {
            product = product.mul(&self.factor()?);
        }
        Some(product)
    }

    fn factor(&mut self) -> Option<Dim> {
        if self.eat(b"positive(") {
            let inner = self.sum()?;
            return self.eat(b")").then(|| inner.positive());
        }
        if self.eat(b"(") {
            let inner = self.sum()?;
            if !self.eat(b")") {
                return None;
            }
            if !self.eat(b"//") {
                return Some(inner);
            }
            let divisor = self.number()?;
            return (divisor > 0).then(|| inner.floor_div(divisor));
        }
        if self.rest.first()?.is_ascii_digit() {
            return self.number().map(Dim::known);
        }
        let end = self.rest.iter().position(|c| b"+-*/()".contains(c)).unwrap_or(self.rest.len());
        let name = std::str::from_utf8(&self.rest[..end]).ok().filter(|n| !n.is_empty())?;
        self.rest = &self.rest[end..];
        Some(Dim::symbol(name))
    }

    fn number(&mut self) -> Option<i64> {
        let end = self.rest.iter().position(|c| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let value = std::str::from_utf8(&self.rest[..end]).ok()?.parse().ok()?;
        self.rest = &self.rest[end..];
        Some(value)
    }
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_known() {
            Some(value) => serializer.serialize_i64(value),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Known(i64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Known(value) => Ok(Self::known(value)),
            Form::Text(text) => {
                Self::parse(&text).ok_or_else(|| de::Error::custom(format!("`{text}` is not a size")))
            }
        }
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
    fn floors_of_floors_are_one() {
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
