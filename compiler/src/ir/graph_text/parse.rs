//! Parser of the text form of a graph.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::ir::dim::Dim;
use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep, UnaryFn};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Elementwise, Op};
use crate::ir::tensor::{DType, Layout, TensorDesc};

/// Parses the text form of a graph.
///
/// # Errors
/// If a line is malformed, an operator does not accept its operands, or a stated type is not the inferred one.
pub fn parse(text: &str) -> Result<Graph> {
    let mut reader = Reader::default();
    for (i, line) in text.lines().enumerate() {
        reader.line(line.trim()).map_err(|reason| Error::Text { line: i + 1, reason })?;
    }
    // Storage types and layouts are set last, because shape inference uses the types before them.
    for (id, tensor) in reader.stored {
        reader.graph.set_storage_type(id, tensor.dtype);
        reader.graph.set_layout(id, tensor.layout);
    }
    for (name, node, declared) in reader.outputs {
        let dtype = declared.unwrap_or(reader.graph.tensor(node).dtype);
        reader.graph.add_output_as(&name, node, dtype);
    }
    Ok(reader.graph)
}

#[derive(Default)]
struct Reader {
    graph: Graph,
    nodes: BTreeMap<u64, NodeId>,
    stored: Vec<(NodeId, TensorDesc)>,
    outputs: Vec<(String, NodeId, Option<DType>)>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let mut cursor = Cursor { rest: line };
        if let Some(rest) = line.strip_prefix("symbol ") {
            return self.symbol(rest);
        }
        if cursor.eat("output ") {
            let name = cursor.string()?;
            let node = self.operand(&mut cursor)?;
            let declared = if cursor.eat(":") { Some(dtype(&mut cursor)?) } else { None };
            self.outputs.push((name, node, declared));
            return cursor.end();
        }
        if cursor.eat("store ") {
            let name = cursor.string()?;
            let node = self.operand(&mut cursor)?;
            self.graph.add_store(&name, node);
            return cursor.end();
        }
        self.node(&mut cursor)
    }

    fn symbol(&mut self, text: &str) -> Result<(), String> {
        let (name, range) = text.trim().rsplit_once(' ').ok_or("a symbol needs a name and bounds")?;
        let (low, high) = range.split_once("..").ok_or("bounds are written `1..512`")?;
        let number = |t: &str| t.parse::<i64>().map_err(|_| format!("`{t}` is not a number"));
        let (low, high) = (number(low)?, number(high)?);
        if low < 0 || low > high {
            return Err(format!("{low}..{high} are not valid bounds of a size"));
        }
        let name = name.trim();
        if Dim::parse(name).as_ref().and_then(Dim::as_symbol) != Some(name) {
            return Err(format!("`{name}` is not a valid name of a symbol"));
        }
        if self.graph.bounds.insert(name.to_string(), (low, high)).is_some() {
            return Err(format!("symbol {name} is declared twice"));
        }
        Ok(())
    }

    fn node(&mut self, cursor: &mut Cursor<'_>) -> Result<(), String> {
        cursor.expect("%")?;
        let number = cursor.number()?;
        cursor.expect("=")?;
        let op_name = cursor.word();
        let mut operands = Vec::new();
        let mut arity = None;
        loop {
            if cursor.eat("|") && arity.is_none() {
                arity = Some(operands.len());
            }
            if !cursor.peek("%") {
                break;
            }
            operands.push(self.operand(cursor)?);
        }
        let op = operator(op_name, cursor.attributes()?)?;
        let epilogue = if cursor.eat("then") { epilogue(cursor)? } else { Vec::new() };
        let stated = if cursor.eat(":") { Some(tensor(cursor)?) } else { None };
        let name = if cursor.peek("\"") { cursor.string()? } else { String::new() };
        cursor.end()?;
        let arity = arity.unwrap_or(operands.len());
        let replacement = Replacement { op, operands, arity, epilogue };
        let id = self.graph.add_fused(replacement, &name).map_err(|e| match e {
            Error::Node { operator, reason, .. } => format!("{operator}: {reason}"),
            other => other.to_string(),
        })?;
        if let Some(stated) = stated {
            self.check_type(id, stated)?;
        }
        match self.nodes.insert(number, id) {
            Some(_) => Err(format!("%{number} is defined twice")),
            None => Ok(()),
        }
    }

    fn check_type(&mut self, id: NodeId, stated: TensorDesc) -> Result<(), String> {
        let inferred = self.graph.tensor(id);
        let floats = stated.dtype.is_float() && inferred.dtype.is_float();
        if stated.shape != inferred.shape || (stated.dtype != inferred.dtype && !floats) {
            return Err(format!("the inferred type is {inferred}, not {stated}"));
        }
        if !stated.layout.holds(&stated.shape) {
            return Err(format!("{stated}: the layout needs 2 to 5 axes"));
        }
        if stated != *inferred {
            self.stored.push((id, stated));
        }
        Ok(())
    }

    fn operand(&self, cursor: &mut Cursor<'_>) -> Result<NodeId, String> {
        cursor.expect("%")?;
        let number = cursor.number()?;
        self.nodes.get(&number).copied().ok_or_else(|| format!("%{number} is not defined above"))
    }
}

