//! Kernel `conv_1x1`: pointwise convolutions as matmuls with `tiled.wgsl`. M are the pixels, K the input channels, N
//! the output channels. Images in channel slices are read by pixel index, without divisions.

use super::filters::UnpackedFilters;
use crate::error::OpError;
use crate::ir::dim::product;
use crate::ir::op::{Constant, Conv, Op};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel};
use crate::kernels::shared::pixels::{pixel_rows, row_coordinates};
use crate::kernels::shared::tiled;
use crate::kernels::shared::window::{axes, constant, fits, known, with_bias};
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::I_O4;
use crate::shader::problem::Problem;
use crate::shader::{LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "conv_1x1",
    wgsl: tiled::WGSL,
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<tiled::Params>()],
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
    let rows = pixel_rows(problem);
    let filters = &problem.operands[1].shape;
    let packed = constant(problem, 1).map(|w| pack(w, problem.operands[1].dtype.on_device()));
    if packed.is_some_and(|p| !fits(problem, &p)) {
        return Vec::new();
    }
    let sizes = [&rows.m, &filters[0], &filters[1]].map(|d| problem.max(d));
    let limits = problem.target.limits.max_workgroup_count;
    let mut out = tiled::tile_candidates(
        problem,
        problem.max(&rows.batch),
        sizes,
        [!problem.operands[0].is_slices4(), false],
    );
    out.retain(|c| {
        let tile_m =
            c.config::<tiled::Config>().map_or(1, |config| i64::from(config.threads_m * config.rows));
        sizes[0] / tile_m < i64::from(limits[1]) && problem.max(&rows.batch) <= i64::from(limits[2])
    });
    out
}

/// Packs 1x1 filters as a matrix: K rows (input channels) of N elements (output channels), with N padded to a multiple of 4.
fn pack(filters: &Constant, device: crate::ir::tensor::DeviceType) -> Packed {
    I_O4.packed(filters, &[('O', filters.shape[0]), ('I', filters.shape[1])], &[], device)
}

fn launches(problem: &Problem<'_>, config: tiled::Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Conv(op) = problem.op else { return Err(OpError::new("the operator is not a convolution")) };
    let mut steps = Vec::new();
    let problem = &with_bias(problem, &mut steps);
    let rows = pixel_rows(problem);
    let rank = problem.result.rank();
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    let (n, k) = (problem.operands[1].shape[0].clone(), problem.operands[1].shape[1].clone());
    shader.size("size_m", &rows.m);
    shader.size("size_n", &n);
    shader.size("size_k", &k);
    let (prelude, coordinates) = row_coordinates(&mut shader, &rows);

    let strided = op.strides.iter().any(|s| *s != 1);
    let mut source: Vec<String> = coordinates.clone();
    for (coordinate, stride) in source[2..].iter_mut().zip(&op.strides) {
        if *stride != 1 && coordinate != "0u" {
            *coordinate = format!("({coordinate} * {stride}u)");
        }
    }
    source[1] = "k4".into();
    let pixel = (rows.all_images && !strided).then(|| "row".to_string());
    let at = Coordinates { axes: source, lanes: Some(1), pixel, vec4_index: None };
    shader.read("load_a", "batch: u32, row: u32, k4: u32", &prelude, 0, &at);

    let device = problem.operands[1].dtype.on_device();
    match (constant(problem, 1), UnpackedFilters::from_problem(op, problem)) {
        (Some(filters), _) => {
            let vector = shader.packed_vector_at(pack(filters, device), "k", "n4");
            shader.replace(
                "load_b",
                format!(
                    "fn load_b(batch: u32, k: u32, n4: u32) -> vec4<f32> {{ return vec4<f32>({vector}); }}\n"
                ),
            );
        }
        (None, Some(filters)) => filters.declare_vec4_load(&mut shader)?,
        (None, None) => {
            let at = Coordinates::vec4(axes(rank, "n4", "k", ["0u"; 3]), 0);
            shader.read("load_b", "batch: u32, k: u32, n4: u32", "", 1, &at);
        }
    }

    let mut coordinates = coordinates;
    coordinates[1] = "n4".into();
    let pixel = rows.all_images.then(|| "row".to_string());
    let at = Coordinates { axes: coordinates, lanes: Some(1), pixel, vec4_index: None };
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &at)?;
    let grid = tiled::declare_grid(&mut shader, config, &rows.batch, &rows.m, &n);
    let flops = product(&problem.result.shape).mul(&k).scale(2);
    Ok(vec![shader.finish("conv_1x1", KERNEL.wgsl, grid, flops)])
}
