//! Derives the values of a function's symbols from input shapes, and checks all shapes.

use crate::error::{Error, Result};
use crate::format::{Expr, ExprError, Function, Port};

/// Returns a value for every symbol, checks the bounds, and compares every dimension of every input with its
/// expression. `shapes` has one entry per input; `given` has the symbol values that the caller set by name. A symbol
/// whose bounds are equal needs no value.
pub(crate) fn bind_symbols<'a>(
    function: &Function,
    shapes: impl Iterator<Item = Option<&'a [usize]>> + Clone,
    given: &[Option<i64>],
) -> Result<Vec<i64>> {
    let mut values: Vec<Option<i64>> = given.to_vec();
    values.resize(function.symbols.len(), None);
    for (symbol, value) in function.symbols.iter().zip(&values) {
        let Some(value) = *value else { continue };
        if value < symbol.min || value > symbol.max {
            let (symbol, min, max) = (symbol.name.clone(), symbol.min, symbol.max);
            return Err(Error::SymbolOutOfBounds { symbol, given: value, min, max });
        }
    }
    for (port, shape) in function.inputs.iter().zip(shapes.clone()) {
        let missing =
            || Error::Missing { function: function.name.clone(), kind: "input", name: port.name.clone() };
        bind_port(function, port, shape.ok_or_else(missing)?, &mut values)?;
    }
    let mut symbols = Vec::with_capacity(values.len());
    for (symbol, value) in function.symbols.iter().zip(values) {
        let missing =
            || Error::Missing { function: function.name.clone(), kind: "symbol", name: symbol.name.clone() };
        let fixed = (symbol.min == symbol.max).then_some(symbol.min);
        symbols.push(value.or(fixed).ok_or_else(missing)?);
    }
    for (port, shape) in function.inputs.iter().zip(shapes) {
        let expected = port.shape_at(&symbols).map_err(|source| expression_error(port, source))?;
        let equal = shape.is_some_and(|shape| {
            shape.len() == expected.len()
                && shape.iter().zip(&expected).all(|(a, b)| i64::try_from(*a) == Ok(*b))
        });
        if !equal {
            let given = shape.unwrap_or_default().to_vec();
            return Err(Error::WrongShape {
                port: port.name.clone(),
                expected: format_shape(function, port),
                given,
            });
        }
    }
    Ok(symbols)
}

/// Returns the shape of a port for these symbol values.
pub(crate) fn array_shape(port: &Port, symbols: &[i64]) -> Result<Vec<usize>> {
    let shape = port.shape_at(symbols).map_err(|source| expression_error(port, source))?;
    let to_size = |dim: &i64| {
        usize::try_from(*dim)
            .map_err(|_| Error::TooLarge { place: format!("shape of `{}`", port.name), value: *dim })
    };
    shape.iter().map(to_size).collect()
}

/// Checks rank, constant dimensions and symbol bounds of the shape of one input. Returns the shape as i64.
pub(crate) fn check_shape(function: &Function, port: &Port, shape: &[usize]) -> Result<Vec<i64>> {
    bind_port(function, port, shape, &mut vec![None; function.symbols.len()])?;
    let dims: Vec<i64> = shape.iter().map(|dim| i64::try_from(*dim).unwrap_or(i64::MAX)).collect();
    let differs = |(expr, dim): (&Expr, &i64)| expr.as_constant().is_some_and(|value| value != *dim);
    match port.shape.iter().zip(&dims).any(differs) {
        true => {
            let expected = format_shape(function, port);
            Err(Error::WrongShape { port: port.name.clone(), expected, given: shape.to_vec() })
        }
        false => Ok(dims),
    }
}

/// Gives every symbol without a value the size of a dimension of the port whose expression is this symbol alone.
fn bind_port(function: &Function, port: &Port, shape: &[usize], values: &mut [Option<i64>]) -> Result<()> {
    if shape.len() != port.shape.len() {
        let expected = format_shape(function, port);
        return Err(Error::WrongShape { port: port.name.clone(), expected, given: shape.to_vec() });
    }
    for (dimension, (expr, size)) in port.shape.iter().zip(shape).enumerate() {
        let Some(index) = expr.as_symbol().and_then(|index| usize::try_from(index).ok()) else { continue };
        let (Some(symbol), Some(value)) = (function.symbols.get(index), values.get_mut(index)) else {
            continue;
        };
        let given = i64::try_from(*size).unwrap_or(i64::MAX);
        if given < symbol.min || given > symbol.max {
            let (port, symbol, min, max) = (port.name.clone(), symbol.name.clone(), symbol.min, symbol.max);
            return Err(Error::OutOfBounds { port, dimension, symbol, given, min, max });
        }
        value.get_or_insert(given);
    }
    Ok(())
}

