//! Kernels that slide windows over images: geometry as constants, coordinates, the bias as the first step of the
//! epilogue, and filters in slices of four channels.

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
use crate::ir::op::{Constant, Conv};
use crate::ir::tensor::DeviceType;
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::{FOUR_TEXTURES, I4O4};
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Grid, Shader};

/// Window axes, slowest first. A tensor with fewer spatial axes has the last of them.
pub(crate) const AXES: [&str; 3] = ["Z", "Y", "X"];

/// Windows along three spatial axes. A missing axis has a window of one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) kernel: [usize; 3],
    pub(crate) stride: [usize; 3],
    pub(crate) dilation: [usize; 3],
    /// Padding before the image.
    pub(crate) begin: [usize; 3],
    /// Padding after the image.
    pub(crate) end: [usize; 3],
    /// Trailing axes of the tensor that are left out because image, result and window have one position along them.
    pub(crate) dropped_axes: usize,
}

impl Windows {
    /// The windows of a convolution. Kernels compute neighbors along the last axis together, so trailing axes of one
    /// position are dropped: an image of one column becomes a line.
    pub(crate) fn from_conv(op: &Conv, problem: &Problem<'_>) -> Option<Self> {
        let filters = problem.operands.get(1)?;
        let kernel: Vec<usize> = filters.shape.get(2..)?.iter().map(known).collect::<Option<_>>()?;
        let (source, result) = (problem.operands.first()?.shape.get(2..)?, problem.result.shape.get(2..)?);
        let is_dropped = |axis: &usize| {
            let one = [source, result].iter().all(|sizes| sizes.get(*axis).is_some_and(|size| size.is(1)));
            one && kernel.get(*axis) == Some(&1) && op.pads_begin.get(*axis) == Some(&0)
        };
        let dropped_axes = (1..kernel.len()).rev().take_while(is_dropped).count();
        let kept = |list: &'_ [usize]| list.get(..kernel.len() - dropped_axes).map(<[usize]>::to_vec);
        let [strides, dilations, begin, end] =
            [&op.strides, &op.dilations, &op.pads_begin, &op.pads_end].map(|list| kept(list));
        let windows = Self::new(&kept(&kernel)?, &strides?, &dilations?, &begin?, &end?);
        Some(Self { dropped_axes, ..windows })
    }

    /// The windows of an operator's attributes, one number per spatial axis.
    pub(crate) fn new(
        kernel: &[usize],
        strides: &[usize],
        dilations: &[usize],
        begin: &[usize],
        end: &[usize],
    ) -> Self {
        Self {
            kernel: last_three(kernel, 1),
            stride: last_three(strides, 1),
            dilation: last_three(dilations, 1),
            begin: last_three(begin, 0),
            end: last_three(end, 0),
            dropped_axes: 0,
        }
    }

    /// Returns the sizes of `[N, C, spatial..]` along the three axes.
    pub(crate) fn sizes(&self, shape: &[Dim]) -> [Dim; 3] {
        spatial(shape.get(..shape.len() - self.dropped_axes).unwrap_or(shape))
    }

    /// Replaces `BATCH_INNER`, `batches`, and the sizes of the source and the result along `axes` (`in_w`, `out_w` and
    /// so on).
    pub(crate) fn declare_image(&self, shader: &mut Shader<'_>, axes: &[usize]) {
        shader.constant("BATCH_INNER", shader.problem.result.is_slices4());
        let [source, result] = [&shader.problem.operands[0], &shader.problem.result].map(|o| o.shape.clone());
        shader.size("batches", &result[0]);
        self.declare_sizes(shader, axes, [&source, &result]);
    }

    /// Replaces the sizes of the source and the result along `axes`.
    pub(crate) fn declare_sizes(
        &self,
        shader: &mut Shader<'_>,
        axes: &[usize],
        [source, result]: [&[Dim]; 2],
    ) {
        for (names, shape) in [(["in_d", "in_h", "in_w"], source), (["out_d", "out_h", "out_w"], result)] {
            let sizes = self.sizes(shape);
            axes.iter().for_each(|&i| shader.size(names[i], &sizes[i]));
        }
    }

    /// True if an image of this rank has a third spatial axis.
    pub(crate) fn deep(&self, rank: usize) -> bool {
        rank - self.dropped_axes == 5
    }

    /// Coordinates of four channels of `[N, C, spatial..]` at a position along the three axes.
    pub(crate) fn vec4_channels(
        &self,
        rank: usize,
        batch: &str,
        slice: &str,
        position: [&str; 3],
    ) -> Coordinates {
        let mut at = vec4_channels(rank - self.dropped_axes, batch, slice, position);
        at.axes.extend(std::iter::repeat_n("0u".to_string(), self.dropped_axes));
        at
    }

    /// Number of taps.
    pub(crate) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Returns, for each axis, true if taps of the first or the last window fall outside the image.
    pub(crate) fn padded(&self) -> [bool; 3] {
        [0, 1, 2].map(|i| self.begin[i] > 0 || self.end[i] > 0)
    }

