//! One shader for launches of a kernel whose shaders differ in numbers alone.
//!
//! Sizes that are known are literals, so layers of different sizes have shaders of their own. Where compiling these is
//! what takes long, those that are otherwise the same become one, which reads such numbers from the uniform block:
//!
//! ```text
//! fn in_w() -> u32 { return 56u; }   fn in_w() -> u32 { return 28u; }   both: fn in_w() -> u32 { return params[0].x; }
//! ```
//!
//! Numbers stay where WGSL wants constants, and where they pick an element of an array that lies in registers.

use std::collections::{BTreeMap, BTreeSet};

use super::launch::{Binding, Bound, Launch};
use super::resource::Resource;
use super::specialize::{Declaration, declarations, parts};
use super::unroll::constant;
use super::words::word;
use crate::ir::dim::Dim;

/// What a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Unsigned,
    Signed,
    Truth,
}

/// A part of a shader whose numbers may become words of its uniform block. Numbers are counted as they come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// What stays as it is.
    Text(String),
    /// An unsigned number where it stands.
    Number(usize),
    /// The declaration of a constant that is a number.
    Declared(String, Kind, usize),
    /// The name of that constant.
    Named(String, Kind, usize),
}

/// What launches have in common that can share a shader: kernel, bindings besides that of the uniform block, and text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    kernel: &'static str,
    bindings: Vec<(Resource, bool)>,
    parts: Vec<Part>,
}

/// What a launch has in common with those that it can share a shader with; `None` where it can with none.
pub fn key(launch: &Launch) -> Option<Key> {
    Some(apart(launch)?.0)
}

/// Makes the shaders of launches one where they differ in numbers alone. What is bound to a launch stays; the uniform
/// block is its last binding, where it gets one.
pub fn share(launches: &mut [&mut Launch]) {
    let mut alike: BTreeMap<Key, Vec<(usize, Vec<Dim>)>> = BTreeMap::new();
    for (index, launch) in launches.iter().enumerate() {
        if let Some((key, numbers)) = apart(launch) {
            alike.entry(key).or_default().push((index, numbers));
        }
    }
    for (key, members) in alike {
        let mut texts = members.iter().filter_map(|(index, _)| Some(&launches.get(*index)?.wgsl));
        let first = texts.next();
        if texts.all(|text| Some(text) == first) {
            continue;
        }
        let (columns, numbers) = columns(&members);
        let place = key.bindings.len();
        let (text, vectors) = (written(&key.parts, &numbers), columns.len().div_ceil(4));
        let text =
            format!("{text}@group(0) @binding({place}) var<uniform> params: array<vec4<u32>, {vectors}>;\n");
        for (member, (index, _)) in members.iter().enumerate() {
            let Some(launch) = launches.get_mut(*index) else { continue };
            launch.wgsl.clone_from(&text);
            launch.params = columns.iter().filter_map(|c| c.get(member)).map(|dim| (*dim).clone()).collect();
            launch.bindings.truncate(place);
            launch.bindings.push(Binding {
                bound: Bound::Params,
                resource: Resource::Buffer,
                writable: false,
            });
        }
    }
}

/// A number in a shader that launches share.
#[derive(Debug, Clone, Copy)]
enum Number {
    Same(i64),
    /// The word of the block.
    Word(usize),
}

/// What each word of the block holds for each launch, and what becomes of each number.
fn columns(members: &[(usize, Vec<Dim>)]) -> (Vec<Vec<&Dim>>, Vec<Number>) {
    let mut columns: Vec<Vec<&Dim>> = Vec::new();
    let count = members.first().map_or(0, |(_, numbers)| numbers.len());
    let numbers = (0..count).map(|number| {
        let column: Vec<&Dim> = members.iter().filter_map(|(_, numbers)| numbers.get(number)).collect();
        let same = column.first().filter(|first| column.iter().all(|other| other == *first));
        if let Some(value) = same.and_then(|dim| dim.as_known()) {
            return Number::Same(value);
        }
        Number::Word(columns.iter().position(|known| *known == column).unwrap_or_else(|| {
            columns.push(column);
            columns.len() - 1
        }))
    });
    let numbers = numbers.collect();
    (columns, numbers)
}

