//! `recurrent.wgsl`: RNN, GRU and LSTM along a sequence, in one dispatch or a few.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::element::{Arg, Element, EpilogueStep, UnaryFn};
use crate::ir::op::{Op, Recurrent};
use crate::ir::ops::recurrent::Cell;
use crate::kernels::cost::{Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::window::{constant, fits};
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::PANELS;
use crate::shader::problem::Problem;
use crate::shader::{Bound, Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "recurrent",
    wgsl: include_str!("recurrent.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Most dispatches of one recurrence.
const DISPATCHES: i64 = 1024;

/// Sizes of a recurrence.
struct Sizes {
    steps: Dim,
    batch: Dim,
    directions: Dim,
    hidden: u32,
    gates: u32,
}

impl Sizes {
    fn of(op: &Recurrent, problem: &Problem<'_>) -> Option<Self> {
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

    /// Groups of four columns of the gates.
    fn columns(&self) -> u32 {
        self.gates.saturating_mul(self.hidden).div_ceil(4)
    }

    /// Bytes of workgroup memory.
    fn memory(&self, op: &Recurrent, rows: u32, split: u32) -> u32 {
        let states = self.hidden.div_ceil(4).saturating_mul(16 * sets(op));
        let sums = self.columns().saturating_mul(16).saturating_mul(split);
        states.saturating_add(sums).saturating_add(self.hidden.saturating_mul(4)).saturating_mul(rows)
    }
}

/// Steps that one dispatch goes through: as many as leave a quarter of the rounds that loops may take for what is not
/// counted here. A loop counts a round more than it goes on for, that in which it ends.
fn steps_at_once(op: &Recurrent, sizes: &Sizes, most: u32, [threads, rows, split]: [u32; 3]) -> u32 {
    let each = |n: u32| n.div_ceil(threads.max(1));
    let depth = sizes.hidden.div_ceil(4).div_ceil(split.max(1));
    let products =
        each(sizes.columns().saturating_mul(split)).saturating_mul(depth.saturating_add(2)).saturating_add(1);
    let units = each(sizes.hidden.saturating_mul(rows));
    let sums = units.saturating_mul(sizes.gates.saturating_mul(split));
    let both = products.saturating_add(units).saturating_add(1).saturating_mul(sets(op));
    let step = both.saturating_add(sums).saturating_add(1);
    ((most - most / 4) / step).max(1)
}

/// How many sets of states a workgroup holds.
fn sets(op: &Recurrent) -> u32 {
    if op.cell == (Cell::Gru { linear_before_reset: false }) { 2 } else { 1 }
}

/// Parameters of the estimate; waits in latencies of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Products per second of a workgroup, of what its share of the device could do.
    reached: f64,
    /// Wait for a load of four rows of weights.
    load: f64,
    /// Wait for what a unit reads between two barriers.
    unit: f64,
    /// Wait for each further sum of a unit.
    sum: f64,
}

impl Parameters for Params {
    const GROUP: &str = "recurrent";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Recurrent(op) = problem.op else { return Vec::new() };
    let Some(sizes) = Sizes::of(op, problem) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let (steps, batch) = (problem.max(&sizes.steps) as f64, problem.max(&sizes.batch));
    let directions = problem.max(&sizes.directions) as f64;
    let (hidden, columns) = (f64::from(sizes.hidden), sizes.columns());
    let twice = sets(op) > 1;
    let bytes = problem.operands.get(1).map_or(4, |o| o.dtype.on_device().bytes()) as f64;
    let mut out = Vec::new();
    for threads in [16u32, 32, 64, 128, 256, 512, 1024] {
        for split in [1u32, 2, 4, 8, 16] {
            for rows in [1u32, 2, 4, 8] {
                let memory = sizes.memory(op, rows, split);
                let fits = threads <= limits.max_workgroup_invocations
                    && threads <= limits.max_workgroup_size[0]
                    && memory <= limits.max_workgroup_memory;
                let lanes = columns.saturating_mul(split);
                let wasted = i64::from(rows) >= 2 * batch.max(1)
                    || split > 1 && (lanes > 2 * threads || split > sizes.hidden.div_ceil(4))
                    || threads > 16 && threads >= lanes.max(sizes.hidden) * 2;
                let at_once =
                    f64::from(steps_at_once(op, &sizes, limits.max_loop_iterations, [threads, rows, split]));
                let dispatches = (steps / at_once).ceil().max(1.0);
                if !fits || wasted || dispatches > DISPATCHES as f64 {
                    continue;
                }
                let groups = (batch as f64 / f64::from(rows)).ceil() * directions;
                let all = groups * f64::from(threads);
                let room = machine.invocations();
                let rounds = (all / room).ceil().max(1.0);
                // A workgroup stays on one unit, which has its share of the peak and of the cache.
                let unit = f64::from(machine.compute_units.max(1));
                let occupancy = (f64::from(threads) / f64::from(machine.invocations_per_unit)).min(1.0);
                let products = 8.0 * f64::from(columns) * hidden * f64::from(rows);
                let computing = products / (machine.peak.f32 / unit * p.reached * occupancy).max(1e-3);
                let reading = 4.0 * f64::from(columns) * hidden * bytes
                    / (machine.cache_bandwidth_gb_s / unit).max(1e-3);
                let turns = (f64::from(lanes) / f64::from(threads)).ceil();
                let depth = (hidden / 4.0 / f64::from(split)).ceil();
                let units = (hidden * f64::from(rows) / f64::from(threads)).ceil();
                let waits = turns * depth * p.load + units * (p.unit + f64::from(split - 1) * p.sum);
                let step = computing.max(reading) * rounds
                    + waiting(problem, all, waits)
                    + barriers(problem, all, if twice { 4.0 } else { 2.0 });
                out.push(Candidate {
                    knobs: vec![("THREADS", threads), ("ROWS", rows), ("SPLIT", split)],
                    cost: steps * step + dispatches * machine.launch_us * 1e3,
                    reason: format!(
                        "{groups} workgroups of {rows} sequences go through {steps} steps, {split} invocations on a column"
                    ),
                });
            }
        }
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Recurrent(op) = problem.op else { return Err(OpError::new("not a recurrence")) };
    let sizes = Sizes::of(op, problem).ok_or_else(|| OpError::new("the number of units must be known"))?;
    let knobs = ["THREADS", "ROWS", "SPLIT"].map(|name| candidate.knob(name));
    let most = problem.target.limits.max_loop_iterations;
    let at_once = i64::from(steps_at_once(op, &sizes, most, knobs));
    let count = (problem.max(&sizes.steps).saturating_sub(1) / at_once).clamp(0, DISPATCHES - 1) + 1;
    let mut handed = None;
    (0..count).map(|i| launch(problem, op, &sizes, candidate, [i, at_once, count], &mut handed)).collect()
}

/// Most columns of a panel of weights.
const PANEL: u32 = 64;

/// Constant weights of the state in panels of columns, each of which lies in the order in which invocations side by side
/// read it; and the vectors of four columns in a panel.
fn panels(problem: &Problem<'_>, sizes: &Sizes) -> Option<(Packed, u32)> {
    let operand = problem.operands.get(1)?;
    let columns = sizes.columns().saturating_mul(4).min(PANEL);
    let known = |d: &Dim| d.as_known().and_then(|d| usize::try_from(d).ok());
    let [directions, hidden, all] = operand.shape.as_slice() else { return None };
    let axes = [('B', known(directions)?), ('K', known(hidden)?), ('N', known(all)?)];
    let tiles = [('r', 1), ('n', usize::try_from(columns).ok()?)];
    let packed = PANELS.of(constant(problem, 1)?, &axes, &tiles, operand.dtype.on_device());
    fits(problem, &packed).then_some((packed, columns / 4))
}

/// Dispatch `i` of `count`, each of `at_once` steps; they share a buffer of states, which the first one makes.
fn launch(
    problem: &Problem<'_>,
    op: &Recurrent,
    sizes: &Sizes,
    candidate: &Candidate,
    [i, at_once, count]: [i64; 3],
    handed: &mut Option<Bound>,
) -> Result<Launch, OpError> {
    let [threads, rows, split] = ["THREADS", "ROWS", "SPLIT"].map(|name| candidate.knob(name));
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    shader.knob("HIDDEN", sizes.hidden);
    shader.knob("GATES", sizes.gates);
    shader.knob("STATES", u32::try_from(op.states).unwrap_or(0));
    shader.knob("SETS", sets(op));
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
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_string()).collect::<Vec<_>>();
    if op.lengths {
        let at = Coordinates::element(names(&["b"]));
        let list = shader.read_fn("listed", "b: u32", "", op.operands() - 1, &at, false);
        let class = Class::of(problem.operands[op.operands() - 1].dtype);
        let least = if class == Class::Int { "max(listed(b), 0i)" } else { "listed(b)" };
        let text = format!("fn length_of(b: u32) -> u32 {{ return min(u32({least}), steps()); }}");
        shader.replace("length_of", format!("{list}{text}"));
    }
    let reversed = match op.reverse.as_slice() {
        [a, b] if a != b => if *b { "d == 1u" } else { "d == 0u" }.to_string(),
        list => list.first().copied().unwrap_or(false).to_string(),
    };
    shader.replace("reversed", format!("fn reversed(d: u32) -> bool {{ return {reversed}; }}"));
    // Inputs' parts are read four at once, but where the product with the state is to be alone.
    if cell == 2 {
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
        let at = Coordinates::four(names(&["t", "b", "d", "n4"]), 3);
        shader.read("load_gates", "t: u32, b: u32, d: u32, n4: u32", "", 0, &at);
        let none = "fn load_gate(t: u32, b: u32, d: u32, n: u32) -> f32 { return 0.0; }";
        shader.replace("load_gate", none.into());
    }
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
            let at = Coordinates::four(names(&["d", "k", "n4"]), 2);
            shader.read("load_weights", params, "", 1, &at);
        }
    }
    for (i, name) in ["load_state", "load_kept"].into_iter().enumerate().take(op.cell.states()) {
        shader.read(
            name,
            "d: u32, b: u32, j: u32",
            "",
            2 + i,
            &Coordinates::element(names(&["d", "b", "j"])),
        );
    }
    if count > 1 {
        let ends = i + 1 == count;
        let each = sizes.directions.mul(&sizes.batch).scale(i64::from(sizes.hidden));
        let states = i64::try_from(op.cell.states()).unwrap_or(1);
        let bound = *handed.get_or_insert_with(|| shader.scratch(each.scale(4 * states)));
        let buffer = shader.bind(bound, "f32", true);
        let [batch, each] = [&sizes.batch, &each].map(|d| shader.dim(d));
        let at = |which: &str| format!("{buffer}[{which} * {each} + (d * {batch} + b) * HIDDEN + j]");
        if i > 0 {
            for (which, name) in ["load_state", "load_kept"].into_iter().enumerate().take(op.cell.states()) {
                let place = at(&format!("{which}u"));
                shader
                    .replace(name, format!("fn {name}(d: u32, b: u32, j: u32) -> f32 {{ return {place}; }}"));
            }
        }
        let place = at("which");
        let hand = format!("fn hand(which: u32, d: u32, b: u32, j: u32, v: f32) {{ {place} = v; }}");
        shader.replace("hand", hand);
        shader.constant("ENDS", ends);
        let first = i.saturating_mul(at_once);
        shader.size("first", &Dim::known(first));
        if !ends {
            let steps = shader.dim(&sizes.steps);
            let end = first.saturating_add(at_once);
            shader.replace("last", format!("fn last() -> u32 {{ return min({end}u, {steps}); }}"));
        }
    }
    if let Some(extra) = op.extra() {
        shader.read("load_extra", "d: u32, i: u32", "", extra, &Coordinates::element(names(&["d", "i"])));
    }
    functions(&mut shader, op)?;
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
    // The first dispatch counts for all.
    let flops = if i == 0 {
        sizes.steps.mul(&sizes.batch).mul(&sizes.directions).scale(products.saturating_mul(2))
    } else {
        Dim::known(0)
    };
    shader.finish("recurrent", KERNEL.wgsl, grid, flops)
}

/// Replaces the hooks of the functions, which may differ between directions.
fn functions(shader: &mut Shader<'_>, op: &Recurrent) -> Result<(), OpError> {
    let n = op.cell.functions();
    let nowhere = Coordinates::element(Vec::new());
    for i in 0..n {
        let mut text = String::new();
        for (d, f) in op.functions.iter().skip(i).step_by(n).enumerate().rev() {
            // What is shown of a cell state is not bounded.
            let clip = op.clip.filter(|_| i < 2).map(|c| UnaryFn::Clip { low: -c.abs(), high: c.abs() });
            let steps: Vec<EpilogueStep> = clip
                .into_iter()
                .chain([*f])
                .zip(0..)
                .map(|(f, at)| EpilogueStep { element: Element::Unary(f), args: vec![Arg::Step(at)] })
                .collect();
            let start = Some(("x".to_string(), Class::Float));
            let (statements, value, _) = shader.epilogue_text(&steps, start, &nowhere, 1, false)?;
            let body = format!("{statements}    return {value};\n");
            text += &if d == 0 { body } else { format!("    if (d == {d}u) {{\n{body}    }}\n") };
        }
        let name = format!("function{i}");
        shader.replace(&name, format!("fn {name}(d: u32, x: f32) -> f32 {{\n{text}}}\n"));
    }
    Ok(())
}
