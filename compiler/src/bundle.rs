//! Assembling a bundle: shaders emitted, constants packed and streamed out, plans turned into the format's records.

mod images;
mod stream;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::Path;

use drift_runtime::codec::{BundleWriter, Summary};
use drift_runtime::format::{
    self, Binding, BindingKind, DeviceHints, Dispatch, Expr, ExprOp, Feature, Features, Function, Hash,
    MemoryReport, Pipeline, Provenance, Requirements, Slot, SlotKind, Symbol, Variant, WeightPlacement,
    WeightSlot,
};
use rayon::prelude::*;

use crate::emit::spirv;
use crate::error::{Error, OpError, Result};
use crate::ir::dim::{Atom, Bounds, Dim};
use crate::ir::tensor::{DType, DeviceType};
use crate::kernels::pack::Packed;
use crate::kernels::resource::Resource;
use crate::kernels::shader::Outside;
use crate::plan::{Home, Plan, Port, Step, limits};
use crate::target::{MatrixScope, MatrixShape, MatrixType, TargetProfile};

/// Weight chunks start at multiples of this in their slot; every device's binding alignment divides it.
const WEIGHT_ALIGNMENT: u64 = 256;

/// A plan for one target.
#[derive(Debug)]
pub struct Planned<'a> {
    /// The target.
    pub target: &'a TargetProfile,
    /// Functions with their names; functions of one target share weights.
    pub functions: Vec<(String, Plan)>,
}