/// The text with its numbers, of which those that are constants keep their names.
fn written(parts: &[Part], numbers: &[Number]) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            Part::Text(text) => out += text,
            Part::Number(at) => match numbers.get(*at) {
                Some(Number::Same(value)) => out += &format!("{value}u"),
                Some(Number::Word(at)) => out += &word(*at),
                None => {}
            },
            Part::Declared(name, kind, at) => {
                if let Some(Number::Same(value)) = numbers.get(*at) {
                    out += &declared(name, *kind, *value);
                }
            }
            Part::Named(name, kind, at) => match (numbers.get(*at), kind) {
                (Some(Number::Word(at)), Kind::Unsigned) => out += &word(*at),
                (Some(Number::Word(at)), Kind::Signed) => out += &format!("bitcast<i32>({})", word(*at)),
                (Some(Number::Word(at)), Kind::Truth) => out += &format!("({} != 0u)", word(*at)),
                (Some(Number::Same(_)) | None, _) => out += name,
            },
        }
    }
    out
}

/// The declaration of a constant.
fn declared(name: &str, kind: Kind, value: i64) -> String {
    match kind {
        Kind::Unsigned => format!("const {name} = {value}u;\n"),
        Kind::Signed => format!("const {name} = {value}i;\n"),
        Kind::Truth => format!("const {name} = {};\n", value != 0),
    }
}

/// A launch as what it has in common with others, and its own numbers; `None` where its shader uses the uniform block
/// in another way than word by word.
fn apart(launch: &Launch) -> Option<(Key, Vec<Dim>)> {
    let last = launch.bindings.iter().position(|b| b.bound == Bound::Params);
    if last.is_some_and(|at| at + 1 != launch.bindings.len()) {
        return None;
    }
    let bindings = launch.bindings.iter().filter(|b| b.bound != Bound::Params);
    let bindings = bindings.map(|b| (b.resource, b.writable)).collect();
    let mut declarations = declarations(&launch.wgsl).ok()?;
    let constants = Constants::of(&declarations);
    let variables = declarations.iter().filter(|d| d.text.contains("var<"));
    let outer: BTreeSet<String> = variables.map(|d| d.name.clone()).collect();
    for declaration in declarations.iter_mut().filter(|d| is_function(d)) {
        declaration.text = with_known_indices(&declaration.text, &outer, &constants.texts);
    }
    // Constants that stand only where a word of the block may, too, are numbers; others are text.
    let fixed: Vec<Option<Vec<bool>>> =
        declarations.iter().map(|d| is_function(d).then(|| fixed(&d.text, &outer))).collect();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for (declaration, fixed) in declarations.iter().zip(&fixed) {
        if constants.value(declaration).is_none() {
            let parts = parts(&declaration.text).enumerate();
            let stays = |i: usize| fixed.as_ref().is_none_or(|fixed| fixed.get(i).is_none_or(|stays| *stays));
            used.extend(parts.filter(|(i, _)| stays(*i)).map(|(_, part)| part));
        }
    }
    let mut form = Form { numbers: Vec::new(), parts: Vec::new(), names: BTreeMap::new() };
    for (declaration, fixed) in declarations.iter().zip(&fixed) {
        let name = declaration.name.as_str();
        match (fixed, constants.value(declaration)) {
            (None, Some((kind, value))) if used.contains(name) => form.text(&declared(name, kind, value)),
            (None, Some((kind, value))) => {
                let at = form.number(Dim::known(value));
                form.names.insert(name, (kind, at));
                form.parts.push(Part::Declared(name.to_string(), kind, at));
            }
            (None, None) if name == "params" => {}
            (None, None) => form.text(&format!("{}\n", declaration.text)),
            (Some(fixed), _) => {
                form.function(&declaration.text, fixed, &launch.params)?;
                form.text("\n");
            }
        }
    }
    Some((Key { kernel: launch.kernel, bindings, parts: form.parts }, form.numbers))
}

/// Constants of a shader.
struct Constants {
    /// Those of unsigned numbers as they are written.
    texts: BTreeMap<String, String>,
}

impl Constants {
    fn of(declarations: &[Declaration]) -> Self {
        let unsigned = |text: &str| {
            let mut numbers = parts(text).filter(|part| part.starts_with(|c: char| c.is_ascii_digit()));
            numbers.all(|number| number.ends_with('u'))
        };
        let text = |d: &Declaration| Some((d.name.clone(), value_text(d)?.to_string()));
        Self { texts: declarations.iter().filter_map(text).filter(|(_, text)| unsigned(text)).collect() }
    }

