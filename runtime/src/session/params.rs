//! Computes parameter words and grid sizes of a function from its symbol values.

use crate::error::{Error, Result};
use crate::format::{Dispatch, Expr, Function};

/// Writes the parameter words of every dispatch to the params slot, and the non-constant grids consecutively to
/// `grids`. `max_grid` has the device's maximum grid sizes. If `written_before` is true, the words of dispatches that
/// do not depend on symbols are not written again.
pub(crate) fn write_params(
    function: &Function,
    symbols: &[i64],
    written_before: bool,
    max_grid: [u32; 3],
    slot: &mut [u8],
    grids: &mut [u8],
) -> Result<()> {
    let mut grids = grids.as_chunks_mut::<4>().0.iter_mut();
    for dispatch in &function.dispatches {
        let constant = dispatch.grid.iter().all(|size| size.as_constant().is_some());
        if written_before && constant && dispatch.params.iter().all(Expr::is_static) {
            continue;
        }
        let offset = usize::try_from(dispatch.params_offset).unwrap_or(usize::MAX);
        let words = slot.get_mut(offset..).unwrap_or_default().as_chunks_mut::<4>().0;
        for (expr, word) in dispatch.params.iter().zip(words) {
            *word = to_word(dispatch, eval(dispatch, expr, symbols)?)?.to_le_bytes();
        }
        for (expr, max) in dispatch.grid.iter().zip(max_grid) {
            let value = eval(dispatch, expr, symbols)?;
            let size = u32::try_from(value).ok().filter(|size| *size <= max);
            let size = size
                .ok_or_else(|| Error::TooLarge { place: format!("grid of `{}`", dispatch.label), value })?;
            if !constant && let Some(word) = grids.next() {
                *word = size.to_le_bytes();
            }
        }
    }
    Ok(())
}

fn eval(dispatch: &Dispatch, expr: &Expr, symbols: &[i64]) -> Result<i64> {
    expr.eval(symbols)
        .map_err(|source| Error::Expression { place: format!("dispatch `{}`", dispatch.label), source })
}

/// Converts a parameter to a 32-bit word: unsigned, or signed in two's complement.
fn to_word(dispatch: &Dispatch, value: i64) -> Result<u32> {
    let signed = i32::try_from(value).map(i32::cast_unsigned);
    signed
        .or_else(|_| u32::try_from(value))
        .map_err(|_| Error::TooLarge { place: format!("parameter of `{}`", dispatch.label), value })
}

#[cfg(test)]
mod tests {
    use super::write_params;
    use crate::Error;
    use crate::format::{Dispatch, Expr, ExprOp, Function};

    fn function(params: Vec<Expr>, grid: [Expr; 3]) -> Function {
        let dispatch = Dispatch {
            pipeline: 0,
            bindings: Vec::new(),
            grid,
            params,
            params_offset: 4,
            barrier_before: false,
            label: "x".to_owned(),
            flops: Expr::default(),
            bytes: Expr::default(),
        };
        Function { dispatches: vec![dispatch], ..Function::default() }
    }

    #[test]
    fn words_and_grids() {
        let (one, seq) = (Expr::constant(1), Expr::symbol(0));
        let minus = Expr::constant(0).then(ExprOp::Sub, seq.clone());
        let function =
            function(vec![seq.clone(), minus, Expr::constant(0xffff_ffff)], [seq, one.clone(), one]);
        let (mut slot, mut grids) = ([0xaau8; 16], [0u8; 12]);
        write_params(&function, &[5], false, [8; 3], &mut slot, &mut grids).unwrap();
        assert_eq!(
            slot,
            [0xaaaa_aaaa, 5, 5u32.wrapping_neg(), u32::MAX].map(u32::to_le_bytes).concat().as_slice()
        );
        assert_eq!(grids, [5u32, 1, 1].map(u32::to_le_bytes).concat().as_slice());
        let error = write_params(&function, &[9], true, [8; 3], &mut slot, &mut grids).unwrap_err();
        assert!(matches!(error, Error::TooLarge { value: 9, .. }), "{error}");
        let error = write_params(&function, &[-1], true, [8; 3], &mut slot, &mut grids).unwrap_err();
        assert!(matches!(error, Error::TooLarge { value: -1, .. }), "{error}");
    }

    #[test]
    fn constant_grids_are_not_written() {
        let function = function(vec![], [Expr::constant(3), Expr::constant(1), Expr::constant(1)]);
        write_params(&function, &[], false, [8; 3], &mut [], &mut []).unwrap();
        assert!(write_params(&function, &[], false, [2; 3], &mut [], &mut []).is_err());
    }

    #[test]
    fn static_params_are_written_once() {
        let grid = || [Expr::constant(1), Expr::constant(1), Expr::constant(1)];
        let mut function = function(vec![Expr::constant(7)], grid());
        let mut slot = [0u8; 12];
        write_params(&function, &[5], false, [8; 3], &mut slot, &mut []).unwrap();
        assert_eq!(slot[4..8], 7u32.to_le_bytes());
        slot = [1; 12];
        write_params(&function, &[6], true, [8; 3], &mut slot, &mut []).unwrap();
        assert_eq!(slot, [1; 12]);
        function.dispatches[0].params.push(Expr::symbol(0));
        write_params(&function, &[6], true, [8; 3], &mut slot, &mut []).unwrap();
        assert_eq!(slot[4..], [7u32, 6].map(u32::to_le_bytes).concat());
    }
}