fn operator(name: &str, attributes: Option<Value>) -> Result<Op, String> {
    if Op::NAMES.contains(&name) {
        let attributes = attributes.unwrap_or_else(|| Value::Object(Map::new()));
        let op = Op::from_text(name, attributes).ok_or_else(|| format!("no operator `{name}`"))?;
        return op.map_err(|e| format!("{name}: {e}"));
    }
    Ok(Op::Elementwise(Elementwise { element: element(name, attributes)? }))
}

fn element(name: &str, attributes: Option<Value>) -> Result<Element, String> {
    let form = match (name, attributes) {
        ("select", None) => return Ok(Element::Select),
        ("cast", Some(Value::Object(map))) => {
            let to = map.get("to").and_then(Value::as_str).and_then(DType::parse);
            return to
                .map(Element::Cast)
                .ok_or_else(|| "cast needs an element type as attribute `to`".to_string());
        }
        (_, None) => {
            if let Ok(f) = serde_json::from_value::<BinaryFn>(Value::from(name)) {
                return Ok(Element::Binary(f));
            }
            Value::from(name)
        }
        (_, Some(attributes)) => Value::Object(Map::from_iter([(name.to_string(), attributes)])),
    };
    serde_json::from_value::<UnaryFn>(form).map(Element::Unary).map_err(|e| {
        let e = e.to_string();
        if e.starts_with("unknown variant") {
            format!("no operator or element function `{name}`")
        } else {
            format!("{name}: {e}")
        }
    })
}

fn epilogue(cursor: &mut Cursor<'_>) -> Result<Vec<EpilogueStep>, String> {
    let mut steps = Vec::new();
    while cursor.eat("(") {
        let name = cursor.word();
        let mut args = Vec::new();
        loop {
            let kind = if cursor.eat("#") {
                Arg::Step
            } else if cursor.eat("@") {
                Arg::Input
            } else {
                break;
            };
            let number = cursor.number()?;
            args.push(kind(u32::try_from(number).map_err(|_| format!("{number} is too large"))?));
        }
        let element = element(name, cursor.attributes()?)?;
        cursor.expect(")")?;
        steps.push(EpilogueStep { element, args });
    }
    Ok(steps)
}

fn dtype(cursor: &mut Cursor<'_>) -> Result<DType, String> {
    let name = cursor.word();
    DType::parse(name).ok_or_else(|| format!("`{name}` is not an element type"))
}

fn tensor(cursor: &mut Cursor<'_>) -> Result<TensorDesc, String> {
    let dtype = dtype(cursor)?;
    cursor.expect("[")?;
    let (dims, rest) = cursor.rest.split_once(']').ok_or("a `]` is missing")?;
    cursor.rest = rest;
    let dims = dims.trim();
    let dim = |t: &str| Dim::parse(t.trim()).ok_or_else(|| format!("`{}` is not a size", t.trim()));
    let shape: Result<Vec<Dim>, String> =
        if dims.is_empty() { Ok(Vec::new()) } else { dims.split(',').map(dim).collect() };
    let mut tensor = TensorDesc::new(dtype, shape?);
    if cursor.rest.starts_with('@') {
        cursor.expect("@")?;
        let name = cursor.word();
        tensor.layout = Layout::parse(name).ok_or_else(|| format!("`{name}` is not a layout"))?;
    }
    Ok(tensor)
}

/// The part of a line that is not parsed yet. Every method skips leading spaces.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn peek(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.starts_with(token)
    }

    fn eat(&mut self, token: &str) -> bool {
        if !self.peek(token) {
            return false;
        }
        self.rest = self.rest.strip_prefix(token).unwrap_or_default();
        true
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) {
            return Ok(());
        }
        let found = self.rest.split_whitespace().next().unwrap_or("the end of the line");
        Err(format!("expected `{token}`, found `{found}`"))
    }

    /// Reads a word of letters, digits and hyphens; the word may be empty.
    fn word(&mut self) -> &'a str {
        self.split(|c| c.is_ascii_alphanumeric() || c == '-')
    }

    fn number(&mut self) -> Result<u64, String> {
        let digits = self.split(|c| c.is_ascii_digit());
        digits.parse().map_err(|_| format!("`{digits}` is not a number"))
    }

    fn split(&mut self, inside: impl Fn(char) -> bool) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c| !inside(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn attributes(&mut self) -> Result<Option<Value>, String> {
        if self.peek("{") { self.json().map(Some) } else { Ok(None) }
    }

    fn string(&mut self) -> Result<String, String> {
        match self.json()? {
            Value::String(text) => Ok(text),
            other => Err(format!("expected a name in quotes, found {other}")),
        }
    }

    fn json(&mut self) -> Result<Value, String> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        let value = values.next().ok_or("expected JSON")?.map_err(|e| format!("JSON: {e}"))?;
        self.rest = self.rest.get(values.byte_offset()..).unwrap_or_default();
        Ok(value)
    }

    fn end(&mut self) -> Result<(), String> {
        match self.rest.trim() {
            "" => Ok(()),
            rest => Err(format!("unexpected text `{rest}`")),
        }
    }
}
