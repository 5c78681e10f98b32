//! Batch invariance: a token is computed in one way however many tokens a run has.
//!
//! A run of few tokens and a run of one take different kernels, which add in different orders. Where two tokens are nearly
//! as likely, text that is generated with a draft (by runs of `verify`) may therefore differ from what runs of `decode`
//! give. This makes `decode` the graph of `verify`, of one token:
//!
//! ```text
//! verify  ids [1, 16] -> first `count` rows -> ... -> logits [count, vocabulary], next [count]
//! decode  ids [1, 1] or the token that was chosen last -> [1, 16] -> first `count` rows -> ... -> the first row of each
//! ```
//!
//! Kernels are chosen for up to 16 rows in both, so they are the same ones, and no kernel's result for a row depends on
//! other rows. At run time `count` is 1.

use super::{COUNT, DECODE, PAST, TOKEN, VERIFY, chosen_last};
use crate::compile::Model;
use crate::error::{Error, Result};
use crate::ir::builder::Builder;
use crate::ir::dim::{Bounds, Dim};
use crate::ir::graph::Graph;
use crate::ir::tensor::DType;

/// Makes a model's `decode` compute what `verify` computes for a token.
///
/// # Errors
/// When the model has no such functions.
pub fn run(model: &mut Model) -> Result<()> {
    let find = |wanted: &str| model.functions.iter().position(|(name, _)| name == wanted);
    let (Some(verify), Some(decode)) = (find(VERIFY), find(DECODE)) else {
        return Err(Error::request(
            "the model has no functions `verify` and `decode` whose results could differ",
            "leave out --batch-invariant",
        ));
    };
    let graph = of_one(&model.functions[verify].1)?;
    let bounds = at_run_time(&graph, &model.functions[decode].1.bounds);
    model.functions[decode].1 = graph;
    model.narrowed.insert(DECODE.to_string(), bounds);
    Ok(())
}

/// The graph of `verify` with an input of one id and outputs of one row.
fn of_one(verify: &Graph) -> Result<Graph> {
    let mut graph = verify.clone();
    let missing = || Error::request("`verify` is not the function of a language model", "report this");
    let ids = graph.inputs().iter().copied().find(|id| graph.node(*id).name == "ids").ok_or_else(missing)?;
    let shape = graph.tensor(ids).shape.clone();
    let mut outputs = graph.outputs().to_vec();
    let stores = graph.stores().to_vec();
    let mut g = Builder::new(&mut graph, "ids");
    let given = g.input("ids", DType::I32, vec![Dim::known(1); 2])?;
    let token = chosen_last(&mut g, given)?;
    let same = g.expand(token, shape)?;
    g.graph.replace_uses(ids, same);
    g.graph.remove_input(ids);
    for output in &mut outputs {
        g.name.clone_from(&output.name);
        output.node = g.slice(output.node, 0, Dim::known(0), Dim::known(1))?;
    }
    let next = outputs.iter().find(|output| output.name == "next").ok_or_else(missing)?.node;
    graph.clear_outputs();
    for store in &stores {
        graph.add_store(&store.name, store.node);
    }
    graph.add_store(TOKEN, next);
    for output in &outputs {
        graph.add_output_as(&output.name, output.node, output.dtype);
    }
    graph.sweep();
    Ok(graph)
}

/// The bounds of symbols at run time: one token, behind as many as there is room for, unless a tensor would then be larger
/// than those that memory is planned for.
fn at_run_time(graph: &Graph, decode: &Bounds) -> Bounds {
    let mut bounds = Bounds::from([(COUNT.to_string(), (1, 1))]);
    let Some(past) = decode.get(PAST) else { return bounds };
    let mut all = graph.bounds.clone();
    all.extend([(COUNT.to_string(), (1, 1)), (PAST.to_string(), *past)]);
    let fits = |dim: &Dim| dim.range(&all).1 <= dim.range(&graph.bounds).1;
    if graph.ids().into_iter().all(|id| graph.tensor(id).shape.iter().all(fits)) {
        bounds.insert(PAST.to_string(), *past);
    }
    bounds
}
