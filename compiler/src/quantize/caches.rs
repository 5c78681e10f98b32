//! Quantizes KV caches to 8 bits, with a scale for each position and head.
//!
//! ```text
//! %1 = state keys f16[1, 4096, 8, 128]               %1 = state keys u32[1, 4096, 8, 33]
//! %3 = update %1 %2 {"axis":1,"start":"past"}        %3 = update %1 quantize-rows(%2) {"axis":1,"start":"past"}
//! %5 = attention %0 transpose(slice(%3)) ..     ->   %5 = attention %0 transpose(slice(%3)) ..
//! ```
//!
//! Attention reads the quantized values directly. A cache is quantized only if nothing except attention reads it, its
//! head size is a multiple of four, and keys and values of the attention can both be quantized.

use crate::error::{Error, Result};
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Op, QuantizeRows, Slice, State, Transpose, Update};
use crate::ir::tensor::DType;

/// Operand indices of attention that may be KV caches: keys and values.
const KEYS_AND_VALUES: [usize; 2] = [1, 2];

/// A KV cache that an attention reads.
struct Cache {
    state: State,
    /// Node with the rows (keys or values) that a run adds to the cache.
    new: NodeId,
    update: Update,
    /// Node that updates the KV cache: its value is the cache after a run.
    updated: NodeId,
    /// Views between the update of the cache and the attention, first to last.
    views: Vec<Op>,
}

/// Quantizes the KV caches of a model's functions and returns their number. Functions without attention are not
/// changed.
///
/// # Errors
/// If no cache can be quantized, or the functions would quantize different caches.
pub fn run<'a>(graphs: impl IntoIterator<Item = (&'a str, &'a mut Graph)>) -> Result<usize> {
    let mut first: Option<(&str, Vec<String>)> = None;
    let attends = |graph: &Graph| graph.ids().iter().any(|id| matches!(graph.op(*id), Op::Attention(_)));
    for (name, graph) in graphs.into_iter().filter(|(_, graph)| attends(graph)) {
        let found = quantize_graph(graph)?;
        match &first {
            None => first = Some((name, found)),
            Some((_, same)) if *same == found => {}
            Some((other, _)) => {
                let fault = format!(
                    "functions `{other}` and `{name}` have different KV caches that only attention reads"
                );
                return Err(Error::request(fault, "leave out --kv-cache"));
            }
        }
    }
    match first {
        Some((_, found)) if !found.is_empty() => Ok(found.len()),
        _ => Err(Error::request(
            "the model has no KV caches that can be quantized: only attention may read them, and the head size must be a \
             multiple of four",
            "leave out --kv-cache; in an ONNX file, the compiler must recognize the attention",
        )),
    }
}

/// Quantizes the KV caches of a graph, and returns their names in order.
fn quantize_graph(graph: &mut Graph) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for id in graph.topological() {
        if !matches!(graph.op(id), Op::Attention(_)) {
            continue;
        }
        let operands = graph.operands(id);
        let caches = KEYS_AND_VALUES.map(|index| operands.get(index).and_then(|x| find_cache(graph, id, *x)));
        let [Some(keys), Some(values)] = caches else { continue };
        let mut replaced = operands.clone();
        for (index, cache) in KEYS_AND_VALUES.into_iter().zip([keys, values]) {
            names.push(cache.state.name.clone());
            let view = quantize_cache(graph, cache)?;
            if let Some(operand) = replaced.get_mut(index) {
                *operand = view;
            }
        }
        let node = graph.node(id);
        let (op, arity, epilogue) = (node.op.clone(), node.arity, node.epilogue.clone());
        graph.set_op(id, Replacement { op, operands: replaced, arity, epilogue })?;
    }
    graph.sweep();
    names.sort();
    Ok(names)
}

/// Returns the KV cache that an attention reads through its operand `view`. Returns `None` if the operand does not show
/// a cache, or the cache has other readers.
fn find_cache(graph: &Graph, attention: NodeId, view: NodeId) -> Option<Cache> {
    let mut views = Vec::new();
    let (mut at, mut user) = (view, attention);
    let update = loop {
        let node = graph.node(at);
        if !node.epilogue.is_empty() || graph.users(at) != [user] {
            return None;
        }
        let last = node.tensor.rank().checked_sub(1)?;
        match &node.op {
            Op::Update(update) if update.axis != last => break update.clone(),
            Op::Transpose(Transpose { perm }) if perm.last() == Some(&last) => {}
            Op::Slice(slice)
                if is_whole(slice, last, graph.tensor(*graph.operands(at).first()?).shape.last()?) => {}
            _ => return None,
        }
        views.push(node.op.clone());
        (user, at) = (at, *graph.operands(at).first()?);
    };
    views.reverse();
    let [state, new] = <[NodeId; 2]>::try_from(graph.operands(at)).ok()?;
    let kept =
        graph.users(state) == [at] && !graph.is_output(state) && graph.outputs().iter().all(|o| o.node != at);
    let state = graph.state(state).filter(|_| kept)?.clone();
    let whole_vec4s = state.shape.last().is_some_and(|size| *size > 0 && size.is_multiple_of(4));
    let stored = graph.stores().iter().filter(|store| store.name == state.name);
    (whole_vec4s && state.dtype.is_float() && stored.map(|store| store.node).eq([at])).then_some(Cache {
        state,
        new,
        update,
        updated: at,
        views,
    })
}

