//! Symbolic sizes.
//!
//! A [`Dim`] is a sum of products of symbols with integer coefficients, where a factor may also be a floor
//! division by a positive integer (strided convolutions over a symbolic extent need it).
//! The form is canonical, so two sizes are equal exactly when their representations are.
//! Arithmetic saturates: a size that large fails the element limit of [`super::tensor`] anyway.

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

/// A factor of a term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A named symbol.
    Symbol(Arc<str>),
    /// Floor of a sum divided by a positive integer.
    FloorDiv(Box<Dim>, i64),
}

/// A coefficient times sorted factors; no factors makes it a constant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// Sorted, possibly repeated.
    pub factors: Vec<Atom>,
    /// Never zero.
    pub coefficient: i64,
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

    /// Sum.
    pub fn add(&self, other: &Self) -> Self {
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

    /// Exact quotient by a single-term divisor, when every term is divisible.
    pub fn div_exact(&self, divisor: &Self) -> Option<Self> {
        let [d] = divisor.terms.as_slice() else {
            return (self == divisor && !divisor.terms.is_empty()).then(|| Self::known(1));
        };
        let mut terms = Vec::with_capacity(self.terms.len());
        for t in &self.terms {
            if t.coefficient.checked_rem(d.coefficient)? != 0 {
                return None;
            }
            let mut factors = t.factors.clone();
            for f in &d.factors {
                let at = factors.iter().position(|x| x == f)?;
                factors.remove(at);
            }
            terms.push(Term { factors, coefficient: t.coefficient.checked_div(d.coefficient)? });
        }
        Some(Self::from_terms(terms))
    }

    /// Floor of the quotient by a positive integer.
    pub fn floor_div(&self, divisor: i64) -> Self {
        if divisor <= 1 {
            return self.clone();
        }
        if let Some(value) = self.as_known() {
            return Self::known(value.div_euclid(divisor));
        }
        // The divisible terms leave the floor.
        let (whole, rest): (Vec<Term>, Vec<Term>) =
            self.terms.iter().cloned().partition(|t| t.coefficient % divisor == 0);
        let whole = Self::from_terms(
            whole
                .into_iter()
                .map(|t| Term { factors: t.factors, coefficient: t.coefficient / divisor })
                .collect(),
        );
        let rest = Self::from_terms(rest);
        match rest.as_known() {
            Some(value) => whole.plus(value.div_euclid(divisor)),
            None => {
                let atom = Atom::FloorDiv(Box::new(rest), divisor);
                whole.add(&Self { terms: vec![Term { factors: vec![atom], coefficient: 1 }] })
            }
        }
    }

    /// Ceiling of the quotient by a positive integer.
    pub fn ceil_div(&self, divisor: i64) -> Self {
        self.plus(divisor.saturating_sub(1)).floor_div(divisor)
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
                };
                product = product.mul(&value);
            }
            sum = sum.add(&product);
        }
        sum
    }

    /// Smallest and largest value within bounds, by interval arithmetic; an undeclared symbol is 1 to `i64::MAX`.
    pub fn range(&self, bounds: &Bounds) -> (i64, i64) {
        let (mut low, mut high) = (0i64, 0i64);
        for term in &self.terms {
            let mut interval = (term.coefficient, term.coefficient);
            for factor in &term.factors {
                let f = match factor {
                    Atom::Symbol(name) => bounds.get(&**name).copied().unwrap_or((1, i64::MAX)),
                    Atom::FloorDiv(inner, divisor) => {
                        let (a, b) = inner.range(bounds);
                        (a.div_euclid(*divisor), b.div_euclid(*divisor))
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
                Atom::FloorDiv(inner, _) => inner.symbols(names),
            }
        }
    }

    /// Parses what [`fmt::Display`] writes, for example `2*seq+(seq+1)//2`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { rest: text.as_bytes(), depth: 0 };
        let dim = parser.sum()?;
        parser.rest.is_empty().then_some(dim)
    }
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
    fn exact_division() {
        let s = Dim::symbol("seq");
        let b = Dim::symbol("batch");
        let n = s.mul(&b).scale(384);
        assert_eq!(n.div_exact(&Dim::known(12).mul(&b)), Some(s.scale(32)));
        assert_eq!(n.div_exact(&Dim::known(5)), None);
        assert_eq!(n.div_exact(&Dim::known(0)), None);
    }
}
