//! `winograd.wgsl`: transforms of images into tiles of the Winograd domain and back. An ordinary matmul stands between
//! the two transforms.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::ir::op::{Op, WinogradInput};
use crate::ir::ops::winograd::Matrices;
use crate::ir::tensor::TensorDesc;
use crate::kernels::cost::{Estimate, Parameters, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::kernels::shared::window::{vec4_channels, with_bias_at};
use crate::shader::access::Coordinates;
use crate::shader::element_walk::split_index;
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "winograd",
    wgsl: include_str!("winograd.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

config! {
    /// Configuration of the kernel `winograd`.
    struct Config {
        /// Number of invocations of a workgroup along channel slices.
        GROUP_S => group_s: u32,
        /// Number of invocations of a workgroup along the axis of tiles. Each of them computes a different tile.
        GROUP_T => group_t: u32,
        /// Number of rows of a transformed tile that an invocation computes.
        ROWS => rows: u32,
    }
}

/// Cost parameters of the kernel `winograd`. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Number of loads that an invocation has in flight. With more loads in flight, fewer invocations occupy the device.
    concurrent_loads: f64,
    /// Fraction of the time of reads from the cache that does not overlap with waiting for memory. 0 to 1.
    exposed_read_fraction: f64,
    /// Fixed time before the first row of a tile is computed and after the last one, in memory latencies.
    fixed_latencies: f64,
    /// Fraction of the f32 peak that the kernel reaches at full occupancy. 0 to 1.
    peak_fraction: f64,
    /// Time to compute a row of a 6 x 6 tile, in memory latencies. For other tiles the time is proportional to the
    /// number of elements.
    row_latencies: f64,
    /// Maximum number of rows of a tile whose times add up in an invocation. Further rows overlap with these rows and
    /// add no time. 1 or more.
    max_serial_rows: f64,
}

impl Parameters for Params {
    const GROUP: &str = "winograd";
}

/// Matrix and sizes of a Winograd transform, into the Winograd domain or back.
struct Transform {
    matrix: Vec<f64>,
    /// Number of rows of the transform matrix.
    side: usize,
    /// Number of rows of a Winograd tile before its transform.
    tile: usize,
    /// Number of output pixels of the convolution along a side of a tile.
    outputs: usize,
    /// Three numbers: of images, of tiles along y, and of tiles along x.
    tiles: [Dim; 3],
    channels: Dim,
    /// Padding before the image along y and x, in pixels.
    pads: [usize; 2],
    /// True for the transform of the input, false for the transform of the output.
    forward: bool,
}

fn transform(problem: &Problem<'_>) -> Option<Transform> {
    let shape = |o: &crate::shader::problem::Operand<'_>| TensorDesc::new(o.dtype, o.shape.clone());
    let (outputs, image, pads, forward) = match problem.op {
        Op::WinogradInput(op) => (op.outputs, problem.operands.first()?, op.pads_begin, true),
        Op::WinogradOutput(op) => (op.outputs, &problem.result, [0; 2], false),
        _ => return None,
    };
    if !problem.computed.is_float() || image.rank() != 4 {
        return None;
    }
    let m = Matrices::new(outputs)?;
    let [down, across] = match problem.op {
        Op::WinogradInput(op) => op.tiles(&shape(image)).ok()?,
        // The result has as many tiles as an image padded by 1 on each side.
        _ => WinogradInput { outputs, pads_begin: [1; 2], pads_end: [1; 2] }.tiles(&shape(image)).ok()?,
    };
    let (matrix, side) = if forward { (m.input, m.side) } else { (m.output, outputs) };
    let tiles = [image.shape[0].clone(), down, across];
    Some(Transform {
        matrix,
        side,
        tile: m.side,
        outputs,
        tiles,
        channels: image.shape[1].clone(),
        pads,
        forward,
    })
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Some(transform) = transform(problem) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let slices = problem.max(&transform.channels.ceil_div(4));
    let tiles = problem.max(&product(&transform.tiles));
    let threads = problem.target.prefer.workgroup_invocations.min(limits.max_workgroup_invocations).max(1);
    let mut out = Vec::new();
    for across in [4u32, 8, 16] {
        for rows in (1..=transform.side).filter(|rows| transform.side.is_multiple_of(*rows)) {
            let group_tiles = (threads.min(64) / across).max(1);
            let groups =
                [slices.max(1).div_euclid(across.into()), tiles.max(1).div_euclid(group_tiles.into())];
            let max_groups = limits.max_workgroup_count;
            if across * group_tiles > threads
                || groups[0] >= i64::from(max_groups[0])
                || groups[1] >= i64::from(max_groups[1])
            {
                continue;
            }
            let split = (transform.side / rows) as f64;
            let lanes = (slices * tiles) as f64 * split;
            let n = transform.tile as f64;
            // About 65 % of the elements of the matrices are not zero.
            let work = 8.0 * 0.65 * (n * n * rows as f64 + n * (rows * transform.side) as f64);
            let resident = machine.invocations();
            let occupancy = (p.concurrent_loads * lanes / resident).clamp(0.02, 1.0);
            let computing = lanes * work / (machine.peak.f32 * p.peak_fraction * occupancy).max(1e-3);
            // Each invocation reads a whole tile. If few invocations are along channels, cache lines are partly used.
            let width = problem.operands.first().map_or(4, |o| o.dtype.on_device().bytes()) as f64;
            let reading = lanes * n * n * 4.0 * width / machine.cache_bandwidth_gb_s.max(1e-3);
            let waste = (8.0 / f64::from(across)).clamp(1.0, 2.0);
            // Few short rows are computed concurrently.
            let serial_rows =
                if rows * transform.tile <= 8 { 1.0 } else { (rows as f64).min(p.max_serial_rows) };
            let latencies = p.fixed_latencies + p.row_latencies * serial_rows * n * n / 36.0;
            // Reading tiles from the cache delays the arithmetic, and waiting in part.
            let estimate = Estimate {
                memory: problem.traffic() as f64 * waste / (machine.bandwidth_gb_s.max(1e-3) * occupancy),
                compute: computing + reading,
                latency: waiting(problem, 2.0 * lanes, latencies) + p.exposed_read_fraction * reading,
                ..Estimate::for_dispatches(problem, 1.0)
            };
            let reason = format!(
                "{tiles} tiles with {slices} channel slices each; an invocation computes {rows} of the {} rows of a tile; workgroups of {across}x{group_tiles} invocations",
                transform.side
            );
            let config = Config { group_s: across, group_t: group_tiles, rows: rows as u32 };
            // The rows of all columns but the last, and the last column.
            let vec4s = rows * (transform.tile - 1) + transform.tile;
            out.push(Candidate::new(&config, estimate, reason).with_live_values(vec4s as u32, 0));
        }
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let none = || OpError::new("the operator is not a Winograd transform");
    let transform = transform(problem).ok_or_else(none)?;
    let mut steps = Vec::new();
    let problem = &with_bias_at(1, problem, &mut steps);
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    let Transform { side, tile, outputs, pads, .. } = transform;
    let slices = transform.channels.ceil_div(4);
    let tiles = product(&transform.tiles);
    shader.constant("SIDE", format_args!("{side}u"));
    shader.constant("N", format_args!("{tile}u"));
    shader.size("slices", &slices);
    shader.size("tiles", &tiles);
    shader.replace("transform_row", transform_row_function(&transform));
    let (prelude, coordinates) = split_index(&mut shader, &transform.tiles, &[2, 1, 0], "t");
    let image = if transform.forward { &problem.operands[0].shape } else { &problem.result.shape }.clone();
    let [height, width] = [2, 3].map(|axis| shader.dim(&image[axis]));
    let at = vec4_channels(4, "b", "s", ["0u", "y", "x"]);
    // Tiles extend past the end of the image.
    let guards = if transform.forward { shader.guards(0, [false, true, true]) } else { [true; 3] };
    let bounds = [(guards[1], format!("y < {height}")), (guards[2], format!("x < {width}"))];
    let bounds: Vec<String> = bounds.into_iter().filter(|(guard, _)| *guard).map(|(_, text)| text).collect();
    let within_bounds = if bounds.is_empty() { "true".to_string() } else { bounds.join(" && ") };
    let within = |r: &str, j: &str| {
        let along = |coordinate: &str, offset: &str, pad: usize| {
            format!("{coordinate} * {outputs}u + {offset} - {pad}u")
        };
        format!(
            "{prelude}    let y = {};\n    let x = {};\n    let inside = {within_bounds};\n",
            along(&coordinates[1], r, pads[0]),
            along(&coordinates[2], j, pads[1])
        )
    };
    let matrix = |row: &str, side: usize, column: &str| {
        let axes = vec![format!("({row} * {side}u + {column})"), "t".to_string(), "s".to_string()];
        Coordinates::vec4(axes, 2)
    };
    if transform.forward {
        let pixel = shader.read_fn("pixel", "b: u32, y: u32, x: u32, s: u32", "", 0, &at, false);
        // A pixel outside the image reads pixel 0, which is then replaced by zero.
        shader.replace(
            "src",
            format!(
                "{pixel}fn src(t: u32, s: u32, row: u32, column: u32) -> vec4<f32> {{\n{}    return select(vec4<f32>(), pixel({}, select(0u, y, inside), select(0u, x, inside), s), inside);\n}}\n",
                within("row", "column"),
                coordinates[0]
            ),
        );
        shader.write("store", "t: u32, s: u32, i: u32, k: u32", "", &matrix("i", side, "k"))?;
    } else {
        shader.read("src", "t: u32, s: u32, row: u32, column: u32", "", 0, &matrix("row", tile, "column"));
        let pixel = shader.write_fn("pixel", "b: u32, y: u32, x: u32, s: u32", "", &at, false)?;
        shader.replace(
            "store",
            format!(
                "{pixel}fn store(t: u32, s: u32, i: u32, k: u32, v: vec4<f32>) {{\n{}    if (inside) {{ pixel({}, y, x, s, v); }}\n}}\n",
                within("i", "k"),
                coordinates[0]
            ),
        );
    }
    let Config { group_s: across, group_t: group_tiles, rows } = config;
    let split = Dim::from(side / rows as usize);
    let flops = slices.mul(&tiles).scale((8 * tile * side * (tile + side)) as i64);
    let grid = Grid {
        groups: [slices.ceil_div(across.into()), tiles.ceil_div(group_tiles.into()), split],
        workgroup: [across, group_tiles, 1],
    };
    Ok(vec![shader.finish("winograd", KERNEL.wgsl, grid, flops)])
}

/// Returns the WGSL function `transform_row(i, ..)`, which multiplies row `i` of the transform matrix by a column of
/// the tile. The function leaves out the zeros of the matrix.
fn transform_row_function(transform: &Transform) -> String {
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut text = String::from(
        "fn transform_row(i: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, e: vec4<f32>, f: vec4<f32>) -> vec4<f32> {\n    switch i {\n",
    );
    for (i, row) in transform.matrix.chunks(transform.tile).enumerate() {
        let terms: Vec<String> = row
            .iter()
            .zip(names)
            .filter(|(value, _)| **value != 0.0)
            .map(|(value, name)| format!("{name} * {:?}", *value as f32))
            .collect();
        let label = if i + 1 == transform.side { "default".to_string() } else { format!("case {i}u") };
        text += &format!("        {label}: {{ return {}; }}\n", terms.join(" + "));
    }
    text + "    }\n}\n"
}
