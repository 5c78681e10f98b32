//! Resampling operators: Resize, its predecessor Upsample, and GridSample.

use super::lowering::{Call, Lowered, OpEntry, op, op_until};
use super::refused::Refused;
use crate::ir::dim::Dim;
use crate::ir::op::{GridSample, Resize};
use crate::ir::ops::grid_sample::{SampleMode, SamplePadding};
use crate::ir::ops::resize::{Coordinates, Filter, NearestRound};
use crate::ir::tensor::normalize_axis;

pub(super) const OPS: &[OpEntry] =
    &[op("Resize", 10, resize), op_until("Upsample", 7, 9, upsample), op("GridSample", 16, grid_sample)];

/// Values of Resize's attribute `keep_aspect_ratio_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Stretch,
    NotLarger,
    NotSmaller,
}

fn filter(call: &Call<'_>, round: NearestRound) -> Lowered<Filter> {
    Ok(match call.attributes.text("mode", "nearest")? {
        "nearest" => Filter::Nearest(round),
        "linear" | "bilinear" => Filter::Linear,
        "cubic" => Filter::Cubic { a: call.attributes.float("cubic_coeff_a", -0.75)? },
        other => return Err(Refused::attribute("mode", other, "`nearest`, `linear`, `cubic`")),
    })
}

/// Lowers Upsample: the result at position `o` is the input at position `floor(o / scale)`.
fn upsample(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let shape = call.shape(x);
    let filter = filter(call, NearestRound::Floor)?;
    let scales = if call.opset < 9 {
        call.attributes.floats_opt("scales")?.map(<[f32]>::to_vec)
    } else {
        call.known_floats(1, "the scales")?
    };
    let scales = scales.filter(|s| s.len() == shape.len());
    let scales = scales.ok_or_else(|| Refused::new("there must be one scale per axis of operand 0"))?;
    let sizes = scaled_sizes(&shape, &scales)?;
    let op = Resize {
        filter,
        coordinates: Coordinates::Asymmetric,
        scales,
        sizes,
        roi: Vec::new(),
        extrapolation: 0.0,
        antialias: false,
        exclude_outside: false,
    };
    Ok(call.add(op, &[x])?.into())
}