/// Writes a bundle.
///
/// # Errors
/// A shader that is not valid, a limit of a target that is exceeded, or a file that cannot be written.
pub fn write(
    path: &Path,
    provenance: Provenance,
    planned: &[Planned<'_>],
    attachments: &[(String, Vec<u8>)],
    emit: spirv::Options,
) -> Result<Summary> {
    let mut writer = BundleWriter::create(path).map_err(runtime_error)?;
    let modules = emit_all(planned, emit)?;
    let mut variants = Vec::with_capacity(planned.len());
    for one in planned {
        variants.push(variant(&mut writer, one, &modules)?);
    }
    for (name, bytes) in attachments {
        writer.attach(name, bytes).map_err(runtime_error)?;
    }
    writer.finish(provenance, variants).map_err(runtime_error)
}

fn runtime_error(e: drift_runtime::Error) -> Error {
    match e {
        drift_runtime::Error::Io { path, source } => Error::Io { path, reason: source.to_string() },
        other => Error::internal("bundle", other.to_string()),
    }
}

/// Emits every distinct module once, in parallel.
fn emit_all<'a>(planned: &'a [Planned<'_>], options: spirv::Options) -> Result<BTreeMap<&'a str, Vec<u32>>> {
    let mut sources: BTreeMap<&str, &Step> = BTreeMap::new();
    for step in planned.iter().flat_map(|p| &p.functions).flat_map(|(_, plan)| &plan.steps) {
        sources.entry(&step.launch.wgsl).or_insert(step);
    }
    sources
        .into_par_iter()
        .map(|(wgsl, step)| {
            let matrix = step.launch.matrix.as_ref().map(spirv::Matrix::from);
            let words = spirv::emit(wgsl, spirv::Options { matrix, ..options }).map_err(|e| {
                Error::internal("emit", format!("kernel {} for `{}`: {e}", step.launch.kernel, step.label))
            })?;
            Ok((wgsl, words))
        })
        .collect()
}

/// One variant: its weights written, its shaders added.
fn variant(
    writer: &mut BundleWriter,
    planned: &Planned<'_>,
    modules: &BTreeMap<&str, Vec<u32>>,
) -> Result<Variant> {
    let target = planned.target;
    let mut weights = Weights::new(target);
    let mut pipelines: Vec<Pipeline> = Vec::new();
    let mut known: Known<'_> = BTreeMap::new();
    let mut functions = Vec::with_capacity(planned.functions.len());
    let mut needs = Needs::default();
    for (name, plan) in &planned.functions {
        let places = weights.add(writer, plan)?;
        for step in &plan.steps {
            let wgsl = step.launch.wgsl.as_str();
            if let Entry::Vacant(place) = known.entry(key(step)) {
                let words =
                    modules.get(wgsl).ok_or_else(|| Error::internal("bundle", "a module was not emitted"))?;
                let artifact = writer.spirv(words).map_err(runtime_error)?;
                place.insert(index(pipelines.len())?);
                pipelines.push(pipeline(step, artifact));
            }
        }
        functions.push(function(name, plan, target, &places, &weights, &known, &mut needs)?);
    }
    needs.memory += weights.slots.iter().map(|s| s.size).sum::<u64>();
    let requirements = needs.requirements(target, planned, &functions);
    Ok(Variant {
        target: target.name.clone(),
        profile_hash: Hash(target.hash()?),
        requirements,
        pipelines,
        weights: weights.slots,
        placements: weights.placements,
        states: Vec::new(),
        functions,
    })
}

fn index(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|e| Error::internal("bundle", e.to_string()))
}

/// Why weights were not written.
struct Refused(Error);

impl From<OpError> for Refused {
    fn from(e: OpError) -> Self {
        Self(Error::internal("pack", e.0))
    }
}

/// Where a constant is.
enum Place {
    Buffer(Binding),
    /// The image that holds it, and its bytes.
    Texture(format::Image, u64),
}

/// The weight slots of a variant as they fill up.
struct Weights {
    slots: Vec<WeightSlot>,
    placements: Vec<WeightPlacement>,
    placed: BTreeMap<u32, (u32, u64)>,
    largest_slot: u64,
    largest_binding: u64,
    longest_side: u32,
    target: String,
}

impl Weights {
    fn new(target: &TargetProfile) -> Self {
        Self {
            slots: Vec::new(),
            placements: Vec::new(),
            placed: BTreeMap::new(),
            largest_slot: target.limits.max_allocation.min(1 << 30),
            largest_binding: target.limits.max_storage_buffer_range,
            longest_side: target.limits.max_texture_2d,
            target: target.name.clone(),
        }
    }

    /// Packs and writes a plan's constants; returns where each is.
    fn add(&mut self, writer: &mut BundleWriter, plan: &Plan) -> Result<Vec<Place>> {
        let largest = plan.weights.iter().map(Packed::bytes).zip(images::weights(plan, self.longest_side));
        let buffers = largest.filter(|(_, texture)| texture.is_none());
        if let Some(size) = buffers.map(|(bytes, _)| bytes).max().filter(|b| *b > self.largest_binding) {
            let over = |i: &usize| plan.weights.get(*i).is_some_and(|w| w.bytes() == size);
            let users = plan
                .steps
                .iter()
                .filter(|s| s.homes.iter().any(|home| matches!(home, Home::Weight(i) if over(i))));
            return Err(Error::request(
                format!(
                    "`{}` needs a weight of {size} bytes, and {} binds at most {} bytes",
                    users.map(|s| s.label.as_str()).next().unwrap_or_default(),
                    self.target,
                    self.largest_binding
                ),
                "compile with --precision f16, or pick a target with a larger limit",
            ));
        }
        let (places, _) = stream::stream(&plan.weights, |pieces| self.write(writer, plan, pieces))
            .map_err(|e: Refused| e.0)?;
        Ok(places)
    }

    /// Writes the pieces of a plan's constants.
    fn write(
        &mut self,
        writer: &mut BundleWriter,
        plan: &Plan,
        pieces: &stream::Pieces,
    ) -> std::result::Result<Vec<Place>, Refused> {
        let textures = images::weights(plan, self.longest_side);
        let mut places = Vec::with_capacity(plan.weights.len());
        for (packed, texture) in plan.weights.iter().zip(&textures) {
            let size = packed.bytes();
            let padding = texture.as_ref().map_or(0, |image| image.bytes().saturating_sub(size));
            let fill = |out: &mut dyn Write| {
                pieces.write(out)?;
                std::io::copy(&mut std::io::repeat(0).take(padding), out).map(|_| ())
            };
            let chunk = writer.chunk(fill).map_err(|e| Refused(runtime_error(e)))?;
            places.push(match texture {
                Some(image) => Place::Texture(images::slot(image, Some(chunk)), image.bytes()),
                None => {
                    let (slot, offset) = self.place(chunk, size).map_err(Refused)?;
                    Place::Buffer(Binding { slot, offset, size })
                }
            });
        }
        Ok(places)
    }

    fn place(&mut self, chunk: u32, size: u64) -> Result<(u32, u64)> {
        if let Some(place) = self.placed.get(&chunk) {
            return Ok(*place);
        }
        let fits = self.slots.last().is_some_and(|s| {
            s.size.next_multiple_of(WEIGHT_ALIGNMENT).saturating_add(size) <= self.largest_slot
        });
        if !fits {
            self.slots.push(WeightSlot { size: 0 });
        }
        let slot = index(self.slots.len() - 1)?;
        let last = self.slots.last_mut().ok_or_else(|| Error::internal("bundle", "no weight slot"))?;
        let offset = last.size.next_multiple_of(WEIGHT_ALIGNMENT);
        last.size = offset + size;
        self.placements.push(WeightPlacement { chunk, slot, offset });
        self.placed.insert(chunk, (slot, offset));
        Ok((slot, offset))
    }
}

fn pipeline(step: &Step, artifact: u32) -> Pipeline {
    let launch = &step.launch;
    let bindings = launch
        .bindings
        .iter()
        .zip(&step.homes)
        .map(|(b, home)| match (home, b.resource, b.writable) {
            (Home::Params, _, _) | (_, Resource::Uniform(_), _) => BindingKind::Uniform,
            (_, Resource::Texels(device), _) => BindingKind::Texels(device_type(device)),
            (_, Resource::Texture(storage, device), true) => {
                BindingKind::ImageWrite(images::texture(storage, device))
            }
            (_, Resource::Texture(storage, device), false) => {
                BindingKind::ImageRead(images::texture(storage, device))
            }
            (_, Resource::Buffer, true) => BindingKind::StorageReadWrite,
            (_, Resource::Buffer, false) => BindingKind::StorageRead,
        })
        .collect();
    Pipeline {
        name: launch.kernel.to_string(),
        artifact,
        entry: "main".into(),
        bindings,
        required_subgroup_size: launch.subgroup_size,
        workgroup_size: launch.workgroup,
        workgroup_memory: launch.workgroup_memory,
    }
}

/// Pipelines by module and bindings: a module declares textures of f16 and of f32 alike.
type Known<'a> = BTreeMap<(&'a str, Vec<(Resource, bool)>), u32>;

