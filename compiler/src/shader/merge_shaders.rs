//! Merges shaders of one kernel that differ only in integer literals.
//!
//! Known sizes are literals, so layers of different sizes get different shaders. On devices where compiling shaders is
//! slow, shaders that are equal except for such literals are merged: the literals that differ are read from the uniform
//! block.
//!
//! ```text
//! fn in_w() -> u32 { return 56u; }   and   fn in_w() -> u32 { return 28u; }   become
//! fn in_w() -> u32 { return params[0].x; }
//! ```
//!
//! A literal stays in the shader where WGSL requires a constant, and where it is an index of an array in registers.

use std::collections::{BTreeMap, BTreeSet};

use super::launch::{Binding, Bound, Launch};
use super::resource::Resource;
use super::size_params::param_word;
use super::unroll::constant_value;
use super::wgsl_syntax::{Declaration, declarations, lexemes};
use crate::ir::dim::Dim;

/// WGSL type of an integer or bool literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LiteralType {
    Unsigned,
    Signed,
    Bool,
}

/// A segment of a shader's WGSL. Literals have indices, counted from 0 in order of appearance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    /// WGSL that is equal in all merged shaders.
    Text(String),
    /// An unsigned literal in a function, by its index among the shader's literals.
    Literal(usize),
    /// Declaration of a constant with a literal value: name, type, and index of the literal.
    ConstantDeclaration(String, LiteralType, usize),
    /// Use of a constant with a literal value: name, type, and index of the literal.
    ConstantUse(String, LiteralType, usize),
}

/// Key that is equal for launches that can be merged: the kernel, the bindings without the uniform block, and the WGSL
/// without literals.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MergeKey {
    kernel: &'static str,
    bindings: Vec<(Resource, bool)>,
    segments: Vec<Segment>,
}

/// Returns the merge key of a launch, or `None` if the launch cannot be merged with others.
pub fn merge_key(launch: &Launch) -> Option<MergeKey> {
    Some(split_literals(launch)?.0)
}

/// Replaces the shaders of launches that differ only in literals by one merged shader. The uniform block with the
/// literals that differ becomes the last binding; other bindings are unchanged.
pub fn merge_shaders(launches: &mut [&mut Launch]) {
    let mut groups: BTreeMap<MergeKey, Vec<(usize, Vec<Dim>)>> = BTreeMap::new();
    for (index, launch) in launches.iter().enumerate() {
        if let Some((key, literals)) = split_literals(launch) {
            groups.entry(key).or_default().push((index, literals));
        }
    }
    for (key, members) in groups {
        let mut shaders = members.iter().filter_map(|(index, _)| Some(&launches.get(*index)?.wgsl));
        let first = shaders.next();
        if shaders.all(|wgsl| Some(wgsl) == first) {
            continue;
        }
        let (columns, literals) = param_columns(&members);
        let params_binding = key.bindings.len();
        let (wgsl, vectors) = (merged_wgsl(&key.segments, &literals), columns.len().div_ceil(4));
        let wgsl = format!(
            "{wgsl}@group(0) @binding({params_binding}) var<uniform> params: array<vec4<u32>, {vectors}>;\n"
        );
        for (member, (index, _)) in members.iter().enumerate() {
            let Some(launch) = launches.get_mut(*index) else { continue };
            launch.wgsl.clone_from(&wgsl);
            launch.params = columns.iter().filter_map(|c| c.get(member)).map(|dim| (*dim).clone()).collect();
            launch.bindings.truncate(params_binding);
            launch.bindings.push(Binding {
                bound: Bound::Params,
                resource: Resource::Buffer,
                writable: false,
            });
        }
    }
}

/// A literal of a merged shader.
#[derive(Debug, Clone, Copy)]
enum MergedLiteral {
    /// The literal is equal in all launches and stays in the shader.
    Same(i64),
    /// The literal differs between launches and is read from this word of the uniform block.
    Word(usize),
}

/// Returns, for each word of the merged shader's uniform block, the value that each launch puts there. Also returns the
/// replacement of each literal.
fn param_columns(members: &[(usize, Vec<Dim>)]) -> (Vec<Vec<&Dim>>, Vec<MergedLiteral>) {
    let mut columns: Vec<Vec<&Dim>> = Vec::new();
    let count = members.first().map_or(0, |(_, literals)| literals.len());
    let literals = (0..count).map(|literal| {
        let column: Vec<&Dim> = members.iter().filter_map(|(_, literals)| literals.get(literal)).collect();
        let same = column.first().filter(|first| column.iter().all(|other| other == *first));
        if let Some(value) = same.and_then(|dim| dim.as_known()) {
            return MergedLiteral::Same(value);
        }
        MergedLiteral::Word(columns.iter().position(|known| *known == column).unwrap_or_else(|| {
            columns.push(column);
            columns.len() - 1
        }))
    });
    let literals = literals.collect();
    (columns, literals)
}

