//! Sort keys of elements: unsigned integers that have the order of the elements, so that one kernel sorts all types.

use crate::shader::ValueType;

/// Returns the WGSL of the hook `key(x: V) -> U`, the sort key of an element: larger keys for larger elements, or for
/// smaller elements if `largest` is false. NaN counts as greater than every number. Positive and negative zero are equal.
pub(super) fn key_function(class: ValueType, largest: bool) -> String {
    let ordered = match class {
        ValueType::Float => {
            "    let bits = bitcast<U>(select(x, V(0.0), x == V(0.0)));
    let ordered = select(bits | U(0x80000000u), ~bits, (bits & U(0x80000000u)) != U(0u));
    let k = select(ordered, U(0xffffffffu), (bits & U(0x7fffffffu)) > U(0x7f800000u));\n"
        }
        ValueType::Int => "    let k = bitcast<U>(x) ^ U(0x80000000u);\n",
        ValueType::Uint | ValueType::Bool => "    let k = U(x);\n",
    };
    let sign = if largest { "" } else { "~" };
    format!("fn key(x: V) -> U {{\n{ordered}    return {sign}k;\n}}")
}