fn key(step: &Step) -> (&str, Vec<(Resource, bool)>) {
    (&step.launch.wgsl, step.launch.bindings.iter().map(|b| (b.resource, b.writable)).collect())
}

/// What shaders call, with what the device must be able to do for it.
const CALLS: &[(&str, Feature)] = &[
    ("dot4I8Packed(", Feature::IntDotProduct),
    ("dot4U8Packed(", Feature::IntDotProduct),
    ("subgroupAny(", Feature::SubgroupVote),
    ("subgroupShuffle(", Feature::SubgroupShuffle),
    ("subgroupShuffleXor(", Feature::SubgroupShuffle),
];

/// What a variant's dispatches add up to.
#[derive(Debug, Default)]
struct Needs {
    memory: u64,
    storage_range: u64,
    uniform_range: u64,
    buffer: u64,
    grid: [u32; 3],
}

fn function(
    name: &str,
    plan: &Plan,
    target: &TargetProfile,
    places: &[Place],
    weights: &Weights,
    pipelines: &Known<'_>,
    needs: &mut Needs,
) -> Result<Function> {
    let symbols: Vec<Symbol> = plan
        .bounds
        .iter()
        .map(|(name, (min, max))| Symbol { name: name.clone(), min: *min, max: *max })
        .collect();
    let order: BTreeMap<&str, u32> = symbols
        .iter()
        .enumerate()
        .map(|(i, s)| (s.name.as_str(), u32::try_from(i).unwrap_or(u32::MAX)))
        .collect();
    let mut slots: Vec<Slot> = (0..weights.slots.len())
        .map(|i| Slot { kind: SlotKind::Weights(i as u32), size: weights.slots[i].size })
        .collect();
    let arena = index(slots.len())?;
    if plan.memory.peak > 0 {
        slots.push(Slot { kind: SlotKind::Arena, size: plan.memory.peak });
    }
    let first_input = index(slots.len())?;
    let port_size = |p: &Port| port_bytes(p, &plan.bounds, target);
    for (i, port) in plan.inputs.iter().enumerate() {
        slots.push(Slot { kind: SlotKind::Input(index(i)?), size: port_size(port)? });
    }
    let first_output = index(slots.len())?;
    for (i, port) in plan.outputs.iter().enumerate() {
        slots.push(Slot { kind: SlotKind::Output(index(i)?), size: port_size(port)? });
    }
    let params = index(slots.len())?;
    let mut params_size = 0u64;
    let alignment = u64::from(target.limits.uniform_buffer_alignment).max(16);
    let mut dispatches = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        let launch = &step.launch;
        let words = launch.params.len() as u64;
        let params_offset = if words > 0 { params_size.next_multiple_of(alignment) } else { 0 };
        let params_bytes = (words * 4).next_multiple_of(16);
        if words > 0 {
            params_size = params_offset + params_bytes;
        }
        let bindings = step
            .homes
            .iter()
            .map(|home| {
                Ok(match *home {
                    Home::Arena(i) => {
                        Binding { slot: arena, offset: plan.memory.offsets[i], size: plan.tensors[i] }
                    }
                    Home::Image(i) => {
                        let object = *plan.images.places.get(i).unwrap_or(&usize::MAX);
                        let image = plan.images.objects.get(object);
                        let image = image.ok_or_else(|| Error::internal("bundle", "an unplaced image"))?;
                        Binding { slot: params + 1 + index(object)?, offset: 0, size: image.bytes() }
                    }
                    Home::Input(i) => Binding {
                        slot: first_input + index(i)?,
                        offset: 0,
                        size: port_size(&plan.inputs[i])?,
                    },
                    Home::Output(i) => Binding {
                        slot: first_output + index(i)?,
                        offset: 0,
                        size: port_size(&plan.outputs[i])?,
                    },
                    Home::Weight(i) => match places.get(i) {
                        Some(Place::Buffer(binding)) => binding.clone(),
                        Some(Place::Texture(_, size)) => {
                            let before = places.iter().take(i).filter(|p| matches!(p, Place::Texture(..)));
                            let nth = index(plan.images.objects.len() + before.count())?;
                            Binding { slot: params + 1 + nth, offset: 0, size: *size }
                        }
                        None => return Err(Error::internal("bundle", "an unplaced weight")),
                    },
                    Home::Params => Binding { slot: params, offset: params_offset, size: params_bytes },
                })
            })
            .collect::<Result<Vec<Binding>>>()?;
        for (binding, bound) in bindings.iter().zip(&launch.bindings) {
            if bound.resource == Resource::Buffer {
                needs.storage_range = needs.storage_range.max(binding.size);
            } else if let Resource::Uniform(_) = bound.resource {
                needs.uniform_range = needs.uniform_range.max(binding.size);
            }
        }
        let mut grid = Vec::with_capacity(3);
        for (axis, groups) in launch.grid.iter().enumerate() {
            let most = groups.range(&plan.bounds).1;
            let limit = target.limits.max_workgroup_count[axis];
            let most = u32::try_from(most).ok().filter(|m| *m <= limit).ok_or_else(|| {
                Error::request(
                    format!(
                        "`{}` needs {most} workgroups on one axis; {} allows {limit}",
                        step.label, target.name
                    ),
                    limits::remedy(groups, &plan.bounds, limit.into()),
                )
            })?;
            needs.grid[axis] = needs.grid[axis].max(most);
            grid.push(expr(groups, &order)?);
        }
        let grid: [Expr; 3] =
            grid.try_into().map_err(|_| Error::internal("bundle", "a grid has three axes"))?;
        dispatches.push(Dispatch {
            pipeline: *pipelines
                .get(&key(step))
                .ok_or_else(|| Error::internal("bundle", "an unknown pipeline"))?,
            bindings,
            grid,
            params: launch.params.iter().map(|d| expr(d, &order)).collect::<Result<_>>()?,
            params_offset,
            barrier_before: step.barrier,
            label: step.label.clone(),
            flops: expr(&launch.flops, &order)?,
            bytes: expr(&step.bytes, &order)?,
        });
    }
    if params_size > 0 {
        slots.push(Slot { kind: SlotKind::Params, size: params_size });
    } else {
        // The images come where the parameters would be.
        for binding in dispatches.iter_mut().flat_map(|d: &mut Dispatch| &mut d.bindings) {
            binding.slot -= u32::from(binding.slot > params);
        }
    }
    for image in &plan.images.objects {
        slots.push(Slot { kind: SlotKind::Image(images::slot(image, None)), size: image.bytes() });
    }
    for place in places {
        if let Place::Texture(image, size) = place {
            slots.push(Slot { kind: SlotKind::Image(*image), size: *size });
        }
    }
    for slot in &slots {
        if !matches!(slot.kind, SlotKind::Image(_)) {
            needs.buffer = needs.buffer.max(slot.size);
        }
        if !matches!(slot.kind, SlotKind::Weights(_)) {
            needs.memory += slot.size;
        }
    }
    let ports = |ports: &[Port], first: u32| {
        ports
            .iter()
            .enumerate()
            .map(|(i, p)| {
                Ok(format::Port {
                    name: p.name.clone(),
                    host_type: host_type(p.dtype),
                    device_type: device_type(p.dtype.on_device()),
                    shape: p.shape.iter().map(|d| expr(d, &order)).collect::<Result<_>>()?,
                    slot: first + index(i)?,
                    offset: 0,
                })
            })
            .collect::<Result<Vec<format::Port>>>()
    };
    let footprint = plan.footprint();
    Ok(Function {
        name: name.to_string(),
        inputs: ports(&plan.inputs, first_input)?,
        outputs: ports(&plan.outputs, first_output)?,
        symbols,
        slots,
        memory: MemoryReport {
            peak: footprint.peak,
            lower_bound: footprint.lower_bound,
            naive: footprint.naive,
            strategy: plan.memory.strategy.to_string(),
        },
        dispatches,
    })
}

