//! `normalize.wgsl`: layer, root-mean-square, group and instance normalisation.
//!
//! Both operators normalise rows by their moments. A row of layer normalisation runs along the trailing axes; one of
//! group normalisation along the channels of a group and all spatial axes, with the channel axis cut in two.

use super::shares::{Params, Shares};
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{GroupNorm, LayerNorm, Op};
use crate::kernels::cost::named;
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::{Placement, Problem};
use crate::shader::rows::{Lanes, Rows, merge};
use crate::shader::{Class, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "normalize",
    wgsl: include_str!("normalize.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::named::<Params>("normalize")],
    in_place: InPlace::FirstAndEpilogue,
};

/// Registers for the elements of a row that an invocation keeps.
const KEEP: u32 = 4;

/// How the operand is walked.
struct Walk<'a> {
    /// The problem, with as few axes as it can have.
    problem: Problem<'a>,
    rows: Rows,
    centred: bool,
    epsilon: f32,
    /// For groups: the channel axis, which `rows` sees as two axes, and the channels of a group.
    groups: Option<(usize, Dim)>,
}

fn walk<'a>(problem: &Problem<'a>) -> Option<Walk<'a>> {
    match problem.op {
        Op::LayerNorm(op) => Some(layer_walk(op, problem)),
        Op::GroupNorm(op) => group_walk(op, problem),
        _ => None,
    }
}

fn layer_walk<'a>(op: &LayerNorm, problem: &Problem<'a>) -> Walk<'a> {
    let x = &problem.operands[0];
    let first = op.axis;
    let (problem, rows) = match merge(problem, &x.shape, |a| usize::from(a >= first)) {
        Some((merged, groups)) => {
            let along: Vec<usize> = (0..groups.len()).filter(|g| groups[*g][0] >= first).collect();
            let rows = Rows::new(&merged.operands[0], &along);
            (merged, rows)
        }
        None => {
            let along: Vec<usize> = (first..x.rank()).collect();
            (problem.clone(), Rows::new(x, &along))
        }
    };
    Walk { problem, rows, centred: !op.rms, epsilon: op.epsilon, groups: None }
}

fn group_walk<'a>(op: &GroupNorm, problem: &Problem<'a>) -> Option<Walk<'a>> {
    let groups = i64::try_from(op.groups).ok()?;
    let mut problem = problem.clone();
    // Scale and bias lie along the channels.
    let rest = problem.result.rank() - 2;
    for operand in problem.operands.iter_mut().take(problem.arity).skip(1) {
        let Placement::Strided { strides, .. } = &mut operand.placement else { return None };
        operand.shape.extend(vec![Dim::known(1); rest]);
        strides.extend(vec![Dim::known(0); rest]);
    }
    let shape = problem.result.shape.clone();
    let mut channel = 1;
    if !shape[1].is(1)
        && let Some((merged, axes)) = merge(&problem, &shape, |a| a.min(2))
    {
        channel = axes.iter().position(|a| a.contains(&1))?;
        problem = merged;
    }
    let x = &problem.operands[0];
    let per_group = x.shape[channel].floor_div(groups);
    let rows = Rows::grouped(x, channel, groups);
    Some(Walk { problem, rows, centred: true, epsilon: op.epsilon, groups: Some((channel, per_group)) })
}

impl Walk<'_> {
    /// Statements and coordinates of an element in the axes of the problem.
    fn at(&self, shader: &mut Shader<'_>) -> (String, Coordinates) {
        let (prelude, mut at) = self.rows.at(shader);
        let Some((channel, per_group)) = &self.groups else { return (prelude, at) };
        let inner = at.axes.remove(channel + 1);
        let group = &mut at.axes[*channel];
        let lane_inside = at.lanes == Some(channel + 1);
        if inner != "0u" {
            let size = shader.dim(&if lane_inside { per_group.ceil_div(4) } else { per_group.clone() });
            *group = if group == "0u" { inner } else { format!("({group} * {size} + {inner})") };
        }
        at.lanes = at.lanes.map(|l| if l > *channel { l - 1 } else { l });
        (prelude, at)
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(walk) = walk(problem) else { return Vec::new() };
    let Some(p) = named::<Params>(problem, KERNEL.name) else { return Vec::new() };
    let (problem, rows) = (&walk.problem, &walk.rows);
    let machine = &problem.target.machine;
    let room = machine.invocations() as i64;
    let (count, length) = (problem.max(&rows.rows()), problem.max(&rows.length()));
    let mut out = Vec::new();
    for shares in Shares::all(problem, rows, memory(rows)) {
        out.push(shares.candidate(&p, problem, rows, 2.0, KEEP));
        // Pieces long enough to be worth a launch, and few enough for the device and for being merged by everyone.
        let lanes = i64::from(shares.lanes);
        let most = (room / (count * lanes).max(1)).min(length / (lanes * i64::from(KEEP))).min(MOST_PIECES);
        if shares.lanes >= 64 && most >= 4 {
            let mut split = shares.pieces(&p, problem, rows, most as u32, KEEP);
            // The second launch reads the pieces again.
            split.cost += problem.traffic() as f64 / machine.bandwidth_gb_s.max(1e-3);
            split.knobs.push(("SPLIT", most as u32));
            out.push(split);
        }
    }
    out
}