/// Returns the WGSL of a merged shader, which serves several launches. A literal that is equal in all launches stays a
/// literal or a named constant; a literal that differs becomes a value of the uniform buffer.
fn merged_wgsl(segments: &[Segment], literals: &[MergedLiteral]) -> String {
    let mut out = String::new();
    for segment in segments {
        match segment {
            Segment::Text(text) => out += text,
            Segment::Literal(at) => match literals.get(*at) {
                Some(MergedLiteral::Same(value)) => out += &format!("{value}u"),
                Some(MergedLiteral::Word(at)) => out += &param_word(*at),
                None => {}
            },
            Segment::ConstantDeclaration(name, literal_type, at) => {
                if let Some(MergedLiteral::Same(value)) = literals.get(*at) {
                    out += &constant_declaration(name, *literal_type, *value);
                }
            }
            Segment::ConstantUse(name, literal_type, at) => match (literals.get(*at), literal_type) {
                (Some(MergedLiteral::Word(at)), LiteralType::Unsigned) => out += &param_word(*at),
                (Some(MergedLiteral::Word(at)), LiteralType::Signed) => {
                    out += &format!("bitcast<i32>({})", param_word(*at));
                }
                (Some(MergedLiteral::Word(at)), LiteralType::Bool) => {
                    out += &format!("({} != 0u)", param_word(*at));
                }
                (Some(MergedLiteral::Same(_)) | None, _) => out += name,
            },
        }
    }
    out
}

/// Returns the WGSL declaration of a constant.
fn constant_declaration(name: &str, literal_type: LiteralType, value: i64) -> String {
    match literal_type {
        LiteralType::Unsigned => format!("const {name} = {value}u;\n"),
        LiteralType::Signed => format!("const {name} = {value}i;\n"),
        LiteralType::Bool => format!("const {name} = {};\n", value != 0),
    }
}

/// Splits a launch into its merge key and the values of its literals. Returns `None` if the shader uses the uniform
/// block in another way than as single words.
fn split_literals(launch: &Launch) -> Option<(MergeKey, Vec<Dim>)> {
    let last = launch.bindings.iter().position(|b| b.bound == Bound::Params);
    if last.is_some_and(|at| at + 1 != launch.bindings.len()) {
        return None;
    }
    let bindings = launch.bindings.iter().filter(|b| b.bound != Bound::Params);
    let bindings = bindings.map(|b| (b.resource, b.writable)).collect();
    let mut declarations = declarations(&launch.wgsl).ok()?;
    let constants = Constants::from_declarations(&declarations);
    let variables = declarations.iter().filter(|d| d.text.contains("var<"));
    let module_variables: BTreeSet<String> = variables.map(|d| d.name.clone()).collect();
    for declaration in declarations.iter_mut().filter(|d| is_function(d)) {
        declaration.text = fold_register_indices(&declaration.text, &module_variables, &constants.unsigned);
    }
    // Constants whose uses may all become words of the block are literals. Other constants stay text.
    let stays: Vec<Option<Vec<bool>>> = declarations
        .iter()
        .map(|d| is_function(d).then(|| tokens_that_stay(&d.text, &module_variables)))
        .collect();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for (declaration, stays) in declarations.iter().zip(&stays) {
        if constants.value(declaration).is_none() {
            let tokens = lexemes(&declaration.text).enumerate();
            let is_fixed =
                |i: usize| stays.as_ref().is_none_or(|stays| stays.get(i).is_none_or(|stays| *stays));
            used.extend(tokens.filter(|(i, _)| is_fixed(*i)).map(|(_, token)| token));
        }
    }
    let mut builder = SegmentBuilder { literals: Vec::new(), segments: Vec::new(), names: BTreeMap::new() };
    for (declaration, stays) in declarations.iter().zip(&stays) {
        let name = declaration.name.as_str();
        match (stays, constants.value(declaration)) {
            (None, Some((literal_type, value))) if used.contains(name) => {
                builder.text(&constant_declaration(name, literal_type, value));
            }
            (None, Some((literal_type, value))) => {
                let at = builder.literal(Dim::known(value));
                builder.names.insert(name, (literal_type, at));
                builder.segments.push(Segment::ConstantDeclaration(name.to_string(), literal_type, at));
            }
            (None, None) if name == "params" => {}
            (None, None) => builder.text(&format!("{}\n", declaration.text)),
            (Some(stays), _) => {
                builder.function(&declaration.text, stays, &launch.params)?;
                builder.text("\n");
            }
        }
    }
    Some((MergeKey { kernel: launch.kernel, bindings, segments: builder.segments }, builder.literals))
}