impl Needs {
    fn requirements(
        &self,
        target: &TargetProfile,
        planned: &Planned<'_>,
        functions: &[Function],
    ) -> Requirements {
        let steps = || planned.functions.iter().flat_map(|(_, plan)| &plan.steps);
        let mut features = Features::NONE;
        if steps().any(|s| s.launch.wgsl.contains("enable f16;")) {
            features.insert(Feature::ShaderF16);
            features.insert(Feature::Storage16bit);
        }
        if steps().any(|s| s.launch.subgroup_size.is_some()) {
            features.insert(Feature::SubgroupSizeControl);
            features.insert(Feature::SubgroupBasic);
            if target.features.full_subgroups {
                features.insert(Feature::FullSubgroups);
            }
        }
        for (word, feature) in
            [("subgroupAny", Feature::SubgroupVote), ("subgroupShuffle", Feature::SubgroupShuffle)]
        {
            if steps().any(|s| s.launch.wgsl.contains(word)) {
                features.insert(feature);
            }
        }
        for (word, feature) in CALLS {
            if steps().any(|s| s.launch.wgsl.contains(word)) {
                features.insert(*feature);
            }
        }
        for (outside, feature) in
            [(Outside::ThreeZeros, Feature::RobustImageAccess), (Outside::Zeros, Feature::RobustImageAccess2)]
        {
            if steps().any(|s| s.launch.outside == outside) {
                features.insert(feature);
            }
        }
        let mut matrices: BTreeSet<&MatrixShape> = steps().filter_map(|s| s.launch.matrix.as_ref()).collect();
        if !matrices.is_empty() {
            features.insert(Feature::CooperativeMatrix);
        }
        for shape in &matrices {
            features.insert(if shape.a == MatrixType::F16 {
                Feature::ShaderF16
            } else {
                Feature::ShaderInt8
            });
        }
        // Devices list the shapes of subgroups; for workgroups they have features.
        let listed = matrices.len();
        matrices.retain(|shape| shape.scope == MatrixScope::Subgroup);
        if matrices.len() < listed {
            features.insert(Feature::CooperativeMatrixWorkgroupScope);
            features.insert(Feature::CooperativeMatrixFlexibleDimensions);
            features.insert(Feature::CooperativeMatrixTensorAddressing);
        }
        let mut limits = format::Limits {
            max_storage_buffer_range: self.storage_range,
            max_uniform_buffer_range: self.uniform_range,
            max_buffer_size: self.buffer,
            max_grid: self.grid,
            storage_alignment: target.limits.storage_buffer_alignment.max(16),
            uniform_alignment: target.limits.uniform_buffer_alignment.max(16),
            device_memory: self.memory,
            ..format::Limits::default()
        };
        for step in steps() {
            let launch = &step.launch;
            limits.max_workgroup_invocations =
                limits.max_workgroup_invocations.max(launch.workgroup.iter().product());
            for (most, size) in limits.max_workgroup_size.iter_mut().zip(launch.workgroup) {
                *most = (*most).max(size);
            }
            limits.max_workgroup_memory = limits.max_workgroup_memory.max(launch.workgroup_memory);
            let blocks = usize::from(!launch.params.is_empty());
            let count = |of: fn(Resource) -> bool| launch.bindings.iter().filter(|b| of(b.resource)).count();
            // The block of sizes is listed as a buffer.
            let buffers = count(|r| r == Resource::Buffer).saturating_sub(blocks);
            let uniforms = blocks + count(|r| matches!(r, Resource::Uniform(_)));
            let most = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            limits.max_storage_buffers = limits.max_storage_buffers.max(most(buffers));
            limits.max_uniform_buffers = limits.max_uniform_buffers.max(most(uniforms));
        }
        for binding in functions.iter().flat_map(|f| &f.dispatches) {
            let bytes = (binding.params.len() as u64 * 4).next_multiple_of(16);
            limits.max_uniform_buffer_range = limits.max_uniform_buffer_range.max(bytes);
        }
        Requirements {
            api_version: format::ApiVersion { major: 1, minor: 1 },
            features,
            limits,
            subgroup_sizes: Vec::new(),
            matrix_shapes: matrices.into_iter().map(matrix_shape).collect(),
            hints: DeviceHints {
                vendor_ids: target.device.vendor_id.into_iter().collect(),
                device_names: target.device.names.clone(),
                ..DeviceHints::default()
            },
        }
    }
}