/// Formats a port's shape with symbol names and bounds, such as `1, seq in 1..=8, 384`. A computed dimension is
/// `?`.
pub(crate) fn format_shape(function: &Function, port: &Port) -> String {
    let dim = |expr: &Expr| match (expr.as_constant(), expr.as_symbol()) {
        (Some(value), _) => value.to_string(),
        (None, Some(index)) => {
            let symbol = usize::try_from(index).ok().and_then(|index| function.symbols.get(index));
            symbol
                .map_or("?".to_owned(), |symbol| format!("{} in {}..{}", symbol.name, symbol.min, symbol.max))
        }
        (None, None) => "?".to_owned(),
    };
    port.shape.iter().map(dim).collect::<Vec<_>>().join(", ")
}

fn expression_error(port: &Port, source: ExprError) -> Error {
    Error::Expression { place: format!("shape of `{}`", port.name), source }
}

#[cfg(test)]
mod tests {
    use super::bind_symbols;
    use crate::Error;
    use crate::format::{DeviceType, Expr, ExprOp, Function, HostType, Port, Symbol};

    fn bind_shapes(
        function: &Function,
        shapes: &[Option<Vec<usize>>],
        given: &[Option<i64>],
    ) -> Result<Vec<i64>, Error> {
        bind_symbols(function, shapes.iter().map(Option::as_deref), given)
    }

    fn function() -> Function {
        let port = |name: &str, shape: Vec<Expr>| Port {
            name: name.to_owned(),
            host_type: HostType::F32,
            device_type: DeviceType::F32,
            shape,
            slot: 0,
            offset: 0,
        };
        let twice = Expr::symbol(0).then(ExprOp::Mul, Expr::constant(2));
        Function {
            name: "main".to_owned(),
            symbols: vec![Symbol { name: "seq".to_owned(), min: 1, max: 8 }],
            inputs: vec![
                port("doubled", vec![twice]),
                port("tokens", vec![Expr::constant(1), Expr::symbol(0)]),
                port("mask", vec![Expr::constant(1), Expr::symbol(0)]),
            ],
            ..Function::default()
        }
    }

    fn shapes(doubled: usize, tokens: usize, mask: usize) -> Vec<Option<Vec<usize>>> {
        vec![Some(vec![doubled]), Some(vec![1, tokens]), Some(vec![1, mask])]
    }

    #[test]
    fn symbols_come_from_shapes() {
        assert_eq!(bind_shapes(&function(), &shapes(10, 5, 5), &[]).unwrap(), [5]);
        assert_eq!(bind_shapes(&function(), &shapes(10, 5, 5), &[Some(5)]).unwrap(), [5]);
    }

    #[test]
    fn a_symbol_with_equal_bounds_needs_no_value() {
        let mut function = function();
        function.symbols.push(Symbol { name: "count".to_owned(), min: 3, max: 3 });
        assert_eq!(bind_shapes(&function, &shapes(10, 5, 5), &[]).unwrap(), [5, 3]);
        function.symbols[1].max = 4;
        let error = bind_shapes(&function, &shapes(10, 5, 5), &[]).unwrap_err();
        assert!(matches!(&error, Error::Missing { name, .. } if name == "count"), "{error}");
    }

    #[test]
    fn shape_mismatches_are_errors() {
        let error = bind_shapes(&function(), &shapes(10, 5, 4), &[]).unwrap_err();
        assert!(matches!(&error, Error::WrongShape { port, .. } if port == "mask"), "{error}");
        let error = bind_shapes(&function(), &shapes(9, 5, 5), &[]).unwrap_err();
        assert!(matches!(&error, Error::WrongShape { port, .. } if port == "doubled"), "{error}");
        let error = bind_shapes(&function(), &shapes(18, 9, 9), &[]).unwrap_err();
        assert!(
            matches!(&error, Error::OutOfBounds { port, dimension: 1, given: 9, max: 8, .. } if port == "tokens"),
            "{error}"
        );
        let error = bind_shapes(&function(), &[Some(vec![2]), None, Some(vec![1, 1])], &[]).unwrap_err();
        assert!(matches!(&error, Error::Missing { name, .. } if name == "tokens"), "{error}");
        let error = bind_shapes(&function(), &shapes(2, 1, 1), &[Some(9)]).unwrap_err();
        assert!(matches!(error, Error::SymbolOutOfBounds { given: 9, .. }), "{error}");
    }
}
