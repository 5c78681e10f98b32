//! `recurrent.wgsl`: RNN, GRU and LSTM along sequences, in one or several dispatches.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::element::{Arg, Element, EpilogueStep, UnaryFn};
use crate::ir::op::{Op, Recurrent};
use crate::ir::ops::recurrent::Cell;
use crate::kernels::cost::{Estimate, Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{constant, fits};
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::PANELS;
use crate::shader::problem::Problem;
use crate::shader::{Bound, Grid, LaunchDraft, Need, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "recurrent",
    wgsl: include_str!("recurrent.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

config! {
    /// Configuration of the kernel `recurrent`.
    struct Config {
        /// Invocations per workgroup.
        THREADS => threads: u32,
        /// Sequences per workgroup.
        ROWS => rows: u32,
        /// Number of invocations among which the sum over the hidden units is split, for each vec4 of weight columns.
        SPLIT => split: u32,
        /// Number of invocations of a subgroup that exchange the states they load. Absent if each invocation loads all
        /// states.
        LANES => lanes: Option<u32>,
    }
}

/// Maximum number of dispatches for one recurrent node.
const MAX_DISPATCHES: i64 = 1024;

/// Sizes of a recurrent node: steps, batch, directions, hidden units, gates per hidden unit.
struct Sizes {
    steps: Dim,
    batch: Dim,
    directions: Dim,
    hidden: u32,
    gates: u32,
}

impl Sizes {
    /// Returns the sizes of a recurrent node, or `None` if the number of hidden units is symbolic.
    fn from_problem(op: &Recurrent, problem: &Problem<'_>) -> Option<Self> {
        let [steps, batch, directions, _] = problem.operands.first()?.shape.as_slice() else { return None };
        let hidden = problem.result.shape.get(3)?.as_known()?;
        Some(Self {
            steps: steps.clone(),
            batch: batch.clone(),
            directions: directions.clone(),
            hidden: u32::try_from(hidden).ok()?,
            gates: u32::try_from(op.cell.gates()).ok()?,
        })
    }

    /// Returns the number of columns of the recurrent weights of one direction, over all gates, in vec4s.
    fn columns(&self) -> u32 {
        self.gates.saturating_mul(self.hidden).div_ceil(4)
    }

    /// Returns the number of hidden units in vec4s.
    fn depth(&self) -> u32 {
        self.hidden.div_ceil(4)
    }

    /// Returns the workgroup memory of the kernel `recurrent`, in bytes.
    fn memory(&self, op: &Recurrent, rows: u32, split: u32) -> u32 {
        let states = self.depth().saturating_mul(16 * state_sets(op));
        let sums = self.columns().saturating_mul(16).saturating_mul(split);
        states.saturating_add(sums).saturating_add(self.hidden.saturating_mul(4)).saturating_mul(rows)
    }
}

/// Returns the maximum number of sequence steps per dispatch on a device that limits loop iterations. The steps use
/// three quarters of the limit; the rest is for loops that are not counted here. A loop of n iterations counts as n + 1.
fn steps_per_dispatch(op: &Recurrent, sizes: &Sizes, max_iterations: u32, config: Config) -> u32 {
    let Config { threads, rows, split, lanes } = config;
    let each = |n: u32| n.div_ceil(threads.max(1));
    let depth = match lanes {
        None => sizes.depth().div_ceil(split.max(1)),
        Some(lanes) => sizes.depth() / lanes.max(1) + sizes.depth() % lanes.max(1),
    };
    let products =
        each(sizes.columns().saturating_mul(split)).saturating_mul(depth.saturating_add(2)).saturating_add(1);
    let units = each(sizes.hidden.saturating_mul(rows));
    let sums = units.saturating_mul(sizes.gates.saturating_mul(split));
    let both = products.saturating_add(units).saturating_add(1).saturating_mul(state_sets(op));
    let step = both.saturating_add(sums).saturating_add(1);
    ((max_iterations - max_iterations / 4) / step).max(1)
}

/// Returns the number of sets of states in workgroup memory: 2 for a GRU that resets the state before the matmul, else 1.
fn state_sets(op: &Recurrent) -> u32 {
    if op.cell == (Cell::Gru { linear_before_reset: false }) { 2 } else { 1 }
}

/// Cost parameters of the kernel `recurrent`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Time for an invocation to load four vec4s of the recurrent weights, one from each of four rows, in memory
    /// latencies.
    load_latencies: f64,
    /// Arithmetic throughput of a workgroup relative to the f32 peak of one compute unit. May exceed 1.
    unit_peak_ratio: f64,
    /// Time to add each further partial sum of a hidden unit after the first, in memory latencies.
    extra_sum_latencies: f64,
    /// Time of the reads of an invocation that computes a hidden unit from the sums of its gates, in memory latencies.
    hidden_unit_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "recurrent";
}

/// Returns the time of the multiplications relative to a kernel in which every invocation loads all states. Four vec4
/// multiply-adds need one vec4 of states. A subgroup that exchanges states loads it once and broadcasts it.
fn state_read_ratio(problem: &Problem<'_>, lanes: Option<u32>) -> f64 {
    let machine = &problem.target.machine;
    let (loaded, shuffled) = (machine.uniform_read_fmas, machine.shuffle_fmas);
    let read = lanes.map_or(loaded, |lanes| loaded / f64::from(lanes) + shuffled);
    (4.0 + read) / (4.0 + loaded)
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Recurrent(op) = problem.op else { return Vec::new() };
    let Some(sizes) = Sizes::from_problem(op, problem) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let (steps, batch) = (problem.max(&sizes.steps) as f64, problem.max(&sizes.batch));
    let directions = problem.max(&sizes.directions) as f64;
    let (hidden, columns) = (f64::from(sizes.hidden), sizes.columns());
    let two_matmuls = state_sets(op) > 1;
    let bytes = problem.operands.get(1).map_or(4, |o| o.dtype.on_device().bytes()) as f64;
    // A subgroup exchanges states only with a split of 1, because its invocations then need equal states.
    let exchange = problem.target.shuffling_subgroup().filter(|lanes| (2..=sizes.depth()).contains(lanes));
    let layouts =
        [1u32, 2, 4, 8, 16].map(|split| (split, None)).into_iter().chain(exchange.map(|l| (1, Some(l))));
    let layouts: Vec<(u32, Option<u32>)> = layouts.collect();
    let mut out = Vec::new();
    for threads in [16u32, 32, 64, 128, 256, 512, 1024] {
        for &(split, shared) in &layouts {
            for rows in [1u32, 2, 4, 8] {
                let memory = sizes.memory(op, rows, split);
                let fits = threads <= limits.max_workgroup_invocations
                    && threads <= limits.max_workgroup_size[0]
                    && memory <= limits.max_workgroup_memory;
                let lanes = columns.saturating_mul(split);
                let wasted = i64::from(rows) >= 2 * batch.max(1)
                    || shared.is_some_and(|l| {
                        !threads.is_multiple_of(l) || threads / l > limits.max_workgroup_subgroups
                    })
                    || split > 1 && (lanes > 2 * threads || split > sizes.depth())
                    || threads > 16 && threads >= lanes.max(sizes.hidden) * 2;
                let config = Config { threads, rows, split, lanes: shared };
                let dispatch_steps =
                    f64::from(steps_per_dispatch(op, &sizes, limits.max_loop_iterations, config));
                let dispatches = (steps / dispatch_steps).ceil().max(1.0);
                if !fits || wasted || dispatches > MAX_DISPATCHES as f64 {
                    continue;
                }
                let groups = (batch as f64 / f64::from(rows)).ceil() * directions;
                let all = groups * f64::from(threads);
                let rounds = machine.rounds(all);
                // A workgroup runs on one compute unit, which has its fraction of the peak and of the cache bandwidth.
                let compute_units = f64::from(machine.compute_units.max(1));
                let occupancy = (f64::from(threads) / f64::from(machine.invocations_per_unit)).min(1.0);
                let products = 8.0 * f64::from(columns) * hidden * f64::from(rows);
                let peak = machine.peak.f32 / compute_units * p.unit_peak_ratio * occupancy;
                let computing = products / peak.max(1e-3) * state_read_ratio(problem, shared);
                let reading = 4.0 * f64::from(columns) * hidden * bytes
                    / (machine.cache_bandwidth_gb_s / compute_units).max(1e-3);
                let rounds_per_step = (f64::from(lanes) / f64::from(threads)).ceil();
                let depth = (hidden / 4.0 / f64::from(split)).ceil();
                let units = (hidden * f64::from(rows) / f64::from(threads)).ceil();
                let latencies = rounds_per_step * depth * p.load_latencies
                    + units * (p.hidden_unit_latencies + f64::from(split - 1) * p.extra_sum_latencies);
                let step = computing.max(reading) * rounds
                    + waiting(problem, all, latencies)
                    + barriers(problem, all, if two_matmuls { 4.0 } else { 2.0 });
                // Every step needs the states of the step before.
                let estimate =
                    Estimate { latency: steps * step, ..Estimate::for_dispatches(problem, dispatches) };
                let reason = format!(
                    "{groups} workgroups of {rows} sequences, {steps} steps, {split} invocations per weight \
                     column, states loaded by {} invocations",
                    shared.unwrap_or(1)
                );
                out.push(Candidate::new(&config, estimate, reason));
            }
        }
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Recurrent(op) = problem.op else { return Err(OpError::new("the operator is not a recurrence")) };
    let sizes = Sizes::from_problem(op, problem)
        .ok_or_else(|| OpError::new("the number of hidden units is symbolic; it must be known"))?;
    let max_iterations = problem.target.limits.max_loop_iterations;
    let dispatch_steps = i64::from(steps_per_dispatch(op, &sizes, max_iterations, config));
    let count =
        (problem.max(&sizes.steps).saturating_sub(1) / dispatch_steps).clamp(0, MAX_DISPATCHES - 1) + 1;
    let mut carried = None;
    (0..count)
        .map(|i| launch(problem, op, &sizes, config, [i, dispatch_steps, count], &mut carried))
        .collect()
}

/// Maximum columns per panel (block of columns) of recurrent weights.
const MAX_PANEL_COLUMNS: u32 = 64;

/// Packs constant recurrent weights into panels (blocks of columns), and returns them with the number of vec4s of
/// columns per panel. A panel is stored in the order in which neighboring invocations read it.
fn panels(problem: &Problem<'_>, sizes: &Sizes) -> Option<(Packed, u32)> {
    let operand = problem.operands.get(1)?;
    let columns = sizes.columns().saturating_mul(4).min(MAX_PANEL_COLUMNS);
    let known = |d: &Dim| d.as_known().and_then(|d| usize::try_from(d).ok());
    let [directions, hidden, all] = operand.shape.as_slice() else { return None };
    let axes = [('B', known(directions)?), ('K', known(hidden)?), ('N', known(all)?)];
    let tiles = [('r', 1), ('n', usize::try_from(columns).ok()?)];
    let packed = PANELS.packed(constant(problem, 1)?, &axes, &tiles, operand.dtype.on_device());
    fits(problem, &packed).then_some((packed, columns / 4))
}

/// Returns dispatch `i` of the `count` dispatches of a recurrent node, each with `dispatch_steps` sequence steps. All
/// dispatches pass their states on in one buffer.
fn launch(
    problem: &Problem<'_>,
    op: &Recurrent,
    sizes: &Sizes,
    config: Config,
    [i, dispatch_steps, count]: [i64; 3],
    carried: &mut Option<Bound>,
) -> Result<LaunchDraft, OpError> {
    let Config { threads, rows, split, lanes } = config;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    if let Some(lanes) = lanes {
        declare_exchange(&mut shader, sizes, lanes);
    }
    shader.knob("HIDDEN", sizes.hidden);
    shader.knob("GATES", sizes.gates);
    shader.knob("OUTPUT_STATES", u32::try_from(op.states).unwrap_or(0));
    shader.knob("STATE_SETS", state_sets(op));
    declare_cell(&mut shader, op, sizes);
    // Products of the input are loaded in vec4s, except where the product of the state is needed on its own.
    if matches!(op.cell, Cell::Gru { linear_before_reset: true }) {
        shader.read(
            "load_gate",
            "t: u32, b: u32, d: u32, n: u32",
            "",
            0,
            &Coordinates::element(names(&["t", "b", "d", "n"])),
        );
        let none = "fn load_gates(t: u32, b: u32, d: u32, n4: u32) -> vec4<f32> { return vec4<f32>(0.0); }";
        shader.replace("load_gates", none.into());
    } else {
        let at = Coordinates::vec4(names(&["t", "b", "d", "n4"]), 3);
        shader.read("load_gates", "t: u32, b: u32, d: u32, n4: u32", "", 0, &at);
        let none = "fn load_gate(t: u32, b: u32, d: u32, n: u32) -> f32 { return 0.0; }";
        shader.replace("load_gate", none.into());
    }
    declare_weights(&mut shader, sizes);
    for (i, name) in ["load_state", "load_cell_state"].into_iter().enumerate().take(op.cell.states()) {
        shader.read(
            name,
            "d: u32, b: u32, j: u32",
            "",
            2 + i,
            &Coordinates::element(names(&["d", "b", "j"])),
        );
    }
    if count > 1 {
        declare_carried_states(&mut shader, op, sizes, [i, dispatch_steps, count], carried);
    }
    if let Some(extra) = op.extra_weights() {
        shader.read("load_extra", "d: u32, i: u32", "", extra, &Coordinates::element(names(&["d", "i"])));
    }
    declare_functions(&mut shader, op)?;
    shader.write(
        "store",
        "t: u32, d: u32, b: u32, j: u32",
        "",
        &Coordinates::element(names(&["t", "d", "b", "j"])),
    )?;
    shader.workgroup_memory(sizes.memory(op, rows, split));
    let grid = Grid {
        groups: [sizes.batch.ceil_div(i64::from(rows)), sizes.directions.clone(), Dim::known(1)],
        workgroup: [threads, 1, 1],
    };
    let products = i64::from(sizes.gates) * i64::from(sizes.hidden) * i64::from(sizes.hidden);
    // The first dispatch counts the operations of all dispatches.
    let flops = if i == 0 {
        sizes.steps.mul(&sizes.batch).mul(&sizes.directions).scale(products.saturating_mul(2))
    } else {
        Dim::known(0)
    };
    let mut launch = shader.finish("recurrent", KERNEL.wgsl, grid, flops);
    launch.subgroup_size = lanes;
    Ok(launch)
}

/// Declares the hooks with which the invocations of a subgroup exchange states. The index of an invocation follows from
/// the index of its subgroup, because Vulkan does not have to order subgroups by `local_invocation_index`.
fn declare_exchange(shader: &mut Shader<'_>, sizes: &Sizes, lanes: u32) {
    shader.needs(&[Need::Subgroups, Need::SubgroupShuffle]);
    shader.knob("EXCHANGED", sizes.depth() / lanes * lanes);
    let state = "fn state_of(own: vec4<f32>, i: u32) -> vec4<f32> { return subgroupShuffle(own, i); }";
    shader.replace("state_of", state.into());
    shader.replace(
        "main",
        format!(
            "@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {{
    run(group, subgroup * {lanes}u + lane);
}}"
        ),
    );
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|n| (*n).to_string()).collect()
}