    /// Replaces `KERNEL_X`, `STRIDE_X`, `DILATION_X` and `PAD_X`, and the same constants of the other axes.
    pub(crate) fn declare(&self, shader: &mut Shader<'_>, axes: &[usize]) {
        for &i in axes {
            let name = AXES[i];
            shader.constant(&format!("KERNEL_{name}"), format_args!("{}u", self.kernel[i]));
            shader.constant(&format!("STRIDE_{name}"), format_args!("{}i", self.stride[i]));
            shader.constant(&format!("DILATION_{name}"), format_args!("{}i", self.dilation[i]));
            shader.constant(&format!("PAD_{name}"), format_args!("{}i", self.begin[i]));
        }
    }
}

/// Replaces `GUARD_X`, and the same constants of the other axes: true if reads of operand `index` must be masked
/// outside the image along that axis. `outside` is true for axes along which reads may fall outside.
pub(crate) fn declare_guards(shader: &mut Shader<'_>, index: usize, axes: &[usize], outside: [bool; 3]) {
    let guards = shader.texture_guards_for_reads(index, outside);
    for &i in axes {
        shader.constant(&format!("GUARD_{}", AXES[i]), guards[i]);
    }
}

/// Returns the last elements of a list as three numbers; missing ones are `default`.
pub(crate) fn last_three(list: &[usize], default: usize) -> [usize; 3] {
    let mut out = [default; 3];
    for (slot, value) in out.iter_mut().rev().zip(list.iter().rev()) {
        *slot = *value;
    }
    out
}

/// Returns the spatial sizes of `[N, C, spatial..]` as three sizes.
pub(crate) fn spatial(shape: &[Dim]) -> [Dim; 3] {
    let mut out = [Dim::known(1), Dim::known(1), Dim::known(1)];
    for (slot, value) in out.iter_mut().rev().zip(shape.iter().skip(2).rev()) {
        slot.clone_from(value);
    }
    out
}

/// Coordinates of a vec4 of channels of `[N, C, spatial..]`.
pub(crate) fn vec4_channels(rank: usize, batch: &str, slice: &str, spatial: [&str; 3]) -> Coordinates {
    Coordinates::vec4(axes(rank, batch, slice, spatial), 1)
}

/// Coordinates of `[N, C, spatial..]`.
pub(crate) fn axes(rank: usize, batch: &str, channel: &str, spatial: [&str; 3]) -> Vec<String> {
    let first = 5usize.saturating_sub(rank);
    let spatial = spatial.iter().skip(first).map(|s| (*s).to_string());
    [batch.to_string(), channel.to_string()].into_iter().chain(spatial).collect()
}

/// Returns a size that does not depend on symbols.
pub(crate) fn known(dim: &Dim) -> Option<usize> {
    usize::try_from(dim.as_known()?).ok()
}

/// Returns the problem with operand 2, a bias of one value per channel, added in the first step of the epilogue.
/// `steps` holds the new epilogue. Without that operand the problem is returned as it is.
pub(crate) fn with_bias<'s>(problem: &'s Problem<'_>, steps: &'s mut Vec<EpilogueStep>) -> Problem<'s> {
    with_bias_at(2, problem, steps)
}

/// Like [`with_bias`], for a bias that is operand `index`, the last operand of the operator.
pub(crate) fn with_bias_at<'s>(
    index: u32,
    problem: &'s Problem<'_>,
    steps: &'s mut Vec<EpilogueStep>,
) -> Problem<'s> {
    let mut out: Problem<'s> = problem.clone();
    if problem.arity <= index as usize {
        return out;
    }
    let args = vec![Arg::Step(0), Arg::Input(index)];
    steps.push(EpilogueStep { element: Element::Binary(BinaryFn::Add), args });
    steps.extend(problem.epilogue.iter().map(|step| step.shifted(1)));
    out.epilogue = steps;
    if let Some(bias) = out.operands.get_mut(index as usize) {
        let ones = problem.result.rank().saturating_sub(2);
        bias.shape.extend(std::iter::repeat_n(Dim::known(1), ones));
        if let Placement::Strided { strides, .. } = &mut bias.placement {
            strides.extend(std::iter::repeat_n(Dim::known(0), ones));
        }
    }
    out
}

/// Returns name and size of the four axes of filters `[group * O, I, taps]`, or `[group * I, O, taps]` if `swapped`.
fn filter_axes(filters: &Constant, group: usize, swapped: bool) -> Result<[(char, usize); 4], OpError> {
    let [a, b, taps @ ..] = filters.shape.as_slice() else {
        return Err(OpError::new("filters have two axes of channels"));
    };
    let [first, second] = if swapped { ['I', 'O'] } else { ['O', 'I'] };
    Ok([('G', group), (first, a / group.max(1)), (second, *b), ('S', taps.iter().product())])
}

