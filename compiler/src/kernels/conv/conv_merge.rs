//! `conv_merge.wgsl`: the launch that adds the partial sums of workgroups of `conv_fragments` that split K.

use super::conv_coop::{Shape, declare_result};
use crate::error::OpError;
use crate::ir::dim::{Dim, product};
use crate::kernels::shared::pixels::row_coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Bound, Grid, LaunchDraft, Shader};

const WGSL: &str = include_str!("conv_merge.wgsl");
/// Invocations per workgroup.
const THREADS: u32 = 128;

/// Scratch buffer with the partial sums of `GROUP_SPLIT` workgroups for each tile.
pub(super) struct PartialSums {
    /// Number of workgroups among which K is split.
    group_split: u32,
    /// Number of columns divided by four, rounded up.
    n4: Dim,
    buffer: Bound,
}

impl PartialSums {
    /// Declares the scratch buffer, and the hook that stores partial sums in it. `n` is the number of columns.
    pub(super) fn declare(shader: &mut Shader<'_>, shape: &Shape, n: &Dim, group_split: u32) -> Self {
        let n4 = n.ceil_div(4);
        let bytes = product(&[shape.rows.m.clone(), n4.clone(), shape.rows.batch.clone()]);
        let buffer = shader.scratch(bytes.scale(16 * i64::from(group_split)));
        let name = shader.bind(buffer, "vec4<f32>", true);
        shader.replace(
            "store_partial",
            format!(
                "fn store_partial(group: u32, n4: u32, row: u32, v: vec4<f32>) {{ {name}[(group * ((size_n() + 3u) / 4u) + n4) * size_m() + row] = v; }}"
            ),
        );
        Self { group_split, n4, buffer }
    }

    /// Returns the launch that adds the partial sums and applies the epilogue of the convolution.
    ///
    /// # Errors
    /// If the result has a layout that the kernel cannot write (a defect of the candidates).
    pub(super) fn merge(&self, problem: &Problem<'_>, shape: &Shape) -> Result<LaunchDraft, OpError> {
        let mut shader = Shader::new(problem);
        shader.knob("THREADS", THREADS);
        shader.knob("GROUP_SPLIT", self.group_split);
        shader.size("size_m", &shape.rows.m);
        shader.size("size_n4", &self.n4);
        let buffer = shader.bind(self.buffer, "vec4<f32>", false);
        shader.replace(
            "load_partial",
            format!(
                "fn load_partial(group: u32, n4: u32, row: u32) -> vec4<f32> {{ return {buffer}[(group * size_n4() + n4) * size_m() + row]; }}"
            ),
        );
        let pixels = row_coordinates(&mut shader, &shape.rows);
        declare_result(&mut shader, shape, pixels)?;
        let vec4s = shape.rows.m.mul(&self.n4);
        let groups = [vec4s.ceil_div(i64::from(THREADS)), Dim::known(1), shape.rows.batch.clone()];
        let additions = vec4s.mul(&shape.rows.batch).scale(4 * i64::from(self.group_split));
        Ok(shader.finish("conv_merge", WGSL, Grid { groups, workgroup: [THREADS, 1, 1] }, additions))
    }
}