fn resize(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let shape = call.shape(x);
    let rank = shape.len();
    // Opset 10 has neither these attributes nor a region.
    let old = call.opset < 11;
    let coordinates = match call
        .attributes
        .text("coordinate_transformation_mode", if old { "asymmetric" } else { "half_pixel" })?
    {
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        "tf_half_pixel_for_nn" => Coordinates::TfHalfPixelForNn,
        "tf_crop_and_resize" => Coordinates::TfCropAndResize,
        other => {
            let supported = "`half_pixel`, `half_pixel_symmetric`, `pytorch_half_pixel`, `align_corners`, \
                             `asymmetric`, `tf_half_pixel_for_nn`, `tf_crop_and_resize`";
            return Err(Refused::attribute("coordinate_transformation_mode", other, supported));
        }
    };
    let round =
        match call.attributes.text("nearest_mode", if old { "floor" } else { "round_prefer_floor" })? {
            "round_prefer_floor" => NearestRound::RoundPreferFloor,
            "round_prefer_ceil" => NearestRound::RoundPreferCeil,
            "floor" => NearestRound::Floor,
            "ceil" => NearestRound::Ceil,
            other => {
                return Err(Refused::attribute(
                    "nearest_mode",
                    other,
                    "`round_prefer_floor`, `round_prefer_ceil`, `floor`, `ceil`",
                ));
            }
        };
    let filter = filter(call, round)?;
    call.attributes.ignore(&["cubic_coeff_a"]);
    let policy = match call.attributes.text("keep_aspect_ratio_policy", "stretch")? {
        "stretch" => Policy::Stretch,
        "not_larger" => Policy::NotLarger,
        "not_smaller" => Policy::NotSmaller,
        other => {
            return Err(Refused::attribute(
                "keep_aspect_ratio_policy",
                other,
                "`stretch`, `not_larger`, `not_smaller`",
            ));
        }
    };
    let axes = match call.attributes.ints_opt("axes")? {
        Some(list) => list.iter().map(|a| normalize_axis(*a, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    let roi = region(call, coordinates, &axes, rank)?;
    let (scales, sizes) = extents(call, &shape, &axes, policy, &roi)?;
    let unchanged = sizes == shape && scales.iter().all(|s| *s == 1.0);
    let op = Resize {
        filter,
        coordinates,
        scales,
        sizes,
        roi,
        extrapolation: call.attributes.float("extrapolation_value", 0.0)?,
        antialias: call.attributes.flag("antialias", false)? && !matches!(filter, Filter::Nearest(_)),
        exclude_outside: call.attributes.flag("exclude_outside", false)?,
    };
    if unchanged && coordinates != Coordinates::TfCropAndResize {
        return Ok(x.into());
    }
    Ok(call.add(op, &[x])?.into())
}

/// Returns the region that Resize crops in mode tf_crop_and_resize: the starts of all axes, then the ends of all axes.
fn region(call: &Call<'_>, coordinates: Coordinates, axes: &[usize], rank: usize) -> Lowered<Vec<f32>> {
    if coordinates != Coordinates::TfCropAndResize {
        // Other modes ignore the region, which files may still contain.
        call.ignore(&[1]);
        return Ok(Vec::new());
    }
    let given = call.known_floats(1, "the region")?.unwrap_or_default();
    if given.len() != 2 * axes.len() {
        return Err(Refused::new(format!(
            "the region has {} numbers; two for each of {} axes are needed",
            given.len(),
            axes.len()
        )));
    }
    let mut roi = vec![0.0; rank];
    roi.resize(2 * rank, 1.0);
    for (i, axis) in axes.iter().enumerate() {
        roi[*axis] = given[i];
        roi[rank + axis] = given[i + axes.len()];
    }
    Ok(roi)
}

/// Returns the scales and the result sizes of all axes for Resize. The model gives either scales or sizes, for `axes`
/// only.
fn extents(
    call: &Call<'_>,
    shape: &[Dim],
    axes: &[usize],
    policy: Policy,
    roi: &[f32],
) -> Lowered<(Vec<f32>, Vec<Dim>)> {
    let (scales_at, sizes_at) = if call.opset < 11 { (1, 2) } else { (2, 3) };
    let given = call.known_floats(scales_at, "the list of scales")?.filter(|s| !s.is_empty());
    let mut scales = vec![1.0f32; shape.len()];
    if let Some(given) = given {
        if call.dims(sizes_at, "the list of sizes")?.is_some_and(|sizes| !sizes.is_empty()) {
            return Err(Refused::new("both scales and sizes are given; only one is possible"));
        }
        if given.len() != axes.len() {
            return Err(Refused::new(format!(
                "the list of scales has {} values; one for each of {} axes is needed",
                given.len(),
                axes.len()
            )));
        }
        for (axis, scale) in axes.iter().zip(given) {
            scales[*axis] = scale;
        }
        let cropped: Vec<f32> = scales
            .iter()
            .enumerate()
            .map(|(i, s)| if roi.is_empty() { *s } else { s * (roi[i + shape.len()] - roi[i]) })
            .collect();
        let sizes = scaled_sizes(shape, &cropped)?;
        return Ok((scales, sizes));
    }
    let given = call.dims(sizes_at, "the list of sizes")?.filter(|s| s.len() == axes.len());
    let given = given
        .ok_or_else(|| Refused::new("scales or sizes are missing, or do not have one value per axis"))?;
    let mut sizes = shape.to_vec();
    for (axis, size) in axes.iter().zip(&given) {
        scales[*axis] = ratio(size, &shape[*axis])?;
        sizes[*axis] = size.clone();
    }
    if policy != Policy::Stretch {
        let axis_scales = axes.iter().map(|a| scales[*a]);
        let scale = if policy == Policy::NotLarger {
            axis_scales.fold(f32::INFINITY, f32::min)
        } else {
            axis_scales.fold(0.0, f32::max)
        };
        for axis in axes {
            let extent =
                call.known_dim(&shape[*axis], "an input size, which keep_aspect_ratio_policy needs,")?;
            // 0.5 rounds up.
            sizes[*axis] = Dim::known((scale * extent as f32 + 0.5).floor() as i64);
            scales[*axis] = scale;
        }
    }
    Ok((scales, sizes))
}

fn ratio(size: &Dim, extent: &Dim) -> Lowered<f32> {
    if let (Some(size), Some(extent)) = (size.as_known(), extent.as_known())
        && extent > 0
    {
        return Ok(size as f32 / extent as f32);
    }
    let upscale = size.div_exact(extent).and_then(|d| d.as_known()).map(|d| d as f32);
    let downscale = || extent.div_exact(size).and_then(|d| d.as_known()).map(|d| 1.0 / d as f32);
    upscale.or_else(downscale).ok_or_else(|| {
        Refused::new(format!(
            "the scale from {extent} to {size} depends on symbolic sizes; fix them with --dim"
        ))
    })
}

/// Returns the size `floor(extent * scale)` of each axis. For a symbolic extent the scale must be a fraction with a
/// denominator of at most 16.
fn scaled_sizes(shape: &[Dim], scales: &[f32]) -> Lowered<Vec<Dim>> {
    let size = |(extent, scale): (&Dim, &f32)| {
        if !scale.is_finite() || *scale <= 0.0 {
            return Err(Refused::new(format!(
                "the list of scales contains {scale}; every scale must be positive"
            )));
        }
        if let Some(extent) = extent.as_known() {
            return Ok(Dim::known((extent as f32 * scale).floor() as i64));
        }
        let fraction = (1..=16i64).find(|d| (scale * *d as f32).fract() == 0.0);
        let divisor = fraction.ok_or_else(|| {
            Refused::new(format!(
                "the size {extent} * {scale} depends on symbolic sizes; fix them with --dim"
            ))
        })?;
        Ok(extent.scale((scale * divisor as f32) as i64).floor_div(divisor))
    };
    shape.iter().zip(scales).map(size).collect()
}

/// Lowers GridSample. Before opset 20 the modes are named `bilinear` and `bicubic`.
fn grid_sample(call: &mut Call<'_>) -> Lowered {
    let (x, grid) = (call.node(0)?, call.node(1)?);
    if !call.dtype(x).is_float() {
        let kind = call.dtype(x).name();
        return Err(Refused::new(format!(
            "operand 0 has type {kind}; a float type is needed: insert a Cast"
        )));
    }
    let mode = match call.attributes.text("mode", "linear")? {
        "nearest" => SampleMode::Nearest,
        "linear" | "bilinear" => SampleMode::Linear,
        "cubic" | "bicubic" => SampleMode::Cubic,
        other => return Err(Refused::attribute("mode", other, "`nearest`, `linear`, `cubic`")),
    };
    let padding = match call.attributes.text("padding_mode", "zeros")? {
        "zeros" => SamplePadding::Zeros,
        "border" => SamplePadding::Border,
        "reflection" => SamplePadding::Reflection,
        other => return Err(Refused::attribute("padding_mode", other, "`zeros`, `border`, `reflection`")),
    };
    let align_corners = call.attributes.flag("align_corners", false)?;
    Ok(call.add(GridSample { mode, padding, align_corners }, &[x, grid])?.into())
}
