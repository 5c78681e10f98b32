//! Dequantization into pairs of f16, for devices with slow integer-to-float conversions and with f16 arithmetic.
//!
//! A value `q` of `b` bits with zero point `z` becomes `(q - z) / 2^b`, exactly. Its bits are put into the low mantissa
//! bits of an f16 between 1024 and 2048 (for every second 4-bit value, bits 4 to 7), and one FMA subtracts the offset.
//! The result is less than 1, so that dot products with normalized activations stay in the range of f16. The trick with
//! 1024 is from FasterTransformer.

use super::pack::quantized_panels::QuantizedPanels;

/// Returns the WGSL functions `unpack_f16_pair(bits)` (unpacks two f16 from a word), `pack_f16_pair(x, y)` (packs two
/// f16), and `dequantize_pairs(word)` (dequantizes a packed word). The two values of a pair are 4 positions apart in a
/// word of 4-bit values, and 2 positions apart in a word of 8-bit values.
pub(super) fn pair_functions(panels: &QuantizedPanels) -> String {
    let zero_point = f64::from(panels.zero_point);
    let pair = |word: &str, mask: &str, factor: f64, offset: f64| {
        format!(
            "fma(unpack_f16_pair(({word} & {mask}u) | 0x64006400u), vec2<f16>({factor}h), vec2<f16>(-{offset}h))"
        )
    };
    let pairs: Vec<String> = match panels.bits {
        4 => ["word", "(word >> 8u)"]
            .into_iter()
            .flat_map(|word| {
                let first = pair(word, "0x000f000f", 0.0625, 64.0 + zero_point / 16.0);
                [first, pair(word, "0x00f000f0", 0.003_906_25, 4.0 + zero_point / 16.0)]
            })
            .collect(),
        _ => ["word", "(word >> 8u)"]
            .map(|word| pair(word, "0x00ff00ff", 0.003_906_25, 4.0 + zero_point / 256.0))
            .to_vec(),
    };
    format!(
        "fn unpack_f16_pair(bits: u32) -> vec2<f16> {{ return vec2<f16>(unpack2x16float(bits)); }}
fn pack_f16_pair(x: f16, y: f16) -> u32 {{ return pack2x16float(vec2<f32>(vec2<f16>(x, y))); }}
fn dequantize_pairs(word: u32) -> array<vec2<f16>, {0}> {{
    return array<vec2<f16>, {0}>({1});
}}
",
        pairs.len(),
        pairs.join(", ")
    )
}

/// Returns the ratio of a quantized value (without its zero point) to the f16 number that the functions of
/// [`pair_functions`] compute for it.
pub(crate) fn quantized_to_f16_ratio(panels: &QuantizedPanels) -> u32 {
    1 << panels.bits
}

/// Returns the WGSL of the hook `fragment_columns(loads, i)` for quantized weights. The hook returns 8 values along K,
/// as packed f16, of columns `2 * i` and `2 * i + 1` of a group of 4 columns.
pub(crate) fn quantized_fragment_columns(panels: &QuantizedPanels) -> String {
    let word = |pairs: &str, i: usize| format!("pack_f16_pair({pairs}[{i}].x, {pairs}[{i}].y)");
    let (second_statement, words) = match panels.bits {
        4 => ("", [0, 1, 2, 3].map(|i| word("first_pairs", i))),
        _ => (
            "    let second_pairs = dequantize_pairs(second);\n",
            [
                word("first_pairs", 0),
                word("first_pairs", 1),
                word("second_pairs", 0),
                word("second_pairs", 1),
            ],
        ),
    };
    format!(
        "fn column(first: u32, second: u32) -> vec4<u32> {{
    let first_pairs = dequantize_pairs(first);
{second_statement}    return vec4<u32>({});
}}
fn fragment_columns(loads: array<PanelLoad, LOADS_PER_K8>, i: u32) -> array<vec4<u32>, 2> {{
    let first = loads[0];
    let second = loads[LOADS_PER_K8 - 1u];
    return array<vec4<u32>, 2>(column(first[i * 2u], second[i * 2u]), column(first[i * 2u + 1u], second[i * 2u + 1u]));
}}",
        words.join(", ")
    )
}