    /// The value of a constant that is a number, or is computed of such.
    fn value(&self, declaration: &Declaration) -> Option<(Kind, i64)> {
        let text = value_text(declaration)?;
        match text {
            "true" => Some((Kind::Truth, 1)),
            "false" => Some((Kind::Truth, 0)),
            _ => match text.strip_suffix('i').map(str::parse) {
                Some(Ok(value)) => Some((Kind::Signed, value)),
                _ => {
                    self.texts.get(&declaration.name)?;
                    let value = constant(text, &self.texts, 0)?;
                    u32::try_from(value).is_ok().then_some((Kind::Unsigned, value))
                }
            },
        }
    }
}

fn value_text(declaration: &Declaration) -> Option<&str> {
    let (_, value) = declaration.text.strip_prefix("const ")?.strip_suffix(';')?.split_once('=')?;
    Some(value.trim())
}

fn is_function(declaration: &Declaration) -> bool {
    declaration.text.starts_with("fn ") || declaration.text.contains("@compute")
}

/// A shader on its way to its parts.
struct Form<'a> {
    numbers: Vec<Dim>,
    parts: Vec<Part>,
    /// Constants that are numbers.
    names: BTreeMap<&'a str, (Kind, usize)>,
}

impl Form<'_> {
    fn number(&mut self, value: Dim) -> usize {
        self.numbers.push(value);
        self.numbers.len() - 1
    }

    fn text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(Part::Text(before)) => before.push_str(text),
            _ => self.parts.push(Part::Text(text.to_string())),
        }
    }

    /// Adds a function, of whose parts some are `fixed`; `None` where it uses the block otherwise than word by word.
    fn function(&mut self, text: &str, fixed: &[bool], params: &[Dim]) -> Option<()> {
        let parts: Vec<&str> = parts(text).collect();
        let mut at = 0;
        while let Some(part) = parts.get(at) {
            let free = !fixed.get(at)?;
            let member = at > 0 && parts.get(at - 1) == Some(&".");
            if *part == "params" {
                let ["[", vector, "]", ".", lane] = parts.get(at + 1..at + 6)? else { return None };
                let lane = ["x", "y", "z", "w"].iter().position(|name| name == lane)?;
                let number = self.number(params.get(vector.parse::<usize>().ok()? * 4 + lane)?.clone());
                self.parts.push(Part::Number(number));
                at += 5;
            } else if let Some(value) = literal(part).filter(|_| free) {
                let number = self.number(Dim::known(value.into()));
                self.parts.push(Part::Number(number));
            } else if let Some((kind, number)) = self.names.get(part).filter(|_| !member).copied() {
                self.parts.push(Part::Named((*part).to_string(), kind, number));
            } else {
                self.text(part);
            }
            at += 1;
        }
        Some(())
    }
}

fn literal(text: &str) -> Option<u32> {
    text.strip_suffix('u').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

/// A function's text with the indices of what is none of the `outer` variables as numbers, where they are known.
fn with_known_indices(text: &str, outer: &BTreeSet<String>, constants: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let (before, after) = rest.split_at(open + 1);
        out.push_str(before);
        rest = after;
        let name = parts(before.trim_end_matches('[')).last().unwrap_or_default();
        let inside = after.split_once(']').map(|(inside, _)| inside).filter(|_| !outer.contains(name));
        if let Some((inside, value)) = inside.and_then(|i| Some((i, constant(i, constants, 0)?))) {
            out.push_str(&format!("{value}u"));
            rest = &after[inside.len()..];
        }
    }
    out + rest
}

