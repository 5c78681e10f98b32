//! Operands of the kernels on matrix units, which arrive as eight elements at a time.

use crate::error::OpError;
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::shader::access::{Access, Coordinates, access};
use crate::shader::problem::{Operand, Placement};
use crate::shader::{Bound, Shader};

/// The text of a function that reads eight neighbours of operand `index` along the lane axis as four words of f16, or as
/// two of numbers of 8 bits.
/// `at` gives the coordinates with the lane's place as the name of a variable that counts groups of eight.
pub(crate) fn eight(
    shader: &mut Shader<'_>,
    name: &str,
    params: &str,
    prelude: &str,
    index: usize,
    at: &Coordinates,
) -> Result<String, OpError> {
    let operand =
        shader.problem.operands.get(index).ok_or_else(|| OpError::new("a missing operand"))?.clone();
    let lane = at.lanes.ok_or_else(|| OpError::new("eight elements lie along an axis"))?;
    let variable = at.axes[lane].clone();
    if let Some(octets) = octets(&operand, lane) {
        // Seen as a tensor of vectors of four that lie in pairs, the pairs are vectors of eight.
        let how = access(&mut shader.words, &octets, at, true);
        if let Access::Vector { index: place } = how {
            let buffer = shader.bind(Bound::Operand(index), "vec4<f32>", false);
            return Ok(format!(
                "fn {name}({params}) -> vec4<f32> {{\n{prelude}    return {buffer}[{place}];\n}}\n"
            ));
        }
    }
    let half = four(shader, &format!("{name}_four"), params, &variable, prelude, index, at)?;
    let names = names(params);
    let call = |place: String| {
        let args: Vec<String> =
            names.iter().map(|n| if *n == variable { place.clone() } else { (*n).to_string() }).collect();
        format!("{name}_four({})", args.join(", "))
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
    let ty = if operand.dtype.is_float() { "vec4<f32>" } else { "vec2<f32>" };
    Ok(format!("{half}fn {name}({params}) -> {ty} {{\n    return {ty}({low}, {high});\n}}\n"))
}

/// The names in a list of parameters such as `batch: u32, row: u32`.
fn names(params: &str) -> Vec<&str> {
    params.split(',').filter_map(|p| p.split(':').next()).map(str::trim).collect()
}

/// The text of a function that reads four neighbours as two words of f16, or as one of numbers of 8 bits; `variable`,
/// one of `params`, counts groups of four.
fn four(
    shader: &mut Shader<'_>,
    name: &str,
    params: &str,
    variable: &str,
    prelude: &str,
    index: usize,
    at: &Coordinates,
) -> Result<String, OpError> {
    let operand = shader.problem.operands[index].clone();
    let mut here = at.clone();
    if let Some(lane) = at.lanes {
        here.axes[lane] = variable.to_string();
    }
    let how = access(&mut shader.words, &operand, &here, false);
    let elements = operand.storage == Storage::Buffer && operand.codes.is_none();
    let raw = operand.dtype.on_device() == DeviceType::F16 && elements;
    if let (Access::Vector { index: place }, true) = (&how, raw) {
        let buffer = shader.bind(Bound::Operand(index), "vec2<f32>", false);
        return Ok(format!(
            "fn {name}({params}) -> vec2<f32> {{\n{prelude}    return {buffer}[{place}];\n}}\n"
        ));
    }
    let plain = shader.read_fn(&format!("{name}_plain"), params, prelude, index, &here, false);
    let names = names(params);
    if !operand.dtype.is_float() {
        let word = format!("word(vec4<u32>({name}_plain({})))", names.join(", "));
        return Ok(format!("{plain}fn {name}({params}) -> f32 {{\n    return bitcast<f32>({word});\n}}\n"));
    }
    Ok(format!(
        "{plain}fn {name}({params}) -> vec2<f32> {{
    let v = {name}_plain({});
    return bitcast<vec2<f32>>(vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw)));
}}
",
        names.join(", ")
    ))
}

/// The operand as a tensor whose vectors of four are eight elements; `None` where eight neighbours along `lane` are
/// not an aligned vector.
pub(crate) fn octets<'a>(operand: &Operand<'a>, lane: usize) -> Option<Operand<'a>> {
    let Placement::Strided { strides, offset } = &operand.placement else { return None };
    if operand.dtype.on_device() != DeviceType::F16 || operand.codes.is_some() {
        return None;
    }
    let others = strides.iter().enumerate().filter(|(i, _)| *i != lane && !operand.shape[*i].is(1));
    let aligned = others.map(|(_, s)| s).chain([offset, &operand.shape[lane]]).all(|d| d.is_multiple_of(8));
    if !aligned || !strides[lane].is(1) {
        return None;
    }
    let mut half = operand.clone();
    let strides = strides.iter().enumerate().map(|(i, s)| if i == lane { s.clone() } else { s.floor_div(2) });
    half.placement = Placement::Strided { strides: strides.collect(), offset: offset.floor_div(2) };
    half.shape[lane] = operand.shape[lane].floor_div(2);
    Some(half)
}
