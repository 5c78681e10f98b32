//! Text form of a graph, for tests and `driftc dump`.
//!
//! ```text
//! # comment
//! symbol seq 1..512
//! %0 = input {"name":"x","dtype":"f32","shape":[1,"seq",4]} : f32[1, seq, 4] "x"
//! %1 = constant {"dtype":"f32","shape":[4],"values":[1.0,2.0,3.0,4.0]} : f32[4]
//! %2 = leaky-relu %0 | %1 {"alpha":0.1} then (add #0 @1) (cast #1 {"to":"f16"}) : f16[1, seq, 4] "act"
//! output "y" %2
//! ```
//!
//! A line `store "cache" %5` stores a value in a state at the end of a run.
//!
//! A node takes one line: operator or element function, operands, after `|` the operands of the epilogue, attributes as
//! JSON, the epilogue, the type of the result with its layout, and the node's name if it has one. In the epilogue, `#0`
//! is the result of the operator, `#i` the result of step i, and `@k` operand k. The printed text is canonical: nodes
//! are numbered in topological order and attributes keep the order of the payload's fields, so equal graphs have equal
//! texts. The type may be omitted. If present, it is checked, except that a float may be stored in another float type
//! than the inferred one.

mod parse;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::element::{Arg, Element, EpilogueStep};
use super::graph::{Graph, NodeId};
use super::op::Op;

pub use parse::parse;

/// Returns the canonical text of a graph.
pub fn print(graph: &Graph) -> String {
    let order = graph.topological();
    let numbers: BTreeMap<NodeId, usize> = order.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    let mut text = String::new();
    for (name, (low, high)) in &graph.bounds {
        push(&mut text, format_args!("symbol {name} {low}..{high}\n"));
    }
    for id in order {
        push(&mut text, format_args!("{}\n", print_node(graph, id, &numbers)));
    }
    for output in graph.outputs() {
        let number = numbers.get(&output.node).copied().unwrap_or_default();
        let stored = graph.tensor(output.node).dtype;
        let declared =
            if output.dtype == stored { String::new() } else { format!(" : {}", output.dtype.name()) };
        push(&mut text, format_args!("output {} %{number}{declared}\n", quoted(&output.name)));
    }
    for store in graph.stores() {
        let number = numbers.get(&store.node).copied().unwrap_or_default();
        push(&mut text, format_args!("store {} %{number}\n", quoted(&store.name)));
    }
    text
}

/// Returns the line of one node in the text form. `numbers` maps each node to its number in the text, such as 3 for
/// `%3`.
pub fn print_node(graph: &Graph, id: NodeId, numbers: &BTreeMap<NodeId, usize>) -> String {
    let node = graph.node(id);
    let number = |id: &NodeId| numbers.get(id).copied().unwrap_or_default();
    let (name, attributes) = op_text(&node.op);
    let mut line = format!("%{} = {name}", number(&id));
    for (i, operand) in graph.operands(id).iter().enumerate() {
        let bar = if i == node.arity { " |" } else { "" };
        push(&mut line, format_args!("{bar} %{}", number(operand)));
    }
    if attributes != "{}" {
        push(&mut line, format_args!(" {attributes}"));
    }
    line.push_str(&epilogue_text(&node.epilogue));
    push(&mut line, format_args!(" : {}", node.tensor));
    if !node.name.is_empty() {
        push(&mut line, format_args!(" {}", quoted(&node.name)));
    }
    line
}

/// Returns the name and the attributes of an operator or element function in the text form. The attributes are `{}` if
/// it has none.
pub fn op_text(op: &Op) -> (String, String) {
    match op {
        Op::Elementwise(e) => element_text(&e.element),
        op => (op.name().to_string(), op.attributes_text()),
    }
}

/// Returns the text of an epilogue with a leading space; an empty text if the epilogue has no steps.
pub fn epilogue_text(epilogue: &[EpilogueStep]) -> String {
    let mut line = String::new();
    for (i, step) in epilogue.iter().enumerate() {
        let (name, attributes) = element_text(&step.element);
        push(&mut line, format_args!("{} ({name}", if i == 0 { " then" } else { "" }));
        for arg in &step.args {
            match arg {
                Arg::Step(s) => push(&mut line, format_args!(" #{s}")),
                Arg::Input(k) => push(&mut line, format_args!(" @{k}")),
            }
        }
        if attributes != "{}" {
            push(&mut line, format_args!(" {attributes}"));
        }
        line.push(')');
    }
    line
}

/// Returns the name and the attributes of an element function in the text form. The attributes are `{}` if it has none.
fn element_text(element: &Element) -> (String, String) {
    let json = match element {
        Element::Select => return ("select".into(), "{}".into()),
        Element::Cast(to) => return ("cast".into(), format!("{{\"to\":\"{}\"}}", to.name())),
        Element::Unary(f) => serde_json::to_string(f),
        Element::Binary(f) => serde_json::to_string(f),
    };
    // An enum serializes as `"name"` or `{"name":{attributes}}`, and these names contain no quote.
    let json = json.unwrap_or_default();
    match json.strip_prefix("{\"").and_then(|t| t.strip_suffix('}')).and_then(|t| t.split_once("\":")) {
        Some((name, attributes)) => (name.to_string(), attributes.to_string()),
        None => (json.trim_matches('"').to_string(), "{}".into()),
    }
}

