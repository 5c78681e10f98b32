//! Writing the hooks of one kernel launch: sizes, operand reads, result writes and the fused chain.
//!
//! A [`Shader`] collects replacements for a kernel's declarations together with the bindings they need; `finish`
//! specialises the text and returns a [`Launch`]. Symbolic sizes become words of a uniform block, known ones become
//! literals, so a kernel is written once for both.

use std::collections::{BTreeMap, BTreeSet};

use super::access::{Access, Coordinates, access, reading};
use super::chain;
use super::class::{Class, literal};
use super::launch::{Binding, Bound, Grid, Launch, Need};
use super::outside::Outside;
use super::pack::Packed;
use super::problem::{Operand, Placement, Problem};
use super::resource::{Held, Resource};
use super::specialize::specialize;
use super::words::Words;
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::element::{Arg, Step};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;

/// The elementary functions of the chain hooks.
const ELEMENTARY: &str = include_str!("lib/elementary.wgsl");

/// Collects the hooks of one launch.
#[derive(Debug)]
pub struct Shader<'p> {
    /// The problem being solved.
    pub problem: &'p Problem<'p>,
    /// Sizes used.
    pub words: Words,
    pub(super) replacements: BTreeMap<String, String>,
    pub(super) extra: String,
    pub(super) bindings: Vec<Binding>,
    /// Element type of each binding.
    pub(super) elements: Vec<String>,
    pub(super) packed: Vec<Packed>,
    pub(super) scratch: Vec<Dim>,
    pub(super) needs: BTreeSet<Need>,
    pub(super) elementary: Option<u32>,
    pub(super) workgroup_memory: u32,
    pub(super) iterations: Dim,
    pub(super) partial_texels: bool,
    pub(super) outside: Outside,
    /// Operands of whose last channel nothing is known outside along some axes (z, y, x).
    pub(super) open: BTreeMap<usize, [bool; 3]>,
}

impl<'p> Shader<'p> {
    /// An empty set of hooks.
    pub fn new(problem: &'p Problem<'p>) -> Self {
        Self {
            problem,
            words: Words { params: Vec::new(), bounds: problem.bounds.clone() },
            replacements: BTreeMap::new(),
            extra: String::new(),
            bindings: Vec::new(),
            elements: Vec::new(),
            packed: Vec::new(),
            scratch: Vec::new(),
            needs: BTreeSet::new(),
            elementary: None,
            workgroup_memory: 0,
            iterations: Dim::known(1),
            partial_texels: false,
            outside: Outside::Nothing,
            open: BTreeMap::new(),
        }
    }

    /// The size as a WGSL expression.
    pub fn dim(&mut self, dim: &Dim) -> String {
        self.words.dim(dim)
    }

    /// Replaces `const name`.
    pub fn constant(&mut self, name: &str, value: impl std::fmt::Display) {
        self.replacements.insert(name.to_string(), format!("const {name} = {value};"));
    }

    /// Replaces `const name` by an unsigned number.
    pub fn knob(&mut self, name: &str, value: u32) {
        self.constant(name, format_args!("{value}u"));
    }

    /// Replaces the hook `fn name() -> f32` by a number, which need not be finite: no `const` can be otherwise.
    pub fn number(&mut self, name: &str, value: f32) {
        let text = literal(value.into(), Class::Float, 1);
        self.replacements.insert(name.to_string(), format!("fn {name}() -> f32 {{ return {text}; }}"));
    }

    /// Replaces `alias name`.
    pub fn alias(&mut self, name: &str, ty: &str) {
        self.replacements.insert(name.to_string(), format!("alias {name} = {ty};"));
    }

    /// Replaces the hook `fn name() -> u32` by a size.
    pub fn size(&mut self, name: &str, dim: &Dim) {
        let text = self.words.dim(dim);
        self.replacements.insert(name.to_string(), format!("fn {name}() -> u32 {{ return {text}; }}"));
    }

    /// Replaces any declaration by text.
    pub fn replace(&mut self, name: &str, text: String) {
        self.replacements.insert(name.to_string(), text);
    }

    /// Says how often an invocation goes round its loops.
    pub fn iterations(&mut self, iterations: Dim) {
        self.iterations = iterations;
    }

    /// Says what the kernel's instructions take of the device.
    pub fn needs(&mut self, needs: &[Need]) {
        self.needs.extend(needs);
    }

