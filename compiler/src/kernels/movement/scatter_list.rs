//! `scatter_list.wgsl`: updates combined into a copy of a tensor by way of a list of entries for each place.

use serde::Deserialize;

use super::scatter;
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Combine, Op};
use crate::kernels::cost::{Parameters, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::rows::Rows;
use crate::shader::walk::decompose;
use crate::shader::{Bound, Class, Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "scatter_list",
    wgsl: include_str!("scatter_list.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Nothing,
};

/// Loads one after the other that are waited for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Of an entry that is put into a list.
    entry: f64,
    /// Of a unit that looks into one.
    unit: f64,
}

impl Parameters for Params {
    const GROUP: &str = "scatter_list";
}

/// A scatter by places: what an index names, a slice of the tensor.
struct Scatter {
    /// The walk over the result.
    rows: Rows,
    /// Axes that a place is on, the first of the tensor's, and those that number the entries.
    places: Vec<Dim>,
    entries: Vec<Dim>,
    combine: Combine,
}

fn scatter(problem: &Problem<'_>) -> Option<Scatter> {
    let shape = &problem.result.shape;
    let rows = scatter::rows(problem)?;
    let indices = problem.operands.get(1)?;
    let (places, entries, combine) = match problem.op {
        Op::ScatterElements(op) => (shape.clone(), indices.shape.clone(), op.combine),
        Op::ScatterNd(op) => {
            let (last, entries) = indices.shape.split_last()?;
            let tuple = usize::try_from(last.as_known()?).ok()?;
            (shape.get(..tuple)?.to_vec(), entries.to_vec(), op.combine)
        }
        _ => return None,
    };
    Some(Scatter { rows, places, entries, combine })
}

impl Scatter {
    /// Whether lists hold every entry of their place, rather than the last one alone.
    fn lists(&self) -> bool {
        self.combine != Combine::Replace
    }
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(scatter) = scatter(problem) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    let machine = &problem.target.machine;
    let [places, entries] =
        [&scatter.places, &scatter.entries].map(|axes| problem.max(&product(axes)) as f64);
    let units = problem.max(&scatter.rows.rows()) as f64;
    // Heads are written twice and read once or twice, links half as often; entries are read one by one.
    let (passes, stages) = if scatter.lists() { (5.0, 4.0) } else { (3.0, 3.0) };
    let own = 4.0 * passes * (places + entries);
    let moving = (problem.traffic() as f64 + own) / machine.bandwidth_gb_s.max(1e-3);
    let chased = waiting(problem, entries, p.entry) + waiting(problem, units, p.unit);
    vec![Candidate {
        knobs: vec![("THREADS", problem.threads())],
        cost: moving.max(chased) + stages * machine.launch_us * 1e3,
        reason: format!("{entries} entries in lists of {places} places, in {stages} dispatches"),
    }]
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let wrong = || OpError::new("not a scatter");
    let scatter = scatter(problem).ok_or_else(wrong)?;
    let threads = candidate.knob("THREADS");
    let [places, entries] = [&scatter.places, &scatter.entries].map(product);
    let mut first = Shader::new(problem);
    let heads = first.scratch(places.scale(4));
    let links = scatter.lists().then(|| first.scratch(entries.scale(4)));
    let finish = |mut shader: Shader<'_>, over: &Dim, step: &str| {
        shader.knob("THREADS", threads);
        shader.replace("step", format!("fn step(i: u32) {{ {step}(i); }}\n"));
        shader.size("places", &places);
        shader.size("entries", &entries);
        shader.size("units", &scatter.rows.rows());
        let grid = Grid::linear(over, threads, problem.bounds);
        shader.finish("scatter_list", KERNEL.wgsl, grid, over.clone())
    };
    bind_heads(&mut first, heads, true);
    let mut out = vec![finish(first, &places, "empty")?];

    let mut enter = Shader::new(problem);
    let buffer = enter.bind(heads, "atomic<u32>", true);
    let how = if scatter.lists() { "atomicExchange" } else { "atomicMax" };
    enter.replace(
        "enter",
        format!("fn enter(place: u32, entry: u32) -> u32 {{ return {how}(&{buffer}[place], entry); }}\n"),
    );
    bind_links(&mut enter, links, true);
    name(&mut enter, problem, &scatter)?;
    out.push(finish(enter, &entries, "enlist")?);

    if links.is_some() {
        let mut sort = Shader::new(problem);
        bind_heads(&mut sort, heads, true);
        bind_links(&mut sort, links, true);
        out.push(finish(sort, &places, "sort")?);
    }

    let mut gather = Shader::new(problem);
    bind_heads(&mut gather, heads, false);
    bind_links(&mut gather, links, false);
    collect(&mut gather, problem, &scatter)?;
    out.push(finish(gather, &scatter.rows.rows(), "gather")?);
    Ok(out)
}

