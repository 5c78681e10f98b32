//! WGSL functions that read eight elements at a time, for kernels on matrix units.

use crate::error::OpError;
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::kernels::shared::words::{parameter_names, word_read};
use crate::shader::access::{Access, Coordinates, tensor_access};
use crate::shader::problem::{Operand, Placement};
use crate::shader::{Bound, Shader};

/// Returns the WGSL function `name`, which reads eight elements of operand `index` that are adjacent along axis
/// `at.lanes`: as four f16 pairs, or as two words of 8-bit integers. The coordinate of `at` along this axis is the name
/// of the function's parameter that holds the index of a group of eight elements.
pub(crate) fn vec8_read(
    shader: &mut Shader<'_>,
    name: &str,
    params: &str,
    prelude: &str,
    index: usize,
    at: &Coordinates,
) -> Result<String, OpError> {
    let operand = shader
        .problem
        .operands
        .get(index)
        .ok_or_else(|| OpError::new(format!("operand {index} is missing")))?
        .clone();
    let lane = at.lanes.ok_or_else(|| {
        OpError::new("a read of eight elements names no axis along which they are adjacent")
    })?;
    let variable = at.axes[lane].clone();
    let ty = if operand.dtype.is_float() { "vec4<f32>" } else { "vec2<f32>" };
    if let Some(vec8s) = as_vec8s(&operand, lane) {
        // A tensor of pairs: its vec4s are eight elements.
        let how = tensor_access(&mut shader.sizes, &vec8s, at, true);
        if let Access::Vector { index: place } = how {
            let buffer = shader.bind(Bound::Operand(index), ty, false);
            return Ok(format!(
                "fn {name}({params}) -> {ty} {{\n{prelude}    return {buffer}[{place}];\n}}\n"
            ));
        }
    }
    let vec4_function = vec4_read(shader, &format!("{name}_vec4"), params, &variable, prelude, index, at)?;
    let names = parameter_names(params);
    let call = |place: String| {
        let args: Vec<String> =
            names.iter().map(|n| if *n == variable { place.clone() } else { (*n).to_string() }).collect();
        format!("{name}_vec4({})", args.join(", "))
    };
    let end = operand.shape[lane].ceil_div(4);
    let second = format!("{variable} * 2u + 1u");
    let high = if end.is_multiple_of(2) {
        call(second)
    } else {
        let end = shader.dim(&end);
        let zero = if operand.dtype.is_float() { "vec2<f32>()" } else { "0.0" };
        format!("select({zero}, {}, {second} < {end})", call(format!("min({second}, {end} - 1u)")))
    };
    let low = call(format!("{variable} * 2u"));
    Ok(format!("{vec4_function}fn {name}({params}) -> {ty} {{\n    return {ty}({low}, {high});\n}}\n"))
}

/// Returns the WGSL function `name`, which reads four adjacent elements of operand `index` as two f16 pairs or as one
/// word of 8-bit integers. `variable` is the name of the parameter that holds the index of a group of four elements.
fn vec4_read(
    shader: &mut Shader<'_>,
    name: &str,
    params: &str,
    variable: &str,
    prelude: &str,
    index: usize,
    at: &Coordinates,
) -> Result<String, OpError> {
    let operand = shader.problem.operands[index].clone();
    let mut vec4_at = at.clone();
    if let Some(lane) = at.lanes {
        vec4_at.axes[lane] = variable.to_string();
    }
    let how = tensor_access(&mut shader.sizes, &operand, &vec4_at, false);
    let plain_buffer = operand.storage == Storage::Buffer && operand.quantized.is_none();
    let raw_f16 = operand.dtype.on_device() == DeviceType::F16 && plain_buffer;
    if let (Access::Vector { index: place }, true) = (&how, raw_f16) {
        let buffer = shader.bind(Bound::Operand(index), "vec2<f32>", false);
        return Ok(format!(
            "fn {name}({params}) -> vec2<f32> {{\n{prelude}    return {buffer}[{place}];\n}}\n"
        ));
    }
    let names = parameter_names(params);
    if !operand.dtype.is_float() {
        let word = word_read(shader, &format!("{name}_word"), params, prelude, index, &vec4_at);
        let call = format!("{name}_word({})", names.join(", "));
        return Ok(format!("{word}fn {name}({params}) -> f32 {{\n    return bitcast<f32>({call});\n}}\n"));
    }
    let plain = shader.read_fn(&format!("{name}_plain"), params, prelude, index, &vec4_at, false);
    Ok(format!(
        "{plain}fn {name}({params}) -> vec2<f32> {{
    let v = {name}_plain({});
    return bitcast<vec2<f32>>(vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw)));
}}
",
        names.join(", ")
    ))
}

/// Returns an operand of f16 or 8-bit integers seen as a tensor of pairs of elements, in which a vec4 holds eight
/// elements. Returns `None` if the operand has another type or if eight adjacent elements along axis `lane` are not an
/// aligned vector.
pub(crate) fn as_vec8s<'a>(operand: &Operand<'a>, lane: usize) -> Option<Operand<'a>> {
    let Placement::Strided { strides, offset } = &operand.placement else { return None };
    let device = operand.dtype.on_device();
    if device != DeviceType::F16 && !device.is_8_bit() || operand.quantized.is_some() {
        return None;
    }
    let others = strides.iter().enumerate().filter(|(i, _)| *i != lane && !operand.shape[*i].is(1));
    let aligned = others.map(|(_, s)| s).chain([offset, &operand.shape[lane]]).all(|d| d.is_multiple_of(8));
    if !aligned || !strides[lane].is(1) {
        return None;
    }
    let mut pairs = operand.clone();
    let strides = strides.iter().enumerate().map(|(i, s)| if i == lane { s.clone() } else { s.floor_div(2) });
    pairs.placement = Placement::Strided { strides: strides.collect(), offset: offset.floor_div(2) };
    pairs.shape[lane] = operand.shape[lane].floor_div(2);
    Some(pairs)
}