/// Packs filters into blocks of `slices` slices of four outputs: per block, per tap, per slice of four inputs, per
/// slice of the block, per input a vec4 of outputs. With several groups, the block size must divide the outputs of a
/// group.
pub(crate) fn pack_filters(
    filters: &Constant,
    device: DeviceType,
    group: usize,
    slices: usize,
    swapped: bool,
) -> Result<Packed, OpError> {
    Ok(I4O4.packed(filters, &filter_axes(filters, group, swapped)?, &[('n', slices)], device))
}

/// Replaces the hook `weight`, which reads a vec4 of such filters. If the target prefers four textures, replaces the
/// hook `weights`, which reads the four vectors of a slice of inputs.
pub(crate) fn read_filters(
    shader: &mut Shader<'_>,
    filters: &Constant,
    device: DeviceType,
    group: usize,
    slices: usize,
    swapped: bool,
) -> Result<(), OpError> {
    let axes = filter_axes(filters, group, swapped)?;
    let textures = FOUR_TEXTURES.packed_interleaved(filters, &axes, &[('n', slices)], device);
    if let Some(reads) = shader.packed_in_four_textures(textures, "vec2<u32>(column, row)") {
        let vectors: Vec<String> = reads.iter().map(|read| format!("vec4<f32>({read})")).collect();
        shader.replace(
            "weights",
            format!(
                "fn weights(i: u32, column: u32, row: u32) -> mat4x4<f32> {{ return mat4x4<f32>({}); }}\n",
                vectors.join(", ")
            ),
        );
        return Ok(());
    }
    read_packed(shader, "weight", pack_filters(filters, device, group, slices, swapped)?);
    Ok(())
}

/// Replaces the hook `fn name(i: u32) -> vec4<f32>`, which reads vector `i` of a packed constant. The constant is a
/// buffer or a texture, as the target prefers for weights.
pub(crate) fn read_packed(shader: &mut Shader<'_>, name: &str, packed: Packed) {
    let vector = shader.packed_vector(packed, "i");
    shader.replace(name, format!("fn {name}(i: u32) -> vec4<f32> {{ return vec4<f32>({vector}); }}\n"));
}

/// True if a packed operand can be bound on the target.
pub(crate) fn fits(problem: &Problem<'_>, packed: &Packed) -> bool {
    packed.bytes() <= problem.target.limits.max_storage_buffer_range
}

/// Returns the constant of operand `index`, if it can be packed in another layout.
pub(crate) fn constant<'a>(problem: &Problem<'a>, index: usize) -> Option<&'a Constant> {
    let operand: &Operand<'a> = problem.operands.get(index)?;
    operand.constant
}

/// Number of groups of `by` that hold `n`.
pub(crate) fn groups_for(n: i64, by: u32) -> i64 {
    (n + i64::from(by) - 1) / i64::from(by)
}

/// Returns the number of workgroups along each axis: `[x, y]` invocations each along the first two, one each along the
/// third. Returns `None` if a limit is exceeded.
pub(crate) fn workgroups(
    problem: &Problem<'_>,
    [across, down, deep]: [i64; 3],
    [x, y]: [u32; 2],
) -> Option<[i64; 3]> {
    let groups = [groups_for(across, x), groups_for(down, y), deep];
    let limits = problem.target.limits.max_workgroup_count;
    groups.iter().zip(limits).all(|(g, limit)| *g <= i64::from(limit)).then_some(groups)
}

/// Returns the grid of these workgroups.
pub(crate) fn grid([across, down, deep]: [Dim; 3], [x, y]: [u32; 2], z: u32) -> Grid {
    let groups = [across.ceil_div(i64::from(x)), down.ceil_div(i64::from(y)), deep];
    Grid { groups, workgroup: [x, y, z] }
}

/// Returns a two-axis workgroup shape for a grid: among the shapes of about `wanted` and at most `limit` invocations,
/// the one that computes the fewest invocations past the grid's end.
pub(crate) fn group_shape(wanted: u32, limit: u32, width: i64, height: i64) -> [u32; 2] {
    const SHAPES: [[u32; 2]; 12] =
        [[8, 8], [8, 4], [16, 4], [16, 8], [32, 2], [32, 4], [64, 1], [4, 8], [4, 4], [8, 2], [4, 2], [8, 1]];
    let cost = |[x, y]: [u32; 2]| {
        let padded = |n: i64, by: u32| groups_for(n, by) * i64::from(by);
        let lanes = padded(width, x).saturating_mul(padded(height, y));
        // A shape far from the wanted size must save many invocations.
        let ratio = f64::from(x * y) / f64::from(wanted.max(1));
        lanes as f64 * (1.0 + 0.1 * ratio.log2().abs())
    };
    let fits = SHAPES.into_iter().filter(|[x, y]| x * y <= limit);
    fits.min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or([8, 1])
}