/// The hooks that read and write the heads of lists.
fn bind_heads(shader: &mut Shader<'_>, heads: Bound, writable: bool) {
    let buffer = shader.bind(heads, "u32", writable);
    shader.replace("head", format!("fn head(place: u32) -> u32 {{ return {buffer}[place]; }}\n"));
    let text = if writable { format!("{buffer}[place] = entry;") } else { String::new() };
    shader.replace("set_head", format!("fn set_head(place: u32, entry: u32) {{ {text} }}\n"));
}

/// The hooks that read and write what follows an entry: nothing where lists are of one entry.
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

/// `((a * size + b) * size + c)` of coordinates on axes.
fn flat(shader: &mut Shader<'_>, sizes: &[Dim], coordinates: &[String]) -> String {
    let mut text = String::new();
    for (size, coordinate) in sizes.iter().zip(coordinates) {
        let size = shader.dim(size);
        text =
            if text.is_empty() { coordinate.clone() } else { format!("(({text}) * {size} + {coordinate})") };
    }
    if text.is_empty() { "0u".into() } else { text }
}

/// The hooks that say which place an entry names.
fn name(shader: &mut Shader<'_>, problem: &Problem<'_>, scatter: &Scatter) -> Result<(), OpError> {
    let order: Vec<usize> = (0..scatter.entries.len()).rev().collect();
    let (prelude, entry) = decompose(shader, &scatter.entries, &order, "entry");
    shader.alias("Index", Class::of(problem.operands[1].dtype).scalar());
    let (mut at, mut place, mut body, mut inside) = (entry.clone(), entry, String::new(), Vec::new());
    let mut part = |shader: &mut Shader<'_>, part: usize, axis: usize| {
        let size = shader.dim(&problem.result.shape[axis]);
        body += &format!("    let at_{axis} = wrap(pick(entry, {part}u), {size});\n");
        inside.push(format!("at_{axis} < {size}"));
        format!("at_{axis}")
    };
    match problem.op {
        Op::ScatterElements(op) => place[op.axis] = part(shader, 0, op.axis),
        _ => {
            place = (0..scatter.places.len()).map(|axis| part(shader, axis, axis)).collect();
            at.push("part".into());
        }
    }
    shader.read("pick", "entry: u32, part: u32", &prelude, 1, &Coordinates::element(at));
    let place = flat(shader, &scatter.places, &place);
    let inside = if inside.is_empty() { "true".into() } else { inside.join(" && ") };
    shader.replace(
        "named",
        format!(
            "fn named(entry: u32) -> u32 {{\n{prelude}{body}    return select(places(), {place}, {inside});\n}}\n"
        ),
    );
    Ok(())
}

/// The hooks that compute the result from the lists.
fn collect(shader: &mut Shader<'_>, problem: &Problem<'_>, scatter: &Scatter) -> Result<(), OpError> {
    shader.alias("V", &Class::of(problem.computed).wgsl(scatter.rows.lanes.count()));
    let (prelude, at) = scatter.rows.unit(shader);
    shader.read("load", "unit: u32", &prelude, 0, &at);
    shader.write("store", "unit: u32", &prelude, &at)?;
    let place = flat(shader, &scatter.places, &at.axes);
    shader.replace("place", format!("fn place(unit: u32) -> u32 {{\n{prelude}    return {place};\n}}\n"));
    let order: Vec<usize> = (0..scatter.entries.len()).rev().collect();
    let (split, entry) = decompose(shader, &scatter.entries, &order, "entry");
    // Updates lie by entry, and each has the axes of the tensor behind those of a place.
    let tuple = scatter.places.len();
    let lanes = at.lanes.map(|lane| lane + entry.len() - tuple);
    let axes = match problem.op {
        Op::ScatterElements(_) => entry,
        _ => entry.into_iter().chain(at.axes.iter().skip(tuple).cloned()).collect(),
    };
    let update = Coordinates { axes, lanes, pixel: None, unit: None };
    shader.read("update", "unit: u32, entry: u32", &format!("{prelude}{split}"), 2, &update);
    shader.replace("combine", scatter::combine(scatter.combine));
    Ok(())
}
