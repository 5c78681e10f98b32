//! Entry point `sample`: draws a token from the logits of a step, on the device.
//!
//! ```text
//! logits [1, vocabulary] -> 64 largest, sorted -> weights -> cumulative sums -> first sum above the random number
//! ```
//!
//! Input `settings [4]` holds temperature, top_k (0: all), top_p and a random number in `[0, 1)`. Logits are sorted in
//! descending order, equal ones by id. The token is the first one whose cumulative probability exceeds the random
//! number times the probability that top_k and top_p leave. If the 64 largest logits do not decide the token, or a
//! logit is NaN, output `next` is -1 and the host draws the token. Otherwise `next` is the token, and `decode` finds it
//! in its state.

use super::{DECODE, TOKEN};
use crate::entry_points::EntryPoint;
use crate::error::Result;
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, CumSum, Gather, GatherElements, TopK, UnaryFn};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;
use crate::pass::Precision;

/// Name of the entry point that draws a token from logits.
pub const SAMPLE: &str = "sample";
/// Maximum number of tokens to draw from; the runtime requests no larger top_k.
const MAX_CANDIDATES: i64 = 64;
/// Maximum number of logits in a row that is sorted at once.
const MAX_ROW: i64 = 2048;

/// Returns the entry point that draws from the logits of `decode`. Returns `None` if `decode` has no logits of known
/// size.
///
/// # Errors
/// If the graph cannot be built.
pub fn sample_entry_point(entry_points: &[EntryPoint]) -> Result<Option<EntryPoint>> {
    let logits = entry_points.iter().filter(|entry| entry.name == DECODE).find_map(|entry| {
        let output = entry.graph.outputs().iter().find(|output| output.name == "logits")?;
        entry.graph.tensor(output.node).shape.last()?.as_known()
    });
    let Some(vocabulary) = logits.filter(|size| *size > 0) else { return Ok(None) };
    // Sampling is exact whatever the precision of the model.
    let (precision, fixed_size) = (Some(Precision::F32), true);
    Ok(Some(EntryPoint { precision, fixed_size, ..EntryPoint::new(SAMPLE, sampling_graph(vocabulary)?) }))
}