/// Declares the kind of cell, the sizes, and the hooks that return the length and the direction of a sequence.
fn declare_cell(shader: &mut Shader<'_>, op: &Recurrent, sizes: &Sizes) {
    let (cell, peepholes, coupled) = match op.cell {
        Cell::Rnn => (0, false, false),
        Cell::Gru { linear_before_reset: false } => (1, false, false),
        Cell::Gru { linear_before_reset: true } => (2, false, false),
        Cell::Lstm { peepholes, coupled } => (3, peepholes, coupled),
    };
    shader.knob("CELL", cell);
    shader.constant("PEEPHOLES", peepholes);
    shader.constant("COUPLED", coupled);
    shader.size("steps", &sizes.steps);
    shader.size("batch", &sizes.batch);
    if op.lengths {
        let at = Coordinates::element(names(&["b"]));
        let list = shader.read_fn("listed", "b: u32", "", op.operand_count() - 1, &at, false);
        let class = ValueType::from_dtype(shader.problem.operands[op.operand_count() - 1].dtype);
        let length = if class == ValueType::Int { "max(listed(b), 0i)" } else { "listed(b)" };
        let text = format!("fn length_of(b: u32) -> u32 {{ return min(u32({length}), steps()); }}");
        shader.replace("length_of", format!("{list}{text}"));
    }
    let reversed = match op.reverse.as_slice() {
        [a, b] if a != b => if *b { "d == 1u" } else { "d == 0u" }.to_string(),
        list => list.first().copied().unwrap_or(false).to_string(),
    };
    shader.replace("reversed", format!("fn reversed(d: u32) -> bool {{ return {reversed}; }}"));
}