/// Constants that a shader declares.
struct Constants {
    /// WGSL expressions of the unsigned constants, by name.
    unsigned: BTreeMap<String, String>,
}

impl Constants {
    fn from_declarations(declarations: &[Declaration]) -> Self {
        let is_unsigned = |text: &str| {
            let mut literals = lexemes(text).filter(|token| token.starts_with(|c: char| c.is_ascii_digit()));
            literals.all(|literal| literal.ends_with('u'))
        };
        let text = |d: &Declaration| Some((d.name.clone(), constant_expression(d)?.to_string()));
        Self {
            unsigned: declarations.iter().filter_map(text).filter(|(_, text)| is_unsigned(text)).collect(),
        }
    }

    /// Returns type and value of a constant, or `None` if it is not an integer or bool expression of literals and
    /// constants.
    fn value(&self, declaration: &Declaration) -> Option<(LiteralType, i64)> {
        let text = constant_expression(declaration)?;
        match text {
            "true" => Some((LiteralType::Bool, 1)),
            "false" => Some((LiteralType::Bool, 0)),
            _ => match text.strip_suffix('i').map(str::parse) {
                Some(Ok(value)) => Some((LiteralType::Signed, value)),
                _ => {
                    self.unsigned.get(&declaration.name)?;
                    let value = constant_value(text, &self.unsigned, 0)?;
                    u32::try_from(value).is_ok().then_some((LiteralType::Unsigned, value))
                }
            },
        }
    }
}

fn constant_expression(declaration: &Declaration) -> Option<&str> {
    let (_, value) = declaration.text.strip_prefix("const ")?.strip_suffix(';')?.split_once('=')?;
    Some(value.trim())
}

fn is_function(declaration: &Declaration) -> bool {
    declaration.text.starts_with("fn ") || declaration.text.contains("@compute")
}

/// Splits a shader into segments: pieces of its WGSL, which end where a literal can differ between shaders.
struct SegmentBuilder<'a> {
    literals: Vec<Dim>,
    segments: Vec<Segment>,
    /// For each constant that has a literal value, by name: its type and the index of the literal.
    names: BTreeMap<&'a str, (LiteralType, usize)>,
}

impl SegmentBuilder<'_> {
    fn literal(&mut self, value: Dim) -> usize {
        self.literals.push(value);
        self.literals.len() - 1
    }

    fn text(&mut self, text: &str) {
        match self.segments.last_mut() {
            Some(Segment::Text(before)) => before.push_str(text),
            _ => self.segments.push(Segment::Text(text.to_string())),
        }
    }

    /// Adds the segments of a function. A literal stays part of the text if `stays` is true for its token. Returns `None` if the
    /// function uses the uniform block in another way than as single words.
    fn function(&mut self, text: &str, stays: &[bool], params: &[Dim]) -> Option<()> {
        let tokens: Vec<&str> = lexemes(text).collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let free = !stays.get(at)?;
            let member = at > 0 && tokens.get(at - 1) == Some(&".");
            if *token == "params" {
                let ["[", vector, "]", ".", lane] = tokens.get(at + 1..at + 6)? else { return None };
                let lane = ["x", "y", "z", "w"].iter().position(|name| name == lane)?;
                let literal = self.literal(params.get(vector.parse::<usize>().ok()? * 4 + lane)?.clone());
                self.segments.push(Segment::Literal(literal));
                at += 5;
            } else if let Some(value) = unsigned_literal(token).filter(|_| free) {
                let literal = self.literal(Dim::known(value.into()));
                self.segments.push(Segment::Literal(literal));
            } else if let Some((literal_type, literal)) = self.names.get(token).filter(|_| !member).copied() {
                self.segments.push(Segment::ConstantUse((*token).to_string(), literal_type, literal));
            } else {
                self.text(token);
            }
            at += 1;
        }
        Some(())
    }
}

fn unsigned_literal(text: &str) -> Option<u32> {
    text.strip_suffix('u').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

/// Returns the WGSL of a function in which array indices of known value are replaced by literals. Indices of the arrays in
/// `module_variables`, which are not in registers, stay.
fn fold_register_indices(
    text: &str,
    module_variables: &BTreeSet<String>,
    constants: &BTreeMap<String, String>,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let (before, after) = rest.split_at(open + 1);
        out.push_str(before);
        rest = after;
        let name = lexemes(before.trim_end_matches('[')).last().unwrap_or_default();
        let inside =
            after.split_once(']').map(|(inside, _)| inside).filter(|_| !module_variables.contains(name));
        if let Some((inside, value)) = inside.and_then(|i| Some((i, constant_value(i, constants, 0)?))) {
            out.push_str(&format!("{value}u"));
            rest = &after[inside.len()..];
        }
    }
    out + rest
}