    /// Says how many bytes of workgroup memory the kernel uses.
    pub fn workgroup_memory(&mut self, bytes: u32) {
        self.workgroup_memory = bytes;
    }

    /// Adds a scratch buffer of `bytes` and returns what it is bound to.
    pub fn scratch(&mut self, bytes: Dim) -> Bound {
        self.scratch.push(bytes);
        Bound::Scratch(self.scratch.len() - 1)
    }

    /// Replaces hook `name` by a function that reads operand `index` at coordinates written in terms of the hook's
    /// parameters (`params`, as in `batch: u32, row: u32`), after the statements in `prelude`.
    /// The function returns one value or, with a lane axis, four.
    pub fn read(&mut self, name: &str, params: &str, prelude: &str, index: usize, at: &Coordinates) {
        let text = self.read_fn(name, params, prelude, index, at, false);
        self.replacements.insert(name.to_string(), text);
    }

    /// The text of a reading function, without registering it under a hook.
    pub fn read_fn(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        index: usize,
        at: &Coordinates,
        whole_groups: bool,
    ) -> String {
        let operand = self.problem.operands[index].clone();
        let class = Class::of(operand.dtype);
        let lanes = if at.lanes.is_some() { 4 } else { 1 };
        let how = reading(&mut self.words, &operand, at, whole_groups);
        let buffer = self.hold(&operand, Bound::Operand(index), &how, false);
        let ty = class.wgsl(lanes);
        let (before, value) = load_text(&how, &buffer, class, lanes, "r");
        let (closing, value) = self.closed(index, at, &how, class, value);
        format!("fn {name}({params}) -> {ty} {{\n{prelude}{before}{closing}    return {value};\n}}\n")
    }

    /// Replaces hook `name` by a function that reads operand `index` at coordinates of the result, broadcasting.
    ///
    /// # Errors
    /// When the operand does not broadcast to the result (a defect of the graph).
    pub fn read_broadcast(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        index: usize,
        at: &Coordinates,
    ) -> Result<(), OpError> {
        let lanes = if at.lanes.is_some() { 4 } else { 1 };
        let mut statements = String::new();
        let (value, class) = self.read_here(index, at, lanes, false, &mut statements)?;
        let ty = class.wgsl(lanes);
        let text = format!("fn {name}({params}) -> {ty} {{\n{prelude}{statements}    return {value};\n}}\n");
        self.replacements.insert(name.to_string(), text);
        Ok(())
    }

    /// Replaces hook `name` by a function that applies the node's chain to `v`, the last of the hook's parameters,
    /// and stores it at the given coordinates of the result.
    ///
    /// # Errors
    /// When the chain does not fit (a defect of the graph).
    pub fn write(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        at: &Coordinates,
    ) -> Result<(), OpError> {
        let text = self.write_fn(name, params, prelude, at, false)?;
        self.replacements.insert(name.to_string(), text);
        Ok(())
    }

    /// The text of a writing function, without registering it under a hook.
    ///
    /// # Errors
    /// When the chain does not fit (a defect of the graph).
    pub fn write_fn(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        at: &Coordinates,
        whole_groups: bool,
    ) -> Result<String, OpError> {
        let lanes = if at.lanes.is_some() { 4 } else { 1 };
        let computed = self.problem.computed;
        let class = Class::of(computed);
        let start = (chain::narrow("v", computed, lanes), class);
        let (statements, value, last) =
            self.chain_text(self.problem.chain, Some(start), at, lanes, whole_groups)?;
        let store = self.store_text(&value, last, at, whole_groups);
        let comma = if params.is_empty() { "" } else { ", " };
        Ok(format!("fn {name}({params}{comma}v: {}) {{\n{prelude}{statements}{store}}}\n", class.wgsl(lanes)))
    }