/// Declares the hook `load_weights`, which reads the recurrent weights.
fn declare_weights(shader: &mut Shader<'_>, sizes: &Sizes) {
    let problem = shader.problem;
    let params = "d: u32, k: u32, n4: u32";
    match panels(problem, sizes) {
        Some((packed, width)) => {
            let panels = sizes.columns().div_ceil(width);
            let index =
                format!("(((d * {panels}u + n4 / {width}u) * HIDDEN + k) * {width}u + n4 % {width}u)");
            let storage = problem.target.prefer.storage.recurrent_weights;
            let vector = shader.packed_vector_in(packed, &index, storage);
            let text = format!("fn load_weights({params}) -> vec4<f32> {{ return vec4<f32>({vector}); }}");
            shader.replace("load_weights", text);
        }
        None => {
            let at = Coordinates::vec4(names(&["d", "k", "n4"]), 2);
            shader.read("load_weights", params, "", 1, &at);
        }
    }
}

/// Declares the hooks that read the states of the previous dispatch and store them for the next dispatch.
fn declare_carried_states(
    shader: &mut Shader<'_>,
    op: &Recurrent,
    sizes: &Sizes,
    [i, dispatch_steps, count]: [i64; 3],
    carried: &mut Option<Bound>,
) {
    let is_last = i + 1 == count;
    let each = sizes.directions.mul(&sizes.batch).scale(i64::from(sizes.hidden));
    let states = i64::try_from(op.cell.states()).unwrap_or(1);
    let bound = *carried.get_or_insert_with(|| shader.scratch(each.scale(4 * states)));
    let buffer = shader.bind(bound, "f32", true);
    let [batch, each] = [&sizes.batch, &each].map(|d| shader.dim(d));
    let at = |which: &str| format!("{buffer}[{which} * {each} + (d * {batch} + b) * HIDDEN + j]");
    if i > 0 {
        for (which, name) in ["load_state", "load_cell_state"].into_iter().enumerate().take(op.cell.states())
        {
            let element = at(&format!("{which}u"));
            shader.replace(name, format!("fn {name}(d: u32, b: u32, j: u32) -> f32 {{ return {element}; }}"));
        }
    }
    let element = at("which");
    let store_carried =
        format!("fn store_carried(which: u32, d: u32, b: u32, j: u32, v: f32) {{ {element} = v; }}");
    shader.replace("store_carried", store_carried);
    shader.constant("LAST_DISPATCH", is_last);
    let first = i.saturating_mul(dispatch_steps);
    shader.size("first", &Dim::known(first));
    if !is_last {
        let steps = shader.dim(&sizes.steps);
        let end = first.saturating_add(dispatch_steps);
        shader.replace("last", format!("fn last() -> u32 {{ return min({end}u, {steps}); }}"));
    }
}