/// Returns the WGSL of the hook `fragment_columns(loads, i)` for f16 weights. The hook returns 8 values along K of
/// columns `2 * i` and `2 * i + 1`; `loads` holds 8 K positions of 4 columns.
pub(crate) fn f16_fragment_columns() -> String {
    let words = |half: &dyn Fn(usize, usize) -> String| {
        (0..4).map(|j| half(2 * j, 2 * j + 1)).collect::<Vec<_>>().join(", ")
    };
    let even = words(&|x, y| format!("(loads[{x}][i] & 0xffffu) | (loads[{y}][i] << 16u)"));
    let odd = words(&|x, y| format!("(loads[{x}][i] >> 16u) | (loads[{y}][i] & 0xffff0000u)"));
    format!(
        "fn fragment_columns(loads: array<PanelLoad, LOADS_PER_K8>, i: u32) -> array<vec4<u32>, 2> {{
    return array<vec4<u32>, 2>(vec4<u32>({even}), vec4<u32>({odd}));
}}"
    )
}

/// Returns the WGSL of the hook `scale_pairs(pairs, by)`, which multiplies two vectors of packed f16 element by element.
pub(crate) fn scale_pairs_hook() -> String {
    let products = ["x", "y", "z", "w"].map(|lane| format!("scale_pair(pairs.{lane}, by.{lane})"));
    format!(
        "fn scale_pair(x: u32, y: u32) -> u32 {{
    let p = vec2<f16>(unpack2x16float(x)) * vec2<f16>(unpack2x16float(y));
    return pack2x16float(vec2<f32>(p));
}}
fn scale_pairs(pairs: vec4<u32>, by: vec4<u32>) -> vec4<u32> {{ return vec4<u32>({}); }}",
        products.join(", ")
    )
}

/// Returns the body of a WGSL function with the parameters `first`, `second` (packed words), `scale` and `bias`, which
/// dequantizes 8 elements into packed f16.
pub(super) fn dequantize_vec8_body(panels: &QuantizedPanels) -> String {
    let pairs = match panels.bits {
        4 => ["pairs[0]", "pairs[1]", "pairs[2]", "pairs[3]"],
        _ => ["pairs[0]", "pairs[1]", "second_pairs[0]", "second_pairs[1]"],
    };
    let elements: Vec<String> =
        (0..4).map(|i| format!("    let p{i} = fma({}, factor, offset);\n", pairs[i])).collect();
    let (second, words) = match panels.bits {
        4 => ("", ["p0.x, p1.x", "p2.x, p3.x", "p0.y, p1.y", "p2.y, p3.y"]),
        _ => (
            "    let second_pairs = dequantize_pairs(second);\n",
            ["p0.x, p1.x", "p0.y, p1.y", "p2.x, p3.x", "p2.y, p3.y"],
        ),
    };
    format!(
        "    let factor = vec2<f16>(f16(scale * {}.0));
    let offset = vec2<f16>(f16(bias));
    let pairs = dequantize_pairs(first);
{second}{}    return vec4<u32>({});
",
        quantized_to_f16_ratio(panels),
        elements.concat(),
        words.map(|pair| format!("pack_f16_pair({pair})")).join(", ")
    )
}

/// Returns names and WGSL of two hooks of a matvec that dequantizes 4-bit weights in f16. `multiplicands(xs)` packs 8
/// input values along K into f16 pairs, in the order of the pairs of [`pair_functions`]. `add_products(sum, word, xs)`
/// adds the products of a packed word and these pairs.
pub(crate) fn f16_matvec_hooks() -> [(&'static str, String); 2] {
    let pairs =
        ["x", "y", "z", "w"].map(|lane| format!("pack2x16float(vec2<f32>(xs[0].{lane}, xs[1].{lane}))"));
    let products = "fn add_products(sum: f32, word: u32, xs: array<vec4<f32>, 1>) -> f32 {
    let x = bitcast<vec4<u32>>(xs[0]);
    let pairs = dequantize_pairs(word);
    let partial = fma(pairs[1], unpack_f16_pair(x.y), pairs[0] * unpack_f16_pair(x.x));
    let sums = fma(pairs[3], unpack_f16_pair(x.w), fma(pairs[2], unpack_f16_pair(x.z), partial));
    return sum + (f32(sums.x) + f32(sums.y));
}";
    let multiplicands = format!(
        "fn multiplicands(xs: array<vec4<f32>, 2>) -> array<vec4<f32>, 1> {{
    return array<vec4<f32>, 1>(bitcast<vec4<f32>>(vec4<u32>({})));
}}",
        pairs.join(", ")
    );
    [("add_products", products.to_string()), ("multiplicands", multiplicands)]
}
