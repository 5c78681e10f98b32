//! Shared code of kernels that slide windows over images, such as convolution and pooling. It declares the window
//! geometry as WGSL constants, moves the bias into the epilogue, and packs filters in slices of four channels.

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

/// Names of the spatial axes of a window, slowest-varying first. A tensor with fewer than three spatial axes has the
/// last axes of this list.
pub(crate) const AXES: [&str; 3] = ["Z", "Y", "X"];

/// Window geometry along the three spatial axes z, y and x. An axis that the operator lacks has a window of one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) kernel: [usize; 3],
    pub(crate) stride: [usize; 3],
    pub(crate) dilation: [usize; 3],
    /// Padding before the image, in pixels per axis.
    pub(crate) begin: [usize; 3],
    /// Padding after the image, in pixels per axis.
    pub(crate) end: [usize; 3],
    /// Number of trailing axes that are left out, because image, result and window have one position along each of them.
    pub(crate) dropped_axes: usize,
}

impl Windows {
    /// Returns the window geometry of a convolution. Kernels compute neighbors along the last axis together, so
    /// trailing axes of one position are dropped: an image of one column becomes a line.
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

    /// Creates the window geometry from an operator's attributes, which have one number per spatial axis.
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

    /// Returns the sizes of a tensor `[N, C, spatial..]` along z, y and x. Axes that the tensor lacks have size 1.
    pub(crate) fn sizes(&self, shape: &[Dim]) -> [Dim; 3] {
        spatial(shape.get(..shape.len() - self.dropped_axes).unwrap_or(shape))
    }

    /// Replaces the declarations of the batch (`BATCH_INNER`, `batches`), and of the sizes of the source and the result
    /// along `axes` (`in_w`, `out_w` and so on).
    pub(crate) fn declare_image(&self, shader: &mut Shader<'_>, axes: &[usize]) {
        shader.constant("BATCH_INNER", shader.problem.result.is_slices4());
        let [source, result] = [&shader.problem.operands[0], &shader.problem.result].map(|o| o.shape.clone());
        shader.size("batches", &result[0]);
        self.declare_sizes(shader, axes, [&source, &result]);
    }

    /// Replaces the declarations of the sizes of the source and the result along `axes` (`in_w`, `out_w` and so on).
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

    /// True if an image of rank `rank` has a third spatial axis, z.
    pub(crate) fn deep(&self, rank: usize) -> bool {
        rank - self.dropped_axes == 5
    }

    /// Returns the coordinates of four channels of a tensor `[N, C, spatial..]` at a position along z, y and x.
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

    /// Returns the number of taps of a window.
    pub(crate) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Returns, for z, y and x, true if taps of the first or the last window fall outside the image.
    pub(crate) fn padded(&self) -> [bool; 3] {
        [0, 1, 2].map(|i| self.begin[i] > 0 || self.end[i] > 0)
    }

    /// Replaces the constants of the window geometry along `axes`: `KERNEL_X`, `STRIDE_X`, `DILATION_X`, `PAD_X`, and
    /// likewise for y and z.
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

/// Replaces the constants `GUARD_X`, `GUARD_Y` and `GUARD_Z` along `axes`: true if reads of operand `index` outside the
/// image must be masked along that axis. `outside` is true for axes along which the kernel reads outside the image.
pub(crate) fn declare_guards(shader: &mut Shader<'_>, index: usize, axes: &[usize], outside: [bool; 3]) {
    let guards = shader.texture_guards_for_reads(index, outside);
    for &i in axes {
        shader.constant(&format!("GUARD_{}", AXES[i]), guards[i]);
    }
}

/// Returns the last three elements of a list. A shorter list is filled at the front with `default`.
pub(crate) fn last_three(list: &[usize], default: usize) -> [usize; 3] {
    let mut out = [default; 3];
    for (slot, value) in out.iter_mut().rev().zip(list.iter().rev()) {
        *slot = *value;
    }
    out
}

/// Returns the spatial sizes of a tensor `[N, C, spatial..]` along z, y and x. Axes that the tensor lacks have size 1.
pub(crate) fn spatial(shape: &[Dim]) -> [Dim; 3] {
    let mut out = [Dim::known(1), Dim::known(1), Dim::known(1)];
    for (slot, value) in out.iter_mut().rev().zip(shape.iter().skip(2).rev()) {
        slot.clone_from(value);
    }
    out
}

/// Returns the coordinates of a vec4 of channels of a tensor `[N, C, spatial..]`.
pub(crate) fn vec4_channels(rank: usize, batch: &str, slice: &str, spatial: [&str; 3]) -> Coordinates {
    Coordinates::vec4(axes(rank, batch, slice, spatial), 1)
}

/// Returns the coordinates of an element of a tensor `[N, C, spatial..]` as a list of variable names, one per axis.
pub(crate) fn axes(rank: usize, batch: &str, channel: &str, spatial: [&str; 3]) -> Vec<String> {
    let first = 5usize.saturating_sub(rank);
    let spatial = spatial.iter().skip(first).map(|s| (*s).to_string());
    [batch.to_string(), channel.to_string()].into_iter().chain(spatial).collect()
}

/// Returns the value of a size, or `None` if it depends on symbols.
pub(crate) fn known(dim: &Dim) -> Option<usize> {
    usize::try_from(dim.as_known()?).ok()
}

/// Returns the problem with its bias moved into the epilogue: the first step adds operand 2, which has one value per
/// channel. `steps` stores the new epilogue. A problem without operand 2 is returned unchanged.
pub(crate) fn with_bias<'s>(problem: &'s Problem<'_>, steps: &'s mut Vec<EpilogueStep>) -> Problem<'s> {
    with_bias_at(2, problem, steps)
}