/// Pieces of a row, whose moments every workgroup of the row merges one after the other.
const MOST_PIECES: i64 = 32;

/// Bytes of workgroup memory per invocation: three numbers, or a number and two vectors, aligned.
fn memory(rows: &Rows) -> u32 {
    if rows.lanes == Lanes::One { 12 } else { 48 }
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let walk = walk(problem).ok_or_else(|| OpError::new("not a normalisation"))?;
    let shares = Shares::of(candidate);
    let split = candidate.knob("SPLIT").max(1);
    let pieces = walk.rows.rows().scale(i64::from(split));
    let grid = || shares.grid(&walk.problem, &pieces);
    let elements = walk.problem.result.elements();
    if split == 1 {
        let mut shader = shader(&walk, shares);
        apply(&mut shader, &walk)?;
        return Ok(vec![shader.finish("normalize", KERNEL.wgsl, grid(), elements.scale(8))?]);
    }
    let [mut first, mut second] = [shader(&walk, shares), shader(&walk, shares)];
    for shader in [&mut first, &mut second] {
        shader.knob("SPLIT", split);
        shader.constant("HELD", false);
    }
    let scratch = first.scratch(pieces.scale(i64::from(memory(&walk.rows))));
    let buffer = first.bind(scratch, "Kept", true);
    first.constant("APPLIES", false);
    first.replace("scale", "fn scale(row: u32, i: u32) -> V { return V(1.0); }".into());
    first.replace("store", "fn store(row: u32, i: u32, v: V) {}".into());
    first.replace(
        "collect",
        format!(
            "fn collect(piece: u32, m: Moments) {{ {buffer}[piece] = Kept(m.count, m.mean, m.spread); }}"
        ),
    );
    let buffer = second.bind(scratch, "Kept", false);
    second.constant("COLLECTS", false);
    second.replace(
        "collected",
        format!(
            "fn collected(piece: u32) -> Moments {{\n    let kept = {buffer}[piece];\n    return Moments(kept.count, kept.mean, kept.spread);\n}}"
        ),
    );
    apply(&mut second, &walk)?;
    Ok(vec![
        first.finish("normalize", KERNEL.wgsl, grid(), elements.scale(4))?,
        second.finish("normalize", KERNEL.wgsl, grid(), elements.scale(4))?,
    ])
}

/// The kernel with its knobs and the hook that loads.
fn shader<'p>(walk: &'p Walk<'p>, shares: Shares) -> Shader<'p> {
    let rows = &walk.rows;
    let mut shader = Shader::new(&walk.problem);
    shares.knobs(&mut shader, &walk.problem, rows, KEEP);
    shader.constant("CENTRED", walk.centred);
    shader.number("epsilon", walk.epsilon);
    shader.alias("V", &Class::Float.wgsl(rows.lanes.count()));
    shader.workgroup_memory(shares.threads() * memory(rows));
    let (prelude, at) = walk.at(&mut shader);
    shader.read("load", PARAMS, &prelude, 0, &at);
    if matches!(rows.lanes, Lanes::Along(_)) {
        shader.replace("across", ACROSS.into());
    }
    shader
}

/// The hooks that scale and store.
fn apply(shader: &mut Shader<'_>, walk: &Walk<'_>) -> Result<(), OpError> {
    let (prelude, at) = walk.at(shader);
    shader.read_broadcast("scale", PARAMS, &prelude, 1, &at)?;
    if walk.problem.arity > 2 {
        shader.read_broadcast("bias", PARAMS, &prelude, 2, &at)?;
    }
    shader.write("store", PARAMS, &prelude, &at)
}

/// Of the hooks.
const PARAMS: &str = "row: u32, i: u32";

/// Every lane has seen as many elements, so their means count alike.
const ACROSS: &str = "fn across(m: Moments) -> Moments {
    let mean = V(dot(m.mean, V(0.25)));
    let gap = m.mean - mean;
    return Moments(m.count * 4.0, mean, V(dot(m.spread, V(1.0)) + dot(gap, gap) * m.count));
}";