/// Returns, for each token of a function, true if the token must stay as it is. These are tokens of the signature, of sizes in
/// types, and of expressions that WGSL requires to be constant. Indices of arrays stay too, because arrays in registers need
/// literal indices. Only the arrays in `module_variables` are not in registers.
fn tokens_that_stay(text: &str, module_variables: &BTreeSet<String>) -> Vec<bool> {
    // Closing token of each open bracket, and whether the tokens inside must stay.
    let mut open: Vec<(&str, bool)> = Vec::new();
    let (mut body, mut until, mut before) = (false, None, "");
    let mut out = Vec::new();
    for token in lexemes(text) {
        let stays = !body || until.is_some() || open.last().is_some_and(|(_, stays)| *stays);
        out.push(stays);
        if token.trim().is_empty() {
            continue;
        }
        let closed = open.last().is_some_and(|(closing, _)| *closing == token);
        let in_type = open.last().is_some_and(|(closing, _)| *closing == ">");
        match token {
            _ if closed => {
                open.pop();
            }
            "{" if open.is_empty() => {
                body = true;
                open.push(("}", false));
            }
            "{" => open.push(("}", stays)),
            "(" => open.push((")", stays)),
            "[" => open.push(("]", stays || !module_variables.contains(before))),
            "<" if in_type || before == "array" => open.push((">", true)),
            "case" => until = Some(":"),
            "const" => until = Some(";"),
            _ if until == Some(token) => until = None,
            _ => {}
        }
        before = token;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::merge_shaders;
    use crate::compile::{Options, lower};
    use crate::ir::dim::Dim;
    use crate::ir::graph_text;
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

    /// Returns a launch with the given WGSL, which writes one buffer.
    fn launch(wgsl: String, params: &[&str]) -> Launch {
        let graph = graph_text::parse(
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

    fn merged(mut a: Launch, mut b: Launch) -> [Launch; 2] {
        merge_shaders(&mut [&mut a, &mut b]);
        [a, b]
    }

    fn params(launch: &Launch) -> Vec<String> {
        launch.params.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn differing_literals_become_params_and_others_stay() {
        let other = KERNEL.replace("56u", "28u").replace("DEPTH = 32u", "DEPTH = 96u");
        let [a, b] = merged(launch(KERNEL.into(), &[]), launch(other, &[]));
        assert_eq!(a.wgsl, b.wgsl);
        assert_eq!([params(&a), params(&b)], [["32", "56"], ["96", "28"]]);
        let wgsl = a.wgsl;
        for part in [
            "const TILE = 8u;",
            "@workgroup_size(TILE)",
            "i < params[0].x; i++",
            "return params[0].y;",
            "acc[0u] += f32(i * width() + 3u);",
            "o[id.x * params[0].y + 1u]",
            "@group(0) @binding(1) var<uniform> params: array<vec4<u32>, 1>;",
        ] {
            assert!(wgsl.contains(part), "the merged shader lacks `{part}`: {wgsl}");
        }
        assert!(!wgsl.contains("DEPTH"), "{wgsl}");
        assert!(crate::emit::wgsl::emit(&wgsl).is_ok(), "{wgsl}");
        assert_eq!(a.bindings.last().map(|b| b.bound), Some(Bound::Params));
    }

    #[test]
    fn params_of_one_launch_merge_with_literals_of_another() {
        let symbolic = KERNEL.replace("56u", "params[0].x");
        let block = "@group(0) @binding(1) var<uniform> params: array<vec4<u32>, 1>;\n";
        let [a, b] = merged(launch(symbolic + block, &["2*n"]), launch(KERNEL.into(), &[]));
        assert_eq!(a.wgsl, b.wgsl);
        assert_eq!([params(&a), params(&b)], [["2*n"], ["56"]]);
        assert_eq!(a.wgsl.matches("var<uniform>").count(), 1);
    }

    #[test]
    fn literals_that_must_be_constant_prevent_merging() {
        for (from, to) in [
            ("TILE = 8u", "TILE = 4u"),
            ("array<f32, 2>", "array<f32, 3>"),
            ("= acc[0u]", "= acc[1u]"),
            ("f32(i *", "f32(2u + i *"),
        ] {
            let [a, b] = merged(launch(KERNEL.into(), &[]), launch(KERNEL.replace(from, to), &[]));
            assert_eq!((a.wgsl.as_str(), a.params.len()), (KERNEL, 0));
            assert_eq!(b.wgsl, KERNEL.replace(from, to));
        }
        let [a, _] = merged(launch(KERNEL.into(), &[]), launch(KERNEL.into(), &[]));
        assert_eq!(a.wgsl, KERNEL);
    }
}