/// Declares the hooks that compute the activation functions of the cell. The two directions may have different
/// functions.
fn declare_functions(shader: &mut Shader<'_>, op: &Recurrent) -> Result<(), OpError> {
    let n = op.cell.functions();
    let nowhere = Coordinates::element(Vec::new());
    for i in 0..n {
        let mut text = String::new();
        for (d, f) in op.functions.iter().skip(i).step_by(n).enumerate().rev() {
            // The activation of the cell state (the third function) is not clipped.
            let clip = op.clip.filter(|_| i < 2).map(|c| UnaryFn::Clip { low: -c.abs(), high: c.abs() });
            let steps: Vec<EpilogueStep> = clip
                .into_iter()
                .chain([*f])
                .zip(0..)
                .map(|(f, at)| EpilogueStep { element: Element::Unary(f), args: vec![Arg::Step(at)] })
                .collect();
            let start = Some(("x".to_string(), ValueType::Float));
            let (statements, value, _) = shader.epilogue_statements(&steps, start, &nowhere, 1, false)?;
            let body = format!("{statements}    return {value};\n");
            text += &if d == 0 { body } else { format!("    if (d == {d}u) {{\n{body}    }}\n") };
        }
        let name = format!("function{i}");
        shader.replace(&name, format!("fn {name}(d: u32, x: f32) -> f32 {{\n{text}}}\n"));
    }
    Ok(())
}
