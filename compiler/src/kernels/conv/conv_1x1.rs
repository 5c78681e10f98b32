//! Pointwise convolutions as matrix products through `tiled.wgsl`: a row per pixel, K input channels, N output
//! channels. Images in slices of four are read by pixel, so that nothing has to be divided.

use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::{Constant, Conv, Op};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::kernels::shared::pixels::{positions, rows};
use crate::kernels::shared::tiled;
use crate::kernels::shared::window::{axes, constant, fits, known, with_bias};
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::I_O4;
use crate::shader::problem::Problem;
use crate::shader::{Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_1x1",
    wgsl: tiled::WGSL,
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<tiled::Params>()],
    in_place: InPlace::Epilogue,
};

fn applies(op: &Conv, problem: &Problem<'_>) -> Option<()> {
    let filters = problem.operands.get(1)?;
    let taps = filters.shape.get(2..)?;
    let unpadded = op.pads_begin.iter().chain(&op.pads_end).all(|p| *p == 0);
    (op.group == 1 && unpadded && taps.iter().all(|t| t.is(1)) && problem.computed.is_float())
        .then_some(())?;
    known(&filters.shape[0])?;
    known(&filters.shape[1])?;
    (problem.result.rank() <= 5).then_some(())
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Conv(op) = problem.op else { return Vec::new() };
    if applies(op, problem).is_none() {
        return Vec::new();
    }
    let rows = rows(problem);
    let filters = &problem.operands[1].shape;
    let packed = constant(problem, 1).map(|w| pack(w, problem.operands[1].dtype.on_device()));
    if packed.is_some_and(|p| !fits(problem, &p)) {
        return Vec::new();
    }
    let sizes = [&rows.m, &filters[0], &filters[1]].map(|d| problem.max(d));
    let limits = problem.target.limits.max_workgroup_count;
    let mut out =
        tiled::tiles(problem, problem.max(&rows.batch), sizes, [!problem.operands[0].is_slices4(), false]);
    out.retain(|c| {
        let tile = i64::from(c.knob("THREADS_M") * c.knob("ROWS"));
        sizes[0] / tile < i64::from(limits[1]) && problem.max(&rows.batch) <= i64::from(limits[2])
    });
    out
}

/// Filters as rows of K with N padded to fours.
fn pack(filters: &Constant, device: crate::ir::tensor::DeviceType) -> Packed {
    I_O4.of(filters, &[('O', filters.shape[0]), ('I', filters.shape[1])], &[], device)
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("not a convolution")) };
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let rows = rows(problem);
    let rank = problem.result.rank();
    let mut shader = Shader::new(problem);
    for (name, value) in &candidate.knobs {
        shader.knob(name, *value);
    }
    let (n, k) = (problem.operands[1].shape[0].clone(), problem.operands[1].shape[1].clone());
    shader.size("size_m", &rows.m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    let (prelude, places) = positions(&mut shader, &rows);

    let strided = op.strides.iter().any(|s| *s != 1);
    let mut source: Vec<String> = places.clone();
    for (place, stride) in source[2..].iter_mut().zip(&op.strides) {
        if *stride != 1 && place != "0u" {
            *place = format!("({place} * {stride}u)");
        }
    }
    source[1] = "k4".into();
    let pixel = (rows.all && !strided).then(|| "row".to_string());
    let at = Coordinates { axes: source, lanes: Some(1), pixel, unit: None };
    shader.read("load_a", "batch: u32, row: u32, k4: u32", &prelude, 0, &at);

    let device = problem.operands[1].dtype.on_device();
    match constant(problem, 1) {
        Some(filters) => {
            let vector = shader.packed_grid(pack(filters, device), "k", "n4");
            shader.replace(
                "load_b",
                format!(
                    "fn load_b(batch: u32, k: u32, n4: u32) -> vec4<f32> {{ return vec4<f32>({vector}); }}\n"
                ),
            );
        }
        None => {
            let at = Coordinates::four(axes(rank, "n4", "k", ["0u"; 3]), 0);
            shader.read("load_b", "batch: u32, k: u32, n4: u32", "", 1, &at);
        }
    }

    let mut places = places;
    places[1] = "n4".into();
    let pixel = rows.all.then(|| "row".to_string());
    let at = Coordinates { axes: places, lanes: Some(1), pixel, unit: None };
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &at)?;
    let grid = tiled::grid(&mut shader, candidate, &rows.batch, &rows.m, &n);
    let flops = product(&problem.result.shape).mul(&k).scale(2);
    Ok(vec![shader.finish("conv_1x1", KERNEL.wgsl, grid, flops)?])
}
