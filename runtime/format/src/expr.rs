//! Integer expressions over a function's symbols, for sizes that are known at run time only.
//!
//! An expression is a postfix program. The type is therefore not recursive, and evaluation needs no allocation:
//! `ceil_div(seq, 4)` is `[Symbol(0), Const(4), CeilDiv]`. Arithmetic is checked. A value that is known at compile time
//! is one `Const`.

use serde::{Deserialize, Serialize};

/// Maximum number of values on the stack while an expression is evaluated.
pub(crate) const MAX_DEPTH: usize = 32;
/// Maximum operations of one expression.
pub(crate) const MAX_OPS: usize = 256;

/// A postfix program that leaves exactly one value on the stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Expr(pub Vec<ExprOp>);

/// An operation: pushes a value, or replaces the top two values (`left` below `right`) by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExprOp {
    Const(i64),
    /// Index into [`crate::Function::symbols`].
    Symbol(u32),
    Add,
    Sub,
    Mul,
    /// Integer quotient, rounded toward negative infinity.
    FloorDiv,
    /// Integer quotient, rounded toward positive infinity.
    CeilDiv,
    /// Remainder `left - right * floor(left / right)`, which has the sign of `right`.
    Mod,
    Min,
    Max,
}

/// Error of checking or evaluating an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    #[error("an expression overflows 64 bits")]
    Overflow,
    #[error("an expression divides by zero")]
    DivisionByZero,
    #[error("an expression names symbol {0}, which does not exist")]
    NoSuchSymbol(u32),
    #[error("a malformed expression does not leave exactly one value on its stack")]
    Malformed,
    #[error("an expression has more than {MAX_OPS} operations or {MAX_DEPTH} values on its stack")]
    TooLarge,
}

impl Expr {
    pub fn constant(value: i64) -> Expr {
        Expr(vec![ExprOp::Const(value)])
    }

    pub fn symbol(index: u32) -> Expr {
        Expr(vec![ExprOp::Symbol(index)])
    }

    /// Returns `self op right`, where `op` takes two operands. Folds constants unless the operation fails.
    pub fn then(self, op: ExprOp, right: Expr) -> Expr {
        if let (Some(left), Some(right)) = (self.as_constant(), right.as_constant())
            && let Ok(value) = apply(op, left, right)
        {
            return Expr::constant(value);
        }
        let mut ops = self.0;
        ops.extend(right.0);
        ops.push(op);
        Expr(ops)
    }

    /// Returns the value of an expression that is a single constant, else `None`.
    pub fn as_constant(&self) -> Option<i64> {
        match self.0.as_slice() {
            [ExprOp::Const(value)] => Some(*value),
            _ => None,
        }
    }

    /// Returns the index of the symbol of an expression that is a single symbol, else `None`.
    pub fn as_symbol(&self) -> Option<u32> {
        match self.0.as_slice() {
            [ExprOp::Symbol(index)] => Some(*index),
            _ => None,
        }
    }

    /// True if the expression contains no symbol.
    pub fn is_static(&self) -> bool {
        !self.0.iter().any(|op| matches!(op, ExprOp::Symbol(_)))
    }

    /// Evaluates the expression for the symbol values `symbols`.
    pub fn eval(&self, symbols: &[i64]) -> Result<i64, ExprError> {
        if self.0.len() > MAX_OPS {
            return Err(ExprError::TooLarge);
        }
        let mut stack = [0i64; MAX_DEPTH];
        let mut depth = 0usize;
        for op in &self.0 {
            let value = match *op {
                ExprOp::Const(value) => value,
                ExprOp::Symbol(index) => *usize::try_from(index)
                    .ok()
                    .and_then(|index| symbols.get(index))
                    .ok_or(ExprError::NoSuchSymbol(index))?,
                op => {
                    let [.., left, right] = stack.get(..depth).ok_or(ExprError::Malformed)? else {
                        return Err(ExprError::Malformed);
                    };
                    let value = apply(op, *left, *right)?;
                    depth -= 2;
                    value
                }
            };
            *stack.get_mut(depth).ok_or(ExprError::TooLarge)? = value;
            depth += 1;
        }
        if depth == 1 { Ok(stack[0]) } else { Err(ExprError::Malformed) }
    }