    /// Statements that apply a chain at coordinates, the expression of its result and its class.
    /// Operands are read at coordinates broadcast from the result's.
    ///
    /// # Errors
    /// When the chain does not fit (a defect of the graph).
    pub fn chain_text(
        &mut self,
        steps: &[Step],
        start: Option<(String, Class)>,
        at: &Coordinates,
        lanes: u32,
        whole_groups: bool,
    ) -> Result<(String, String, Class), OpError> {
        let mut statements = String::new();
        let mut reads: BTreeMap<u32, (String, Class)> = BTreeMap::new();
        let mut values: Vec<(String, Class)> = start.into_iter().collect();
        let based = values.len();
        for step in steps {
            for arg in &step.args {
                if let Arg::Input(k) = arg
                    && !reads.contains_key(k)
                {
                    let value = self.read_here(*k as usize, at, lanes, whole_groups, &mut statements)?;
                    reads.insert(*k, value);
                }
            }
            let operands: Option<Vec<(String, Class)>> = step
                .args
                .iter()
                .map(|arg| match *arg {
                    Arg::Input(k) => reads.get(&k).cloned(),
                    Arg::Step(s) => (s as usize + based).checked_sub(1).and_then(|i| values.get(i)).cloned(),
                })
                .collect();
            let operands = operands.ok_or_else(|| OpError::new("a chain step names a missing value"))?;
            let (text, class, elementary) = chain::element_text(step.element, &operands, lanes)?;
            if elementary {
                self.elementary = Some(lanes);
            }
            let name = format!("s{}", values.len());
            statements += &format!("    let {name} = {text};\n");
            values.push((name, class));
        }
        let (value, class) = values.pop().ok_or_else(|| OpError::new("an empty chain"))?;
        Ok((statements, value, class))
    }

    /// Statements and the value of element functions on two values of four floats: `#0`, and `@k` for any `k`.
    ///
    /// # Errors
    /// When a step names something else.
    pub fn pair_text(
        &mut self,
        steps: &[Step],
        first: &str,
        second: &str,
    ) -> Result<(String, String), OpError> {
        let mut statements = String::new();
        let mut values = vec![(first.to_string(), Class::Float)];
        for step in steps {
            let operands: Option<Vec<(String, Class)>> = step
                .args
                .iter()
                .map(|arg| match *arg {
                    Arg::Input(_) => Some((second.to_string(), Class::Float)),
                    Arg::Step(s) => values.get(s as usize).cloned(),
                })
                .collect();
            let operands = operands.ok_or_else(|| OpError::new("a step names a missing value"))?;
            let (text, class, elementary) = chain::element_text(step.element, &operands, 4)?;
            if elementary {
                self.elementary = Some(4);
            }
            let name = format!("s{}", values.len());
            statements += &format!("    let {name} = {text};\n");
            values.push((name, class));
        }
        let (value, class) = values.pop().ok_or_else(|| OpError::new("an empty chain"))?;
        if class != Class::Float {
            return Err(OpError::new("the steps make no float"));
        }
        Ok((statements, value))
    }

