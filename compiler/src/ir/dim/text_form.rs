//! Text form of a symbolic dimension: printing, parsing and serialization.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Atom, Dim};

impl Dim {
    /// Parses the output of [`fmt::Display`], for example `2*seq+(seq+1)//2` or `5-positive(5-seq)`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { rest: text.as_bytes(), depth: 0 };
        let dim = parser.sum()?;
        parser.rest.is_empty().then_some(dim)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // Constants sort first but are printed last: `seq+1`.
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
                Self::parse(&text).ok_or_else(|| de::Error::custom(format!("`{text}` is not a dimension")))
            }
        }
    }
}