    /// Checks the form, the size and the symbols of an expression. An expression that passes can fail only by overflow
    /// or division by zero.
    pub fn check(&self, n_symbols: usize) -> Result<(), ExprError> {
        if self.0.len() > MAX_OPS {
            return Err(ExprError::TooLarge);
        }
        let mut depth = 0usize;
        for op in &self.0 {
            match *op {
                ExprOp::Const(_) => depth += 1,
                ExprOp::Symbol(index) if usize::try_from(index).is_ok_and(|index| index < n_symbols) => {
                    depth += 1;
                }
                ExprOp::Symbol(index) => return Err(ExprError::NoSuchSymbol(index)),
                _ if depth < 2 => return Err(ExprError::Malformed),
                _ => depth -= 1,
            }
            if depth > MAX_DEPTH {
                return Err(ExprError::TooLarge);
            }
        }
        if depth == 1 { Ok(()) } else { Err(ExprError::Malformed) }
    }
}

impl Default for Expr {
    fn default() -> Expr {
        Expr::constant(0)
    }
}

fn apply(op: ExprOp, left: i64, right: i64) -> Result<i64, ExprError> {
    let value = match op {
        ExprOp::Const(_) | ExprOp::Symbol(_) => return Err(ExprError::Malformed),
        ExprOp::Add => left.checked_add(right),
        ExprOp::Sub => left.checked_sub(right),
        ExprOp::Mul => left.checked_mul(right),
        ExprOp::Min => Some(left.min(right)),
        ExprOp::Max => Some(left.max(right)),
        ExprOp::FloorDiv | ExprOp::CeilDiv | ExprOp::Mod if right == 0 => {
            return Err(ExprError::DivisionByZero);
        }
        ExprOp::FloorDiv | ExprOp::CeilDiv | ExprOp::Mod => {
            let quotient = left.checked_div(right).ok_or(ExprError::Overflow)?;
            let rest = left.checked_rem(right).ok_or(ExprError::Overflow)?;
            let same_sign = (rest < 0) == (right < 0);
            match op {
                ExprOp::Mod if rest != 0 && !same_sign => rest.checked_add(right),
                ExprOp::Mod => Some(rest),
                ExprOp::FloorDiv if rest != 0 && !same_sign => quotient.checked_sub(1),
                ExprOp::CeilDiv if rest != 0 && same_sign => quotient.checked_add(1),
                _ => Some(quotient),
            }
        }
    };
    value.ok_or(ExprError::Overflow)
}

#[cfg(test)]
mod tests {
    use super::{Expr, ExprError, ExprOp};

    fn eval(op: ExprOp, left: i64, right: i64) -> Result<i64, ExprError> {
        Expr(vec![ExprOp::Symbol(0), ExprOp::Symbol(1), op]).eval(&[left, right])
    }

    #[test]
    fn division_rounds_as_named() {
        for (left, right, floor, ceil, modulo) in
            [(7, 2, 3, 4, 1), (-7, 2, -4, -3, 1), (7, -2, -4, -3, -1), (-7, -2, 3, 4, -1), (6, 3, 2, 2, 0)]
        {
            assert_eq!(eval(ExprOp::FloorDiv, left, right), Ok(floor), "{left} floordiv {right}");
            assert_eq!(eval(ExprOp::CeilDiv, left, right), Ok(ceil), "{left} ceildiv {right}");
            assert_eq!(eval(ExprOp::Mod, left, right), Ok(modulo), "{left} mod {right}");
        }
    }

    #[test]
    fn failures_are_errors() {
        assert_eq!(eval(ExprOp::Mul, i64::MAX, 2), Err(ExprError::Overflow));
        assert_eq!(eval(ExprOp::FloorDiv, i64::MIN, -1), Err(ExprError::Overflow));
        assert_eq!(eval(ExprOp::Mod, 1, 0), Err(ExprError::DivisionByZero));
        assert_eq!(Expr(vec![]).eval(&[]), Err(ExprError::Malformed));
        assert_eq!(Expr(vec![ExprOp::Const(1), ExprOp::Add]).eval(&[]), Err(ExprError::Malformed));
        assert_eq!(Expr(vec![ExprOp::Const(1); 33]).eval(&[]), Err(ExprError::TooLarge));
        assert_eq!(Expr(vec![ExprOp::Const(1); 33]).check(0), Err(ExprError::TooLarge));
        assert_eq!(Expr::symbol(1).check(1), Err(ExprError::NoSuchSymbol(1)));
        assert_eq!(Expr::symbol(1).eval(&[0]), Err(ExprError::NoSuchSymbol(1)));
    }

    #[test]
    fn constants_fold() {
        let sum = Expr::constant(2).then(ExprOp::Mul, Expr::constant(3));
        assert_eq!(sum.as_constant(), Some(6));
        let kept = Expr::symbol(0).then(ExprOp::CeilDiv, Expr::constant(4));
        assert_eq!(kept.eval(&[9]), Ok(3));
        assert!(!kept.is_static());
    }
}