/// Which parts of a function's text must stay: its head, sizes of types, indices of what is none of the `outer`
/// variables, which lies in registers, and what WGSL wants to be constant.
fn fixed(text: &str, outer: &BTreeSet<String>) -> Vec<bool> {
    // What closes each bracket, and whether what is inside must stay.
    let mut open: Vec<(&str, bool)> = Vec::new();
    let (mut body, mut until, mut before) = (false, None, "");
    let mut out = Vec::new();
    for part in parts(text) {
        let stays = !body || until.is_some() || open.last().is_some_and(|(_, stays)| *stays);
        out.push(stays);
        if part.trim().is_empty() {
            continue;
        }
        let closed = open.last().is_some_and(|(closing, _)| *closing == part);
        let in_type = open.last().is_some_and(|(closing, _)| *closing == ">");
        match part {
            _ if closed => {
                open.pop();
            }
            "{" if open.is_empty() => {
                body = true;
                open.push(("}", false));
            }
            "{" => open.push(("}", stays)),
            "(" => open.push((")", stays)),
            "[" => open.push(("]", stays || !outer.contains(before))),
            "<" if in_type || before == "array" => open.push((">", true)),
            "case" => until = Some(":"),
            "const" => until = Some(";"),
            _ if until == Some(part) => until = None,
            _ => {}
        }
        before = part;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::share;
    use crate::compile::{Options, lower};
    use crate::ir::dim::Dim;
    use crate::ir::text;
    use crate::shader::{Bound, Launch};
    use crate::target::TargetProfile;

    const KERNEL: &str = "const TILE = 8u;
const DEPTH = 32u;
@group(0) @binding(0) var<storage, read_write> o: array<f32>;
fn width() -> u32 { return 56u; }
@compute @workgroup_size(TILE)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var acc: array<f32, 2>;
    for (var i = 0u; i < DEPTH; i++) { acc[0u] += f32(i * width() + 3u); }
    o[id.x * 56u + 1u] = acc[0u];
}
";

    /// A launch of a text that writes one buffer.
    fn launch(wgsl: String, params: &[&str]) -> Launch {
        let graph = text::parse(
            "%0 = input {\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[4]}\n%1 = relu %0\noutput \"y\" %1",
        );
        let target = TargetProfile::load("webgpu-baseline").unwrap();
        let lowered = lower(&graph.unwrap(), &target, &Options::default()).unwrap();
        let mut launch = lowered.plan.dispatches.into_iter().next().unwrap().launch;
        launch.wgsl = wgsl;
        launch.bindings.retain(|binding| binding.writable);
        launch.params = params.iter().map(|dim| Dim::parse(dim).unwrap()).collect();
        if !params.is_empty() {
            launch.bindings.extend(launch.bindings.first().cloned());
            launch.bindings[1].bound = Bound::Params;
            launch.bindings[1].writable = false;
        }
        launch
    }

    fn shared(mut a: Launch, mut b: Launch) -> [Launch; 2] {
        share(&mut [&mut a, &mut b]);
        [a, b]
    }

    fn params(launch: &Launch) -> Vec<String> {
        launch.params.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn numbers_that_differ_are_read_and_others_stay() {
        let other = KERNEL.replace("56u", "28u").replace("DEPTH = 32u", "DEPTH = 96u");
        let [a, b] = shared(launch(KERNEL.into(), &[]), launch(other, &[]));
        assert_eq!(a.wgsl, b.wgsl);
        assert_eq!([params(&a), params(&b)], [["32", "56"], ["96", "28"]]);
        let text = a.wgsl;
        for part in [
            "const TILE = 8u;",
            "@workgroup_size(TILE)",
            "i < params[0].x; i++",
            "return params[0].y;",
            "acc[0u] += f32(i * width() + 3u);",
            "o[id.x * params[0].y + 1u]",
            "@group(0) @binding(1) var<uniform> params: array<vec4<u32>, 1>;",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("DEPTH"), "{text}");
        assert!(crate::emit::wgsl::emit(&text).is_ok(), "{text}");
        assert_eq!(a.bindings.last().map(|b| b.bound), Some(Bound::Params));
    }

    #[test]
    fn words_that_are_there_are_words_of_the_block() {
        let symbolic = KERNEL.replace("56u", "params[0].x");
        let block = "@group(0) @binding(1) var<uniform> params: array<vec4<u32>, 1>;\n";
        let [a, b] = shared(launch(symbolic + block, &["2*n"]), launch(KERNEL.into(), &[]));
        assert_eq!(a.wgsl, b.wgsl);
        assert_eq!([params(&a), params(&b)], [["2*n"], ["56"]]);
        assert_eq!(a.wgsl.matches("var<uniform>").count(), 1);
    }

    #[test]
    fn what_must_be_constant_keeps_shaders_apart() {
        for (from, to) in [
            ("TILE = 8u", "TILE = 4u"),
            ("array<f32, 2>", "array<f32, 3>"),
            ("= acc[0u]", "= acc[1u]"),
            ("f32(i *", "f32(2u + i *"),
        ] {
            let [a, b] = shared(launch(KERNEL.into(), &[]), launch(KERNEL.replace(from, to), &[]));
            assert_eq!((a.wgsl.as_str(), a.params.len()), (KERNEL, 0));
            assert_eq!(b.wgsl, KERNEL.replace(from, to));
        }
        let [a, _] = shared(launch(KERNEL.into(), &[]), launch(KERNEL.into(), &[]));
        assert_eq!(a.wgsl, KERNEL);
    }
}