fn matrix_shape(shape: &MatrixShape) -> format::MatrixShape {
    let c = matrix_type(shape.c);
    format::MatrixShape {
        m: shape.m,
        n: shape.n,
        k: shape.k,
        a: matrix_type(shape.a),
        b: matrix_type(shape.b),
        c,
        result: c,
        scope: match shape.scope {
            MatrixScope::Subgroup => format::MatrixScope::Subgroup,
            MatrixScope::Workgroup => format::MatrixScope::Workgroup,
        },
        saturating: false,
    }
}

fn matrix_type(element: MatrixType) -> format::MatrixType {
    match element {
        MatrixType::F16 => format::MatrixType::F16,
        MatrixType::Bf16 => format::MatrixType::Bf16,
        MatrixType::F32 => format::MatrixType::F32,
        MatrixType::I8 => format::MatrixType::I8,
        MatrixType::U8 => format::MatrixType::U8,
        MatrixType::I32 => format::MatrixType::I32,
        MatrixType::U32 => format::MatrixType::U32,
    }
}

/// Bytes of an input's or output's buffer at the upper bounds.
fn port_bytes(port: &Port, bounds: &Bounds, target: &TargetProfile) -> Result<u64> {
    let elements = port.shape.iter().fold(1i64, |n, d| n.saturating_mul(d.range(bounds).1.max(0)));
    let bytes = elements.saturating_mul(port.dtype.on_device().bytes());
    let bytes = u64::try_from(bytes).map_err(|e| Error::internal("bundle", e.to_string()))?;
    let limit = target.limits.max_storage_buffer_range;
    if bytes > limit {
        return Err(Error::request(
            format!("`{}` takes {bytes} bytes, and {} binds at most {limit} bytes", port.name, target.name),
            "lower the upper bounds of the symbols with --dim NAME=LOW..HIGH, or pick a target with a larger limit",
        ));
    }
    Ok(bytes.max(1).next_multiple_of(16))
}

