//! Selects the sizes of symbols for which functions get specializations.
//!
//! By default, only the size 1 of a symbol is tried: a batch of one, one row of a matmul, one token of a text. There a
//! matmul becomes a matvec, so other kernels can save much time. Sides of pictures are not tried: kernels for large
//! pictures serve small ones well, and a picture as small as the lower bound is rare. The caller keeps a specialization
//! only if it is estimated to save time.

use std::collections::BTreeSet;

use crate::entry_points::Specialize;
use crate::error::{Error, Result};
use crate::ir::dim::Bindings;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::LayoutClass;
use crate::ir::tensor::TensorDesc;

/// Minimum upper bound of a symbol for a specialization for the size 1.
const MIN_UPPER_BOUND: i64 = 4;
/// Maximum number of symbols for which a function is also specialized for each symbol alone. With more symbols, a
/// function is specialized only for all symbols together.
const MAX_SINGLE_SYMBOLS: usize = 2;

/// Returns the sizes that may get a specialized function, the most specialized ones last.
///
/// # Errors
/// If a requested size names an unknown symbol or is outside of the symbol's bounds.
pub(super) fn specialized_sizes(graph: &Graph, specialize: &Specialize) -> Result<Vec<Bindings>> {
    match specialize {
        Specialize::Never => Ok(Vec::new()),
        Specialize::Sizes(all) => requested(graph, all),
        Specialize::Worthwhile => Ok(sizes_of_one(graph)),
    }
}

/// Checks requested sizes against the bounds of the symbols. Returns them in order of their number of symbols.
fn requested(graph: &Graph, all: &[Bindings]) -> Result<Vec<Bindings>> {
    let bounds = &graph.bounds;
    for (name, value) in all.iter().flatten() {
        let (low, high) = bounds.get(name).copied().ok_or_else(|| {
            let names = bounds.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if names.is_empty() { "none" } else { names.as_str() };
            Error::request(
                format!("there is no symbolic size `{name}` to specialize"),
                format!("the symbolic sizes of the model are: {known}"),
            )
        })?;
        if !(low..=high).contains(value) {
            return Err(Error::request(
                format!("`{name}={value}` lies outside of its bounds {low}..{high}"),
                format!("widen the bounds with --dim {name}=LOW..HIGH, or give another size"),
            ));
        }
    }
    let mut all = all.to_vec();
    all.sort_by_key(Bindings::len);
    Ok(all)
}

/// Returns the size 1 of every symbol that can have it, that varies widely and that is no side of a picture: for each
/// symbol alone if there are few, and for all symbols together.
fn sizes_of_one(graph: &Graph) -> Vec<Bindings> {
    // Other symbols, such as the length of a KV cache, change from run to run.
    let mut input_symbols = BTreeSet::new();
    for id in graph.inputs() {
        graph.tensor(*id).shape.iter().for_each(|dim| dim.symbols(&mut input_symbols));
    }
    let sides = picture_sides(graph);
    let symbols: Vec<&String> = graph
        .bounds
        .iter()
        .filter(|(name, (low, high))| {
            *low <= 1 && *high >= MIN_UPPER_BOUND && input_symbols.contains(*name) && !sides.contains(*name)
        })
        .map(|(name, _)| name)
        .collect();
    let together: Bindings = symbols.iter().map(|name| ((*name).clone(), 1)).collect();
    let mut all = Vec::new();
    if (2..=MAX_SINGLE_SYMBOLS).contains(&symbols.len()) {
        all.extend(symbols.into_iter().map(|name| Bindings::from([(name.clone(), 1)])));
    }
    if !together.is_empty() {
        all.push(together);
    }
    all
}

/// Returns the symbols in the sizes of pictures: of the axes along which a convolution slides a window of more than one
/// element. Audio signals count as pictures with one side.
fn picture_sides(graph: &Graph) -> BTreeSet<String> {
    let mut sides = BTreeSet::new();
    for id in graph.ids() {
        if graph.facts(id).layout != LayoutClass::Convolution {
            continue;
        }
        let operands: Vec<&TensorDesc> =
            graph.operands(id).into_iter().map(|operand: NodeId| graph.tensor(operand)).collect();
        let [picture, filters, ..] = operands.as_slice() else { continue };
        let windows = picture.shape.iter().zip(&filters.shape).skip(2);
        windows.filter(|(_, kernel)| !kernel.is(1)).for_each(|(size, _)| size.symbols(&mut sides));
    }
    sides
}

#[cfg(test)]
mod tests {
    use super::specialized_sizes;
    use crate::entry_points::Specialize;
    use crate::ir::graph_text;

    /// Sizes that are tried by default for a convolution of pictures with the given bounds, as text.
    fn tried(batch: &str, side: &str, kernel: usize) -> String {
        let attributes =
            r#"{"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}"#;
        let text = format!(
            r#"symbol batch {batch}
symbol height {side}
%0 = input {{"name":"x","dtype":"f32","shape":["batch",8,"height",64]}}
%1 = constant {{"dtype":"f32","shape":[8,8,{kernel},{kernel}],"random":1}}
%2 = conv %0 %1 {attributes}
output "y" %2
"#
        );
        let graph = graph_text::parse(&text).unwrap();
        Specialize::Sizes(specialized_sizes(&graph, &Specialize::Worthwhile).unwrap()).to_string()
    }

    #[test]
    fn only_the_size_one_is_tried() {
        assert_eq!(tried("1..8", "64..64", 3), "batch=1");
        assert_eq!(tried("0..8", "64..64", 3), "batch=1");
        assert_eq!(tried("1..3", "64..64", 3), "");
        assert_eq!(tried("2..8", "64..64", 3), "");
    }

    #[test]
    fn sides_of_pictures_are_not_tried() {
        assert_eq!(tried("1..8", "32..1024", 3), "batch=1");
        assert_eq!(tried("1..8", "3..1024", 3), "batch=1");
        assert_eq!(tried("2..8", "3..1024", 3), "");
        // A convolution of 1 x 1 multiplies the matrix of all positions, so its height counts rows.
        assert_eq!(tried("2..8", "1..1024", 1), "height=1");
        assert_eq!(tried("1..8", "1..1024", 1), "batch=1 height=1 batch=1,height=1");
    }
}