/// True if a slice keeps all positions of an axis, whose size is given.
fn is_whole(slice: &Slice, axis: usize, size: &Dim) -> bool {
    let same = slice.sizes.get(axis) == Some(size) && slice.starts.get(axis).is_some_and(|start| start.is(0));
    same && slice.steps.get(axis) == Some(&1)
}

/// Quantizes a KV cache, and returns the view of it that attention reads.
fn quantize_cache(graph: &mut Graph, cache: Cache) -> Result<NodeId> {
    let Cache { mut state, new, update, updated, views } = cache;
    let words = state.shape.last().map_or(1, |size| size / 4 + 1);
    if let Some(size) = state.shape.last_mut() {
        *size = words;
    }
    state.dtype = DType::U32;
    let name = state.name.clone();
    let mut g = Builder::new(graph, &name);
    let state = g.add(state, &[])?;
    let new = g.add(QuantizeRows::default(), &[new])?;
    let quantized = g.add(update, &[state, new])?;
    let mut shown = quantized;
    for mut view in views {
        if let Op::Slice(slice) = &mut view
            && let Some(size) = slice.sizes.last_mut()
        {
            *size = Dim::from(words);
        }
        shown = g.add(view, &[shown])?;
    }
    graph.replace_output(updated, quantized);
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::ir::graph_text::{parse, print};

    const DECODE: &str = r#"symbol past 0..29
%0 = input {"name":"x","dtype":"f32","shape":[1,3,2,16]}
%1 = state {"name":"keys","dtype":"f32","shape":[1,32,2,16]}
%2 = state {"name":"values","dtype":"f32","shape":[1,32,2,16]}
%3 = update %1 %0 {"axis":1,"start":"past"}
%4 = slice %3 {"starts":[0,0,0,0],"steps":[1,1,1,1],"sizes":[1,"3+past",2,16]}
%5 = transpose %4 {"perm":[0,2,1,3]}
%6 = update %2 %0 {"axis":1,"start":"past"}
%7 = slice %6 {"starts":[0,0,0,0],"steps":[1,1,1,1],"sizes":[1,"3+past",2,16]}
%8 = transpose %7 {"perm":[0,2,1,3]}
%9 = transpose %0 {"perm":[0,2,1,3]}
%10 = attention %9 %5 %8 {"scale":0.5,"causal":true}
output "y" %10
store "keys" %3
store "values" %6
"#;

    #[test]
    fn attention_reads_quantized_caches() {
        let mut graph = parse(DECODE).unwrap();
        assert_eq!(run([("decode", &mut graph)]).unwrap(), 2);
        crate::ir::verify::verify(&graph, "caches").unwrap();
        let text = print(&graph);
        assert_eq!(text.matches("quantize-rows").count(), 2, "{text}");
        assert!(
            text.contains(r#""dtype":"u32","shape":[1,32,2,5]"#) && !text.contains("[1,32,2,16]"),
            "{text}"
        );
        assert!(text.contains("u32[1, 2, past+3, 5]"), "{text}");
    }

    #[test]
    fn caches_with_other_readers_are_not_quantized() {
        let text = DECODE.replace("output \"y\" %10", "%11 = neg %4\noutput \"y\" %10\noutput \"z\" %11");
        let error = run([("decode", &mut parse(&text).unwrap())]).unwrap_err().to_string();
        assert!(error.contains("no KV caches that can be quantized"), "{error}");
        let odd = DECODE.replace("2,16]", "2,18]");
        assert!(run([("decode", &mut parse(&odd).unwrap())]).is_err());
        let (mut one, mut other) = (parse(DECODE).unwrap(), parse(&text).unwrap());
        let error = run([("decode", &mut one), ("verify", &mut other)]).unwrap_err().to_string();
        assert!(error.contains("`decode` and `verify`"), "{error}");
    }
}