    /// Reads operand `index` at the result's coordinates, broadcasting; adds the statements that do so.
    fn read_here(
        &mut self,
        index: usize,
        at: &Coordinates,
        lanes: u32,
        whole_groups: bool,
        statements: &mut String,
    ) -> Result<(String, Class), OpError> {
        let operand =
            self.problem.operands.get(index).ok_or_else(|| OpError::new("a missing chain operand"))?.clone();
        let result = &self.problem.result;
        let skip = result
            .rank()
            .checked_sub(operand.rank())
            .ok_or_else(|| OpError::new("a chain operand has more dimensions than the result"))?;
        let mut here = at.clone();
        here.axes = at.axes[skip..].to_vec();
        here.lanes = at.lanes.and_then(|l| l.checked_sub(skip));
        let same = operand.shape == result.shape && operand.placement == result.placement;
        if !same {
            here.unit = None;
        }
        let spatial = |shape: &[Dim]| {
            shape.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, d)| d.clone()).collect::<Vec<_>>()
        };
        if skip > 0 || spatial(&operand.shape) != spatial(&result.shape) {
            here.pixel = None;
        }
        let class = Class::of(operand.dtype);
        let name = format!("x{index}");
        let how = reading(&mut self.words, &operand, &here, whole_groups);
        let buffer = self.hold(&operand, Bound::Operand(index), &how, false);
        // An operand without the lane axis has one value for all four lanes.
        let (before, value) = if lanes == 4 && here.lanes.is_none() {
            (String::new(), format!("{}({})", class.wgsl(4), scalar_text(&how, &buffer, class)))
        } else {
            load_text(&how, &buffer, class, lanes, &format!("l{index}"))
        };
        *statements += &format!("{before}    let {name} = {value};\n");
        Ok((name, class))
    }

    /// Statements that store `value` at coordinates of the result.
    fn store_text(&mut self, value: &str, class: Class, at: &Coordinates, whole_groups: bool) -> String {
        let result = self.problem.result.clone();
        self.store_to(&result, Bound::Result, value, class, at, whole_groups)
    }

    /// Statements that store `value` at coordinates of a tensor.
    pub fn store_to(
        &mut self,
        tensor: &Operand<'_>,
        bound: Bound,
        value: &str,
        class: Class,
        at: &Coordinates,
        whole_groups: bool,
    ) -> String {
        let lanes = if at.lanes.is_some() { 4 } else { 1 };
        let mut how = access(&mut self.words, tensor, at, whole_groups);
        let mut tensor = tensor.clone();
        if tensor.in_texture() && !matches!(how, Access::Vector { .. }) {
            // No texture can be written in part.
            self.partial_texels = true;
            tensor.storage = Storage::Buffer;
            how = access(&mut self.words, &tensor, at, whole_groups);
        }
        let tensor = &tensor;
        let device = tensor.dtype.on_device();
        let buffer = self.hold(tensor, bound, &how, true);
        let scalar = if buffer.resource == Resource::Buffer { device.wgsl() } else { device.texel() };
        let stored = to_storage(value, class, device, scalar, lanes);
        match how {
            Access::Vector { index } => {
                let mut text = format!("    var w = {stored};\n");
                if tensor.placement == Placement::Slices4 && !tensor.shape[1].is_multiple_of(4) {
                    // Lanes past the last channel are stored as zero.
                    let channels = self.words.dim(&tensor.shape[1]);
                    let slice = &at.axes[1];
                    for (j, lane) in ["y", "z", "w"].iter().enumerate() {
                        text += &format!(
                            "    if (({slice}) * 4u + {}u >= {channels}) {{ w.{lane} = {scalar}(0); }}\n",
                            j + 1
                        );
                    }
                }
                text + &buffer.store(&index, "w")
            }
            Access::Scalar { index, lane: None } | Access::Splat { index } => {
                let buffer = &buffer.name;
                let stored = if lanes == 4 { format!("({stored}).x") } else { stored };
                format!("    {buffer}[{index}] = {stored};\n")
            }
            Access::Scalar { index, lane: Some(lane) } => {
                let buffer = &buffer.name;
                let padding = self.padding(tensor, at, &format!("{buffer}[{index}]"));
                let stored = if lanes == 4 { format!("({stored}).x") } else { stored };
                format!("    {buffer}[{index}][{lane}] = {stored};\n{padding}")
            }
            Access::Scattered { indices, lane, guard } => {
                let buffer = &buffer.name;
                let mut text = format!("    let w = {stored};\n");
                for (j, index) in indices.iter().enumerate() {
                    let component = ["x", "y", "z", "w"][j];
                    let padding = lane.as_ref().map_or(String::new(), |_| {
                        format!("\n{}", self.padding(tensor, at, &format!("{buffer}[{index}]")))
                    });
                    let lane = lane.as_ref().map_or(String::new(), |l| format!("[{l}]"));
                    let store = format!("{buffer}[{index}]{lane} = w.{component};{padding}");
                    text += &match &guard {
                        Some((first, limit)) if j > 0 => {
                            format!("    if ({first} + {j}u < {limit}) {{ {store} }}\n")
                        }
                        _ => format!("    {store}\n"),
                    };
                }
                text
            }
        }
    }

    /// Statements by which whoever stores the last channel alone also zeroes the lanes after it in its `vector`.
    fn padding(&mut self, tensor: &Operand<'_>, at: &Coordinates, vector: &str) -> String {
        if tensor.shape[1].is_multiple_of(4) {
            return String::new();
        }
        let channel = &at.axes[1];
        let channels = self.words.dim(&tensor.shape[1]);
        let scalar = tensor.dtype.on_device().wgsl();
        let lanes = (1..4).map(|lane| {
            format!(
                "    if (({channel}) + 1u == {channels} && ({channel}) % 4u < {lane}u) {{ {vector}[{lane}] = {scalar}(0); }}\n"
            )
        });
        lanes.collect()
    }

    /// Specialises the kernel's text.
    ///
    /// # Errors
    /// When a hook does not exist in the kernel (a defect of the kernel).
    pub fn finish(
        mut self,
        kernel: &'static str,
        source: &str,
        grid: Grid,
        flops: Dim,
    ) -> Result<Launch, OpError> {
        if !self.words.params.is_empty() {
            let words = self.words.params.len().div_ceil(4);
            let index = self.bindings.len();
            self.bindings.push(Binding { bound: Bound::Params, resource: Resource::Buffer, writable: false });
            self.extra +=
                &format!("@group(0) @binding({index}) var<uniform> params: array<vec4<u32>, {words}>;\n");
        }
        if let Some(lanes) = self.elementary {
            self.extra += &if lanes == 4 {
                ELEMENTARY.to_string()
            } else {
                ELEMENTARY
                    .replace("alias Elem = vec4<f32>;", "alias Elem = f32;")
                    .replace("alias ElemBits = vec4<u32>;", "alias ElemBits = u32;")
                    .replace("alias ElemBool = vec4<bool>;", "alias ElemBool = bool;")
            };
        }
        let wgsl = specialize(source, &self.replacements, &self.extra)
            .map_err(|e| OpError::new(format!("kernel {kernel}: {e}")))?;
        let wgsl = if self.needs.contains(&Need::F16) { format!("enable f16;\n{wgsl}") } else { wgsl };
        Ok(Launch {
            kernel,
            wgsl,
            bindings: self.bindings,
            params: self.words.params,
            grid: grid.groups,
            workgroup: grid.workgroup,
            workgroup_memory: self.workgroup_memory,
            iterations: self.iterations,
            packed: self.packed,
            scratch: self.scratch,
            flops,
            subgroup_size: None,
            partial_texels: self.partial_texels,
            matrix: None,
            outside: self.outside,
            needs: self.needs,
        })
    }
}

