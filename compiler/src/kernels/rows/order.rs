//! Keys: unsigned numbers in the order of elements, by which one kernel sorts every type.

use crate::shader::Class;

/// The hook `key(x: V) -> U`: larger keys for larger elements, or for smaller ones when `largest` is false.
/// NaN is above every number, and zeros are equal whatever their sign.
pub(super) fn key(class: Class, largest: bool) -> String {
    let ordered = match class {
        Class::Float => {
            "    let bits = bitcast<U>(select(x, V(0.0), x == V(0.0)));
    let ordered = select(bits | U(0x80000000u), ~bits, (bits & U(0x80000000u)) != U(0u));
    let k = select(ordered, U(0xffffffffu), (bits & U(0x7fffffffu)) > U(0x7f800000u));\n"
        }
        Class::Int => "    let k = bitcast<U>(x) ^ U(0x80000000u);\n",
        Class::Uint | Class::Bool => "    let k = U(x);\n",
    };
    let sign = if largest { "" } else { "~" };
    format!("fn key(x: V) -> U {{\n{ordered}    return {sign}k;\n}}")
}
