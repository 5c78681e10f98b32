//! Symbolic sizes of a bundle as readable text.

use drift_runtime::format::{Expr, ExprOp, Symbol};

/// Formats a symbolic size of a bundle, with the names of its symbols.
pub(crate) fn format_expression(expr: &Expr, symbols: &[Symbol]) -> String {
    let mut stack: Vec<(String, bool)> = Vec::new();
    for op in &expr.0 {
        let value = match *op {
            ExprOp::Const(value) => (value.to_string(), true),
            ExprOp::Symbol(i) => {
                let name = usize::try_from(i).ok().and_then(|i| symbols.get(i)).map(|s| s.name.clone());
                (name.unwrap_or_else(|| "?".to_owned()), true)
            }
            op => {
                let (right, left) = (operand(stack.pop()), operand(stack.pop()));
                match op {
                    ExprOp::Add => (format!("{left} + {right}"), false),
                    ExprOp::Sub => (format!("{left} - {right}"), false),
                    ExprOp::Mul => (format!("{left} * {right}"), false),
                    ExprOp::FloorDiv => (format!("{left} / {right}"), false),
                    ExprOp::CeilDiv => (format!("ceil({left} / {right})"), true),
                    ExprOp::Mod => (format!("{left} mod {right}"), false),
                    ExprOp::Min => (format!("min({left}, {right})"), true),
                    ExprOp::Max | ExprOp::Const(_) | ExprOp::Symbol(_) => {
                        (format!("max({left}, {right})"), true)
                    }
                }
            }
        };
        stack.push(value);
    }
    stack.pop().map_or_else(|| "?".to_owned(), |(text, _)| text)
}

/// Text of an operand. The flag is true if the operand is atomic, such as one number or symbol; other operands get
/// parentheses.
fn operand(value: Option<(String, bool)>) -> String {
    match value {
        Some((text, true)) => text,
        Some((text, false)) => format!("({text})"),
        None => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::format_expression;
    use drift_runtime::format::{Expr, ExprOp, Symbol};

    #[test]
    fn sizes_have_symbol_names_and_parentheses() {
        let symbols = [Symbol { name: "seq".into(), min: 1, max: 9 }];
        let sum = Expr::symbol(0).then(ExprOp::Add, Expr::constant(3));
        let half = sum.then(ExprOp::CeilDiv, Expr::constant(2)).then(ExprOp::Mul, Expr::symbol(0));
        assert_eq!(format_expression(&half, &symbols), "ceil((seq + 3) / 2) * seq");
        assert_eq!(format_expression(&Expr::constant(4), &symbols), "4");
        assert_eq!(format_expression(&Expr(vec![ExprOp::Add]), &symbols), "? + ?");
    }
}
