//! `scatter_list.wgsl`: scatter with a linked list for each position of the result. The list holds the entries (indices
//! with updates) that select the position.

use serde::Deserialize;

use super::scatter;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Combine, Op};
use crate::kernels::cost::{Estimate, Parameters, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::access::Coordinates;
use crate::shader::element_walk::split_index;
use crate::shader::problem::Problem;
use crate::shader::row_view::RowView;
use crate::shader::{Bound, Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "scatter_list",
    wgsl: include_str!("scatter_list.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters of the kernel `scatter_list`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Time to insert an entry into a list, in memory latencies.
    entry_latencies: f64,
    /// Time to compute a vec4 or an element of the result from its list, in memory latencies.
    output_latencies: f64,
}

impl Parameters for Params {
    const GROUP: &str = "scatter_list";
}

/// Axes of a scatter. A position is an element or a slice of the tensor that one index selects.
struct Scatter {
    /// The result as rows of elements or vec4s.
    rows: RowView,
    /// Sizes of the axes of the tensor along which indices select positions: its first axes.
    positions: Vec<Dim>,
    /// Sizes of the axes of the entries (indices with updates).
    entries: Vec<Dim>,
    combine: Combine,
}

fn scatter(problem: &Problem<'_>) -> Option<Scatter> {
    let shape = &problem.result.shape;
    let rows = scatter::rows(problem)?;
    let indices = problem.operands.get(1)?;
    let (positions, entries, combine) = match problem.op {
        Op::ScatterElements(op) => (shape.clone(), indices.shape.clone(), op.combine),
        Op::ScatterNd(op) => {
            let (last, entries) = indices.shape.split_last()?;
            let tuple = usize::try_from(last.as_known()?).ok()?;
            (shape.get(..tuple)?.to_vec(), entries.to_vec(), op.combine)
        }
        _ => return None,
    };
    Some(Scatter { rows, positions, entries, combine })
}

impl Scatter {
    /// True if a list holds all entries of its position, false if it holds only the last entry.
    fn keeps_all_entries(&self) -> bool {
        self.combine != Combine::Replace
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(scatter) = scatter(problem) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let machine = &problem.target.machine;
    let [positions, entries] =
        [&scatter.positions, &scatter.entries].map(|axes| problem.max(&product(axes)) as f64);
    let units = problem.max(&scatter.rows.rows()) as f64;
    // Passes over heads (written twice, read once or twice), links and entries, and the number of launches.
    let (passes, stages) = if scatter.keeps_all_entries() { (5.0, 4.0) } else { (3.0, 3.0) };
    let list_bytes = 4.0 * passes * (positions + entries);
    let estimate = Estimate {
        memory: (problem.traffic() as f64 + list_bytes) / machine.bandwidth_gb_s.max(1e-3),
        latency: waiting(problem, entries, p.entry_latencies) + waiting(problem, units, p.output_latencies),
        ..Estimate::for_dispatches(problem, stages)
    };
    let reason = format!(
        "{entries} indices with updates in lists of {positions} result positions, in {stages} dispatches"
    );
    vec![Candidate::new(&ThreadsConfig { threads: problem.threads() }, estimate, reason)]
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let wrong = || OpError::new("the operator is not a scatter");
    let scatter = scatter(problem).ok_or_else(wrong)?;
    let ThreadsConfig { threads } = config;
    let [positions, entries] = [&scatter.positions, &scatter.entries].map(product);
    let mut first = Shader::new(problem);
    let heads = first.scratch(positions.scale(4));
    let links = scatter.keeps_all_entries().then(|| first.scratch(entries.scale(4)));
    let finish = |mut shader: Shader<'_>, over: &Dim, stage: &str| {
        config.declare(&mut shader);
        shader.replace("run_stage", format!("fn run_stage(i: u32) {{ {stage}(i); }}\n"));
        shader.size("positions", &positions);
        shader.size("entries", &entries);
        shader.size("units", &scatter.rows.rows());
        let grid = Grid::linear(over, threads, problem.bounds);
        shader.finish("scatter_list", KERNEL.wgsl, grid, over.clone())
    };
    bind_heads(&mut first, heads, true);
    let mut out = vec![finish(first, &positions, "clear_list")];

    let mut enter = Shader::new(problem);
    let buffer = enter.bind(heads, "atomic<u32>", true);
    let atomic = if scatter.keeps_all_entries() { "atomicExchange" } else { "atomicMax" };
    enter.replace(
        "prepend",
        format!("fn prepend(position: u32, entry: u32) -> u32 {{ return {atomic}(&{buffer}[position], entry); }}\n"),
    );
    bind_links(&mut enter, links, true);
    declare_targets(&mut enter, problem, &scatter)?;
    out.push(finish(enter, &entries, "insert_entry"));

    if links.is_some() {
        let mut sort = Shader::new(problem);
        bind_heads(&mut sort, heads, true);
        bind_links(&mut sort, links, true);
        out.push(finish(sort, &positions, "sort"));
    }

    let mut gather = Shader::new(problem);
    bind_heads(&mut gather, heads, false);
    bind_links(&mut gather, links, false);
    declare_result(&mut gather, problem, &scatter)?;
    out.push(finish(gather, &scatter.rows.rows(), "combine_list"));
    Ok(out)
}

/// Declares the hooks that read and write the first entry (head) of a position's list.
fn bind_heads(shader: &mut Shader<'_>, heads: Bound, writable: bool) {
    let buffer = shader.bind(heads, "u32", writable);
    shader.replace("head", format!("fn head(position: u32) -> u32 {{ return {buffer}[position]; }}\n"));
    let text = if writable { format!("{buffer}[position] = entry;") } else { String::new() };
    shader.replace("set_head", format!("fn set_head(position: u32, entry: u32) {{ {text} }}\n"));
}

/// Declares the hooks that read and write the next entry of a list. Without the buffer `links`, each list has at most
/// one entry.
fn bind_links(shader: &mut Shader<'_>, links: Option<Bound>, writable: bool) {
    let (mut read, mut write) = ("0u".to_string(), String::new());
    if let Some(links) = links {
        let buffer = shader.bind(links, "u32", writable);
        read = format!("{buffer}[entry - 1u]");
        if writable {
            write = format!("{read} = to;");
        }
    }
    shader.replace("next", format!("fn next(entry: u32) -> u32 {{ return {read}; }}\n"));
    shader.replace("set_next", format!("fn set_next(entry: u32, to: u32) {{ {write} }}\n"));
}

/// Returns a WGSL expression for the flat row-major index of coordinates, such as `((a * size + b) * size + c)`.
fn flat_index(shader: &mut Shader<'_>, sizes: &[Dim], coordinates: &[String]) -> String {
    let mut text = String::new();
    for (size, coordinate) in sizes.iter().zip(coordinates) {
        let size = shader.dim(size);
        text =
            if text.is_empty() { coordinate.clone() } else { format!("(({text}) * {size} + {coordinate})") };
    }
    if text.is_empty() { "0u".into() } else { text }
}

/// Declares the hooks that compute the position which an entry (an index with its update) selects.
fn declare_targets(shader: &mut Shader<'_>, problem: &Problem<'_>, scatter: &Scatter) -> Result<(), OpError> {
    let order: Vec<usize> = (0..scatter.entries.len()).rev().collect();
    let (prelude, entry) = split_index(shader, &scatter.entries, &order, "entry");
    shader.alias("Index", ValueType::from_dtype(problem.operands[1].dtype).scalar());
    let (mut at, mut position, mut body, mut inside) = (entry.clone(), entry, String::new(), Vec::new());
    let mut part = |shader: &mut Shader<'_>, part: usize, axis: usize| {
        let size = shader.dim(&problem.result.shape[axis]);
        body += &format!("    let at_{axis} = wrap(load_index(entry, {part}u), {size});\n");
        inside.push(format!("at_{axis} < {size}"));
        format!("at_{axis}")
    };
    match problem.op {
        Op::ScatterElements(op) => position[op.axis] = part(shader, 0, op.axis),
        _ => {
            position = (0..scatter.positions.len()).map(|axis| part(shader, axis, axis)).collect();
            at.push("part".into());
        }
    }
    shader.read("load_index", "entry: u32, part: u32", &prelude, 1, &Coordinates::element(at));
    let position = flat_index(shader, &scatter.positions, &position);
    let inside = if inside.is_empty() { "true".into() } else { inside.join(" && ") };
    shader.replace(
        "target_of",
        format!(
            "fn target_of(entry: u32) -> u32 {{\n{prelude}{body}    return select(positions(), {position}, {inside});\n}}\n"
        ),
    );
    Ok(())
}

/// Declares the hooks that compute an element of the result. Every position of the result has a list of the entries that
/// contribute to it.
fn declare_result(shader: &mut Shader<'_>, problem: &Problem<'_>, scatter: &Scatter) -> Result<(), OpError> {
    shader.alias("V", &ValueType::from_dtype(problem.computed).wgsl(scatter.rows.lanes.count()));
    let (prelude, at) = scatter.rows.unit(shader);
    shader.read("load", "unit: u32", &prelude, 0, &at);
    shader.write("store", "unit: u32", &prelude, &at)?;
    let position = flat_index(shader, &scatter.positions, &at.axes);
    shader.replace(
        "position",
        format!("fn position(unit: u32) -> u32 {{\n{prelude}    return {position};\n}}\n"),
    );
    let order: Vec<usize> = (0..scatter.entries.len()).rev().collect();
    let (split, entry) = split_index(shader, &scatter.entries, &order, "entry");
    // An update has the axes of the entries, followed by the axes of the tensor after the position.
    let tuple = scatter.positions.len();
    let lanes = at.lanes.map(|lane| lane + entry.len() - tuple);
    let axes = match problem.op {
        Op::ScatterElements(_) => entry,
        _ => entry.into_iter().chain(at.axes.iter().skip(tuple).cloned()).collect(),
    };
    let update = Coordinates { axes, lanes, pixel: None, vec4_index: None };
    shader.read("update", "unit: u32, entry: u32", &format!("{prelude}{split}"), 2, &update);
    shader.replace("combine", scatter::combine(scatter.combine));
    Ok(())
}