/// A loaded value as its class.
fn from_storage(text: &str, class: Class, lanes: u32) -> String {
    match class {
        Class::Bool => format!("({text} != {})", if lanes == 4 { "vec4<u32>(0u)" } else { "0u" }),
        _ => format!("{}({text})", class.wgsl(lanes)),
    }
}

/// A value of a class as what is stored, in the type `scalar`.
fn to_storage(text: &str, class: Class, device: DeviceType, scalar: &str, lanes: u32) -> String {
    let ty = if lanes == 4 { format!("vec4<{scalar}>") } else { scalar.to_string() };
    if class == Class::Float && device == DeviceType::F16 {
        // Conversion of finite numbers beyond f16 is undefined in SPIR-V.
        let kept = chain::storable_half(text, lanes);
        // Texels are rounded as the device likes, which may be towards zero; what fits exactly is not rounded.
        return if scalar == "f16" { format!("{ty}({kept})") } else { format!("quantizeToF16({kept})") };
    }
    format!("{ty}({text})")
}

fn scalar_text(how: &Access, buffer: &Held, class: Class) -> String {
    let raw = match how {
        Access::Scalar { index, lane: None } | Access::Splat { index } => buffer.load(index),
        Access::Scalar { index, lane: Some(lane) } => format!("{}[{lane}]", buffer.load(index)),
        Access::Vector { index } => format!("{}.x", buffer.load(index)),
        Access::Scattered { indices, .. } => buffer.load(&indices[0]),
    };
    from_storage(&raw, class, 1)
}

/// Statements and the expression of a loaded value; `name` is free for a variable.
fn load_text(how: &Access, buffer: &Held, class: Class, lanes: u32, name: &str) -> (String, String) {
    match how {
        Access::Vector { index } => (String::new(), from_storage(&buffer.load(index), class, 4)),
        Access::Scalar { .. } if lanes == 1 => (String::new(), scalar_text(how, buffer, class)),
        Access::Scalar { .. } | Access::Splat { .. } => {
            (String::new(), format!("{}({})", class.wgsl(lanes), scalar_text(how, buffer, class)))
        }
        Access::Scattered { indices, lane, guard } => {
            let mut text = format!("    var {name}: {} = {};\n", class.wgsl(4), class.zero(4));
            for (j, index) in indices.iter().enumerate() {
                let component = ["x", "y", "z", "w"][j];
                let lane = lane.as_ref().map_or(String::new(), |l| format!("[{l}]"));
                let value = from_storage(&format!("{}{lane}", buffer.load(index)), class, 1);
                text += &match guard {
                    Some((first, limit)) if j > 0 => {
                        format!("    if ({first} + {j}u < {limit}) {{ {name}.{component} = {value}; }}\n")
                    }
                    _ => format!("    {name}.{component} = {value};\n"),
                };
            }
            (text, name.to_string())
        }
    }
}