/// Moves the bias of a problem into the epilogue like [`with_bias`], for a bias that is operand `index`, the last
/// operand of the operator.
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

/// Returns letter and size of the four axes of convolution filters `[group * O, I, taps]`, or `[group * I, O, taps]` if
/// `swapped`: group, output channels, input channels, taps.
fn filter_axes(filters: &Constant, group: usize, swapped: bool) -> Result<[(char, usize); 4], OpError> {
    let [a, b, taps @ ..] = filters.shape.as_slice() else {
        return Err(OpError::new("convolution filters need two channel axes"));
    };
    let [first, second] = if swapped { ['I', 'O'] } else { ['O', 'I'] };
    Ok([('G', group), (first, a / group.max(1)), (second, *b), ('S', taps.iter().product())])
}

/// Packs convolution filters as vec4s of four output channels. The order, slowest first, is: block of `slices` output
/// slices, tap, input slice, output slice of the block, input channel of the slice. If the convolution has several
/// groups, the output channels of a group must fill whole blocks.
pub(crate) fn pack_filters(
    filters: &Constant,
    device: DeviceType,
    group: usize,
    slices: usize,
    swapped: bool,
) -> Result<Packed, OpError> {
    Ok(I4O4.packed(filters, &filter_axes(filters, group, swapped)?, &[('n', slices)], device))
}

/// Replaces the hook `weight`, which reads a vec4 of packed convolution filters. If the target prefers filters in four
/// textures, replaces the hook `weights` instead, which reads the four vectors of an input slice.
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

/// True if a packed constant is small enough to be bound as a storage buffer on the target.
pub(crate) fn fits(problem: &Problem<'_>, packed: &Packed) -> bool {
    packed.bytes() <= problem.target.limits.max_storage_buffer_range
}

/// Returns the constant of operand `index`, or `None` if the operand is not constant or is quantized. A kernel packs the
/// constant in its own order, which would store quantized values as floats.
pub(crate) fn constant<'a>(problem: &Problem<'a>, index: usize) -> Option<&'a Constant> {
    let operand: &Operand<'a> = problem.operands.get(index)?;
    operand.constant.filter(|_| operand.quantized.is_none())
}

/// Returns the number of groups of `by` items that `n` items need: `n / by`, rounded up.
pub(crate) fn groups_for(n: i64, by: u32) -> i64 {
    (n + i64::from(by) - 1) / i64::from(by)
}

/// Returns the number of workgroups along each axis of a grid of invocations. A workgroup has `[x, y]` invocations
/// along the first two axes and one along the third. Returns `None` if a limit of the target is exceeded.
pub(crate) fn workgroups(
    problem: &Problem<'_>,
    [across, down, deep]: [i64; 3],
    [x, y]: [u32; 2],
) -> Option<[i64; 3]> {
    let groups = [groups_for(across, x), groups_for(down, y), deep];
    let limits = problem.target.limits.max_workgroup_count;
    groups.iter().zip(limits).all(|(g, limit)| *g <= i64::from(limit)).then_some(groups)
}

/// Returns the dispatch grid for work items along three axes. A workgroup covers `x` by `y` by 1 items. It has `z`
/// invocations along the third axis, which share the work of an item.
pub(crate) fn grid([across, down, deep]: [Dim; 3], [x, y]: [u32; 2], z: u32) -> Grid {
    let groups = [across.ceil_div(i64::from(x)), down.ceil_div(i64::from(y)), deep];
    Grid { groups, workgroup: [x, y, z] }
}

/// Returns a workgroup shape for a grid of `width` x `height` invocations: among the shapes of about `wanted` and at
/// most `limit` invocations, the one with the fewest invocations past the grid's end.
pub(crate) fn group_shape(wanted: u32, limit: u32, width: i64, height: i64) -> [u32; 2] {
    const SHAPES: [[u32; 2]; 12] =
        [[8, 8], [8, 4], [16, 4], [16, 8], [32, 2], [32, 4], [64, 1], [4, 8], [4, 4], [8, 2], [4, 2], [8, 1]];
    let cost = |[x, y]: [u32; 2]| {
        let padded = |n: i64, by: u32| groups_for(n, by) * i64::from(by);
        let lanes = padded(width, x).saturating_mul(padded(height, y));
        // A shape far from the wanted size must save many invocations.
        let ratio = f64::from(x * y) / f64::from(wanted.max(1));
        lanes as f64 * (1.0 + 0.1 * libm::log2(ratio).abs())
    };
    let fits = SHAPES.into_iter().filter(|[x, y]| x * y <= limit);
    fits.min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or([8, 1])
}