/// Returns the graph of the entry point `sample` for a vocabulary size.
///
/// # Errors
/// If the graph cannot be built.
pub fn sampling_graph(vocabulary: i64) -> Result<Graph> {
    let mut graph = Graph::default();
    let mut g = Builder::new(&mut graph, SAMPLE);
    let logits = g.input("logits", DType::F32, vec![Dim::known(1), Dim::known(vocabulary)])?;
    let settings = g.input("settings", DType::F32, vec![Dim::known(4)])?;
    let setting = |g: &mut Builder<'_>, i| g.slice(settings, 0, Dim::known(i), Dim::known(1));
    let (temperature, top_k) = (setting(&mut g, 0)?, setting(&mut g, 1)?);
    let (top_p, random) = (setting(&mut g, 2)?, setting(&mut g, 3)?);
    let rows = row_count(vocabulary);
    let count = MAX_CANDIDATES.min(vocabulary);
    let logits = g.reshape(logits, vec![Dim::known(rows), Dim::known(vocabulary / rows)])?;
    let (values, ids) = top_logits(&mut g, logits, (rows, vocabulary / rows), count)?;

    g.name = "weights".to_string();
    let largest = g.slice(values, 0, Dim::known(0), Dim::known(1))?;
    let weight = |g: &mut Builder<'_>, x| {
        let distance = g.binary(BinaryFn::Sub, x, largest)?;
        let distance = g.binary(BinaryFn::Div, distance, temperature)?;
        g.unary(UnaryFn::Exp, distance)
    };
    let all = weight(&mut g, logits)?;
    let all = g.reduce(ReduceKind::Sum, all, vec![1], false)?;
    let all = g.reduce(ReduceKind::Sum, all, vec![0], true)?;
    let ranks = Array::f32(&[usize::try_from(count).unwrap_or(0)], (0..count).map(|i| i as f32).collect());
    let ranks = g.constant(&ranks)?;
    let (one, end) = (g.scalar(DType::F32, 1.0)?, g.scalar(DType::F32, count as f32)?);
    let unlimited = g.binary(BinaryFn::Less, top_k, one)?;
    let limit = g.select(unlimited, end, top_k)?;
    let inside = g.binary(BinaryFn::Less, ranks, limit)?;
    let inside = g.cast(inside, DType::F32)?;
    let weights = weight(&mut g, values)?;
    let weights = g.binary(BinaryFn::Mul, weights, inside)?;
    let sums = g.add(CumSum { axis: 0, exclusive: false, reverse: false }, &[weights])?;

    g.name = "draw".to_string();
    let candidates_total = g.slice(sums, 0, Dim::known(count - 1), Dim::known(1))?;
    let total = g.select(unlimited, all, candidates_total)?;
    let wanted = g.binary(BinaryFn::Mul, top_p, total)?;
    // True if the candidates contain all tokens of top_p: the tokens up to the first sum of at least `wanted`.
    let reached = g.binary(BinaryFn::GreaterEqual, candidates_total, wanted)?;
    let beyond = g.binary(BinaryFn::GreaterEqual, sums, wanted)?;
    let infinity = g.scalar(DType::F32, f32::INFINITY)?;
    let kept = g.select(beyond, sums, infinity)?;
    let kept = g.reduce(ReduceKind::Min, kept, vec![0], true)?;
    let kept = g.select(reached, kept, total)?;
    let point = g.binary(BinaryFn::Mul, random, kept)?;
    let number = |g: &mut Builder<'_>, f, than| {
        let passed = g.binary(f, sums, than)?;
        let passed = g.cast(passed, DType::F32)?;
        g.reduce(ReduceKind::Sum, passed, vec![0], true)
    };
    let place = number(&mut g, BinaryFn::LessEqual, point)?;
    let last = number(&mut g, BinaryFn::Less, wanted)?;
    let place = g.binary(BinaryFn::Min, place, last)?;
    let final_one = g.scalar(DType::F32, (count - 1) as f32)?;
    let place = g.binary(BinaryFn::Min, place, final_one)?;
    let place = g.cast(place, DType::I64)?;
    let id = g.add(Gather { axis: 0 }, &[ids, place])?;
    // Without top_p, it is enough that the random number is below the candidates' sum.
    let whole = g.binary(BinaryFn::GreaterEqual, top_p, one)?;
    let within = g.binary(BinaryFn::Less, point, candidates_total)?;
    let within = g.binary(BinaryFn::And, whole, within)?;
    let decided = g.binary(BinaryFn::Or, reached, within)?;
    let none = g.scalar(DType::I64, -1.0)?;
    let next = g.select(decided, id, none)?;
    g.name = "next".to_string();
    let next = g.cast(next, DType::I32)?;
    g.graph.add_output("next", next);
    g.graph.add_store(TOKEN, next);
    Ok(graph)
}

/// Returns the smallest number of rows of equal length into which the logits can be split, with at most `MAX_ROW`
/// logits per row. Returns 1 if no such length divides the vocabulary.
fn row_count(vocabulary: i64) -> i64 {
    let lengths = (2 * MAX_CANDIDATES..=MAX_ROW.min(vocabulary)).rev();
    let length = lengths.into_iter().find(|length| vocabulary % length == 0);
    vocabulary / length.unwrap_or(vocabulary)
}

