//! Builder of a kernel launch: it replaces constants, types and sizes in the kernel's WGSL. The module `reads`
//! generates reads of operands, `writes` generates stores of results, and `epilogue` generates the fused epilogue.
//!
//! A [`Shader`] collects replacements for a kernel's declarations and the bindings they need. [`Shader::finish`]
//! returns a [`LaunchDraft`], and [`LaunchDraft::specialize`] specializes the WGSL. Known sizes become literals and
//! symbolic sizes become words of a uniform block, so one kernel source serves both.

use std::collections::{BTreeMap, BTreeSet};

use super::launch::{Binding, Bound, Grid, Launch, LaunchDraft, Need, Unspecialized};
use super::outside_reads::OutsideReads;
use super::pack::Packed;
use super::problem::Problem;
use super::resource::Resource;
use super::size_params::SizeParams;
use super::value_type::{ValueType, literal};
use crate::ir::dim::Dim;

/// WGSL source of elementary functions, such as `tanh`, that epilogues use.
const ELEMENTARY: &str = include_str!("lib/elementary.wgsl");

/// Builder of one launch of a kernel.
#[derive(Debug)]
pub struct Shader<'p> {
    /// The problem that the launch computes.
    pub problem: &'p Problem<'p>,
    /// Generator of WGSL expressions for sizes. It records the symbolic sizes that the shader uses.
    pub sizes: SizeParams,
    pub(super) replacements: BTreeMap<String, String>,
    pub(super) extra: String,
    pub(super) bindings: Vec<Binding>,
    /// WGSL element type of each binding, by binding number.
    pub(super) elements: Vec<String>,
    pub(super) packed: Vec<Packed>,
    pub(super) scratch: Vec<Dim>,
    pub(super) needs: BTreeSet<Need>,
    pub(super) elementary: Option<u32>,
    pub(super) workgroup_memory: u32,
    pub(super) iterations: Dim,
    pub(super) partial_texels: bool,
    pub(super) outside: OutsideReads,
    /// Operands in textures for which reads outside the texture must be masked: the shader replaces their last channel by zero.
    /// The key is the operand's index; the value tells on which spatial axes (z, y, x) the mask is needed.
    pub(super) open: BTreeMap<usize, [bool; 3]>,
}

impl<'p> Shader<'p> {
    /// Creates the builder of a launch, without replacements or bindings.
    pub fn new(problem: &'p Problem<'p>) -> Self {
        Self {
            problem,
            sizes: SizeParams { params: Vec::new(), bounds: problem.bounds.clone() },
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
            outside: OutsideReads::Unused,
            open: BTreeMap::new(),
        }
    }

    /// Returns a size as a WGSL expression.
    pub fn dim(&mut self, dim: &Dim) -> String {
        self.sizes.dim(dim)
    }

    /// Replaces the WGSL constant `name`.
    pub fn constant(&mut self, name: &str, value: impl std::fmt::Display) {
        self.replacements.insert(name.to_string(), format!("const {name} = {value};"));
    }

    /// Sets the WGSL constant `name` to an unsigned literal.
    pub fn knob(&mut self, name: &str, value: u32) {
        self.constant(name, format_args!("{value}u"));
    }

    /// Replaces the hook `fn name() -> f32` by a function that returns a number. Unlike a `const`, it may return
    /// infinity or NaN.
    pub fn number(&mut self, name: &str, value: f32) {
        let text = literal(value.into(), ValueType::Float, 1);
        self.replacements.insert(name.to_string(), format!("fn {name}() -> f32 {{ return {text}; }}"));
    }

    /// Replaces the WGSL type alias `name`.
    pub fn alias(&mut self, name: &str, ty: &str) {
        self.replacements.insert(name.to_string(), format!("alias {name} = {ty};"));
    }

    /// Replaces the hook `fn name() -> u32` by a function that returns a size.
    pub fn size(&mut self, name: &str, dim: &Dim) {
        let text = self.sizes.dim(dim);
        self.replacements.insert(name.to_string(), format!("fn {name}() -> u32 {{ return {text}; }}"));
    }

    /// Replaces the declaration `name` of the kernel by the WGSL in `text`.
    pub fn replace(&mut self, name: &str, text: String) {
        self.replacements.insert(name.to_string(), text);
    }

    /// Sets the number of loop iterations of one invocation, which is checked against the device's limit.
    pub fn iterations(&mut self, iterations: Dim) {
        self.iterations = iterations;
    }

    /// Adds device features that the kernel needs.
    pub fn needs(&mut self, needs: &[Need]) {
        self.needs.extend(needs);
    }

    /// Sets the bytes of workgroup memory that the kernel uses.
    pub fn workgroup_memory(&mut self, bytes: u32) {
        self.workgroup_memory = bytes;
    }

    /// Adds a scratch buffer of `bytes` bytes to the launch, and returns it as a memory object that can be bound.
    pub fn scratch(&mut self, bytes: Dim) -> Bound {
        self.scratch.push(bytes);
        Bound::Scratch(self.scratch.len() - 1)
    }

    /// Returns the draft of a launch with the collected replacements and bindings. `source` is the WGSL of the kernel.
    pub fn finish(
        mut self,
        kernel: &'static str,
        source: &'static str,
        grid: Grid,
        flops: Dim,
    ) -> LaunchDraft {
        if !self.sizes.params.is_empty() {
            let words = self.sizes.params.len().div_ceil(4);
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
        let wgsl = Unspecialized {
            source,
            replacements: self.replacements,
            extra: self.extra,
            short_shaders: self.problem.target.prefer.short_shaders,
        };
        Launch {
            kernel,
            wgsl,
            bindings: self.bindings,
            params: self.sizes.params,
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
            stores_halves: false,
            keeps_loops: false,
            outside: self.outside,
            needs: self.needs,
        }
    }
}