/// Returns a name as a JSON string.
fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// Appends formatted text to `text`. Formatting into a string cannot fail.
fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::{parse, print};
    use crate::error::Error;
    use crate::ir::op::Op;
    use crate::ir::tensor::{DType, Layout};

    /// A graph text in canonical form with types, epilogues, layouts, float storage, symbols, names and every kind of
    /// element function.
    const CANONICAL: &str = r##"symbol batch 1..8
symbol seq 1..512
%0 = input {"name":"x","dtype":"f32","shape":["batch","seq",4]} : f32[batch, seq, 4] "x"
%1 = input {"name":"a \"b\"\n","dtype":"bool","shape":[4]} : bool[4] "a \"b\"\n"
%2 = constant {"dtype":"f32","shape":[4],"values":[1.0,-0.5,0.1,3e-20]} : f32[4]
%3 = reshape %0 {"shape":["batch*seq",4]} : f32[batch*seq, 4]
%4 = leaky-relu %0 | %2 {"alpha":0.1} then (add #0 @1) (clip #1 {"low":0.0,"high":"inf"}) : f16[batch, seq, 4] "act"
%5 = select %1 %2 %2 : f32[4]
%6 = cast %5 {"to":"f16"} : f16[4]
%7 = slice %0 {"starts":[0,"seq-1",0],"steps":[1,1,2],"sizes":["batch",1,2]} : f32[batch, 1, 2]@slices4
%8 = add %2 %2 : f32[4]
%9 = pad %8 {"mode":"constant","before":[1],"after":[0],"value":"-inf"} then (relu #0) : f32[5]
%10 = state {"name":"cache","dtype":"f32","shape":[512]} : f32[512]
%11 = update %10 %9 {"axis":0,"start":"seq-1"} : f32[512]
output "y" %4
output "z" %7
output "y2" %9
output "same" %9
store "cache" %11
"##;

    #[test]
    fn canonical_text_round_trips() {
        let graph = parse(CANONICAL).unwrap();
        assert_eq!(print(&graph), CANONICAL);
        assert_eq!(graph.bounds["seq"], (1, 512));
        let act = graph.ids()[4];
        assert_eq!(graph.node(act).arity, 1);
        assert_eq!(graph.node(act).epilogue.len(), 2);
        assert_eq!(graph.tensor(act).dtype, DType::F16);
        assert_eq!(graph.tensor(graph.ids()[7]).layout, Layout::SLICES4);
    }

    #[test]
    fn noncanonical_text_is_accepted() {
        let text = "
            # a comment
            %10=input {\"shape\": [2, 3], \"dtype\": \"f32\", \"name\": \"x\"}
            %2 = constant {\"dtype\":\"f32\",\"shape\":[100],\"random\":1}
            %3 = transpose %10 {\"perm\":[1,0]}   :f32[ 3,2 ]
            output \"y\" %3
        ";
        let graph = parse(text).unwrap();
        let printed = print(&graph);
        assert!(
            printed.contains("%1 = constant {\"dtype\":\"f32\",\"shape\":[100],\"hash\":\""),
            "{printed}"
        );
        assert!(printed.contains("%2 = transpose %0 {\"perm\":[1,0]} : f32[3, 2]\noutput \"y\" %2\n"));
        assert!(matches!(graph.op(graph.ids()[2]), Op::Transpose(_)));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line, fragment) in [
            ("%0 = nope", 1, "no operator or element function `nope`"),
            ("\n%0 = input {\"name\":\"x\"}", 2, "missing field"),
            ("%0 = relu %7", 1, "%7 is not defined above"),
            (
                "%0 = range {\"dtype\":\"i64\",\"start\":0,\"step\":1,\"length\":3} : i64[4]",
                1,
                "is i64[3], not",
            ),
            ("%0 = range {\"dtype\":\"i64\",\"start\":0,\"step\":0,\"length\":3}", 1, "must not be 0"),
            ("output \"y\" %0", 1, "%0 is not defined above"),
            ("symbol a 5..2", 1, "bounds"),
            ("%0 = range {\"dtype\":", 1, "JSON"),
            ("%0 = range {\"dtype\":\"i64\",\"start\":0,\"step\":1,\"length\":3} then (relu", 1, "`)`"),
            (
                "%0 = range {\"dtype\":\"i64\",\"start\":0,\"step\":1,\"length\":3} then (add #0 @9)",
                1,
                "missing operand",
            ),
            ("%0 = range {\"dtype\":\"i64\",\"start\":0,\"step\":1,\"length\":\"n\"}", 1, "elements"),
            ("%0", 1, "`=`"),
            ("hello", 1, "`%`"),
            ("%0 = input {\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[2]} : f32[2]@slices4", 1, "axes"),
            ("%0 = input {\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[2]} \"x\" y", 1, "`y`"),
        ] {
            match parse(text) {
                Err(Error::Text { line: at, reason }) => {
                    assert!(at == line && reason.contains(fragment), "{text}: line {at}: {reason}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn truncated_or_changed_text_never_panics() {
        for end in 0..CANONICAL.len() {
            let _ = parse(&CANONICAL[..end]);
            let mut bytes = CANONICAL.as_bytes().to_vec();
            for with in *b"0\"]}%-9" {
                bytes[end] = with;
                let _ = parse(&String::from_utf8_lossy(&bytes));
            }
        }
    }
}