/// A size as a program over the function's symbols.
fn expr(dim: &Dim, symbols: &BTreeMap<&str, u32>) -> Result<Expr> {
    let mut sum: Option<Expr> = None;
    for term in dim.terms() {
        let mut product = Expr::constant(term.coefficient);
        for (i, factor) in term.factors.iter().enumerate() {
            let value =
                match factor {
                    Atom::Symbol(name) => Expr::symbol(*symbols.get(&**name).ok_or_else(|| {
                        Error::internal("bundle", format!("symbol `{name}` is not declared"))
                    })?),
                    Atom::FloorDiv(inner, divisor) => {
                        expr(inner, symbols)?.then(ExprOp::FloorDiv, Expr::constant(*divisor))
                    }
                };
            product = if i == 0 && term.coefficient == 1 { value } else { product.then(ExprOp::Mul, value) };
        }
        sum = Some(match sum {
            Some(before) => before.then(ExprOp::Add, product),
            None => product,
        });
    }
    Ok(sum.unwrap_or_else(|| Expr::constant(0)))
}

fn host_type(dtype: DType) -> format::HostType {
    match dtype {
        DType::F32 => format::HostType::F32,
        DType::F16 => format::HostType::F16,
        DType::Bf16 => format::HostType::Bf16,
        DType::F64 => format::HostType::F64,
        DType::I8 => format::HostType::I8,
        DType::I16 => format::HostType::I16,
        DType::I32 => format::HostType::I32,
        DType::I64 => format::HostType::I64,
        DType::U8 => format::HostType::U8,
        DType::U16 => format::HostType::U16,
        DType::U32 => format::HostType::U32,
        DType::U64 => format::HostType::U64,
        DType::Bool => format::HostType::Bool,
    }
}

pub(crate) fn device_type(device: DeviceType) -> format::DeviceType {
    match device {
        DeviceType::F32 => format::DeviceType::F32,
        DeviceType::F16 => format::DeviceType::F16,
        DeviceType::I32 => format::DeviceType::I32,
        DeviceType::U32 | DeviceType::Byte => format::DeviceType::U32,
    }
}