/// Returns the `count` largest logits, sorted, and their ids. Selects the largest logits of each row first, then the
/// largest ones of this selection.
fn top_logits(
    g: &mut Builder<'_>,
    logits: NodeId,
    (rows, length): (i64, i64),
    count: i64,
) -> Result<(NodeId, NodeId)> {
    g.name = "candidates".to_string();
    let k = usize::try_from(count).unwrap_or(0);
    let top = |axis| TopK { axis, k, largest: true, indices: true };
    let flat = |n: i64| vec![Dim::known(n)];
    let places = g.add(top(1), &[logits])?;
    let values = g.add(GatherElements { axis: 1 }, &[logits, places])?;
    let values = g.reshape(values, flat(rows * count))?;
    if rows == 1 {
        return Ok((values, g.reshape(places, flat(count))?));
    }
    let starts = (0..rows).map(|row| row * length).collect();
    let starts = g.constant(&Array::int(DType::I64, &[usize::try_from(rows).unwrap_or(0), 1], starts))?;
    let ids = g.binary(BinaryFn::Add, places, starts)?;
    let ids = g.reshape(ids, flat(rows * count))?;
    // Among equal values the lowest id comes first, within a row and across rows.
    let selected = g.add(top(0), &[values])?;
    let gather = |g: &mut Builder<'_>, from| g.add(Gather { axis: 0 }, &[from, selected]);
    Ok((gather(g, values)?, gather(g, ids)?))
}

#[cfg(test)]
mod tests {
    use super::{row_count, sampling_graph};
    use crate::ir::array::Array;
    use crate::ir::eval::eval;
    use std::collections::BTreeMap;

    /// Returns the token that the graph draws from logits.
    fn drawn(logits: &[f32], settings: [f32; 4]) -> i64 {
        let graph = sampling_graph(i64::try_from(logits.len()).unwrap()).unwrap();
        let inputs = BTreeMap::from([
            ("logits".to_string(), Array::f32(&[1, logits.len()], logits.to_vec())),
            ("settings".to_string(), Array::f32(&[4], settings.to_vec())),
        ]);
        eval(&graph, &inputs).unwrap().remove(0).1.ints().unwrap()[0]
    }

    #[test]
    fn rows_divide_vocabularies() {
        for (vocabulary, wanted) in [(64, 1), (128, 1), (32000, 16), (50257, 29), (128_256, 64), (100_003, 1)]
        {
            assert_eq!(row_count(vocabulary), wanted, "{vocabulary}");
        }
    }

    #[test]
    fn the_random_number_selects_a_token() {
        // Probabilities 0.4, 0.3, 0.2 and 0.1 at ids 2, 0, 3 and 1; 0 for all others.
        let mut logits = vec![f32::NEG_INFINITY; 4000];
        for (id, p) in [(2, 0.4f32), (0, 0.3), (3, 0.2), (1, 0.1)] {
            logits[id] = libm::logf(p);
        }
        let draw = |top_k, top_p, random| drawn(&logits, [1.0, top_k, top_p, random]);
        for (random, id) in [(0.0, 2), (0.39, 2), (0.41, 0), (0.69, 0), (0.71, 3), (0.89, 3), (0.91, 1)] {
            assert_eq!(draw(0.0, 1.0, random), id, "{random}");
        }
        // Renormalized to 0.7, the first token has 0.57; renormalized to 0.9, the second one ends at 0.78.
        for (top_k, top_p) in [(2.0, 1.0), (0.0, 0.6), (50.0, 0.6), (2.0, 0.99)] {
            assert_eq!([0.56, 0.58, 0.99].map(|random| draw(top_k, top_p, random)), [2, 0, 0]);
        }
        assert_eq!([0.77, 0.79].map(|random| draw(0.0, 0.75, random)), [0, 3]);
        assert_eq!(drawn(&logits, [0.05, 0.0, 1.0, 0.99]), 2);
    }

    #[test]
    fn undecided_draws_are_left_to_the_host() {
        let flat = vec![1.0; 128];
        let draw = |top_k, top_p, random| drawn(&flat, [1.0, top_k, top_p, random]);
        assert_eq!(draw(0.0, 1.0, 0.25), 32);
        assert_eq!([draw(0.0, 1.0, 0.51), draw(0.0, 0.6, 0.1), draw(0.0, 0.4, 0.99)], [-1, -1, 51]);
        assert_eq!([draw(64.0, 1.0, 0.999), draw(64.0, 0.5, 0.999)], [63, 31]);
        let mut broken = flat;
        broken[7] = f32::NAN;
        assert_eq!(drawn(&broken, [1.0, 8.0, 1.0, 0.5]), -1);
    }
}
