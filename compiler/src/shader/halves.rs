//! Codes as halves, two at a time, where integers are slow to become floats and the device computes with halves.
//!
//! A code of `b` bits that counts from `z` becomes `(code - z) / 2^b`, exactly: its bits are the last ones of a half from 1024 on (or
//! from 1024 / 16 on, for every second code of 4 bits), which one multiply-add brings down. So codes are less than one, and
//! sums of their products stay within halves where the other factor does. The trick with 1024 is FasterTransformer's.

use super::pack::codes::CodePanels;

/// The functions of pairs: `half_pair(bits)`, two halves of a word, `packed_pair(x, y)`, a word of two halves, and
/// `codes_as_pairs(word)`, the codes of a word: those of 4 bits four places apart, those of 8 bits two.
pub(super) fn functions(form: &CodePanels) -> String {
    let zero = f64::from(form.zero);
    let pair = |word: &str, mask: &str, by: f64, less: f64| {
        format!("fma(half_pair(({word} & {mask}u) | 0x64006400u), vec2<f16>({by}h), vec2<f16>(-{less}h))")
    };
    let pairs: Vec<String> = match form.bits {
        4 => ["word", "(word >> 8u)"]
            .into_iter()
            .flat_map(|word| {
                let first = pair(word, "0x000f000f", 0.0625, 64.0 + zero / 16.0);
                [first, pair(word, "0x00f000f0", 0.003_906_25, 4.0 + zero / 16.0)]
            })
            .collect(),
        _ => ["word", "(word >> 8u)"]
            .map(|word| pair(word, "0x00ff00ff", 0.003_906_25, 4.0 + zero / 256.0))
            .to_vec(),
    };
    format!(
        "fn half_pair(bits: u32) -> vec2<f16> {{ return vec2<f16>(unpack2x16float(bits)); }}
fn packed_pair(x: f16, y: f16) -> u32 {{ return pack2x16float(vec2<f32>(vec2<f16>(x, y))); }}
fn codes_as_pairs(word: u32) -> array<vec2<f16>, {0}> {{
    return array<vec2<f16>, {0}>({1});
}}
",
        pairs.len(),
        pairs.join(", ")
    )
}

/// How many times as large codes are as their pairs.
pub(crate) fn smaller(form: &CodePanels) -> u32 {
    1 << form.bits
}

/// The hook `elements(units, i)` of a product of fragments: eight depths of columns `2 * i` and `2 * i + 1` of four as pairs of halves, of
/// the units that hold their codes.
pub(crate) fn elements_of_codes(form: &CodePanels) -> String {
    let word = |pairs: &str, i: usize| format!("packed_pair({pairs}[{i}].x, {pairs}[{i}].y)");
    let (late, words) = match form.bits {
        4 => ("", [0, 1, 2, 3].map(|i| word("early", i))),
        _ => (
            "    let late = codes_as_pairs(second);\n",
            [word("early", 0), word("early", 1), word("late", 0), word("late", 1)],
        ),
    };
    format!(
        "fn column(first: u32, second: u32) -> vec4<u32> {{
    let early = codes_as_pairs(first);
{late}    return vec4<u32>({});
}}
fn elements(units: array<Unit, UNITS>, i: u32) -> array<vec4<u32>, 2> {{
    let first = units[0];
    let second = units[UNITS - 1u];
    return array<vec4<u32>, 2>(column(first[i * 2u], second[i * 2u]), column(first[i * 2u + 1u], second[i * 2u + 1u]));
}}",
        words.join(", ")
    )
}

/// The same hook where the units are eight depths of four columns in f16.
pub(crate) fn elements_of_halves() -> String {
    let words = |half: &dyn Fn(usize, usize) -> String| {
        (0..4).map(|j| half(2 * j, 2 * j + 1)).collect::<Vec<_>>().join(", ")
    };
    let even = words(&|x, y| format!("(units[{x}][i] & 0xffffu) | (units[{y}][i] << 16u)"));
    let odd = words(&|x, y| format!("(units[{x}][i] >> 16u) | (units[{y}][i] & 0xffff0000u)"));
    format!(
        "fn elements(units: array<Unit, UNITS>, i: u32) -> array<vec4<u32>, 2> {{
    return array<vec4<u32>, 2>(vec4<u32>({even}), vec4<u32>({odd}));
}}"
    )
}

/// The hook `scaled(pairs, by)` of a product of fragments: products of pairs of halves.
pub(crate) fn scaled_pairs() -> String {
    let products = ["x", "y", "z", "w"].map(|lane| format!("scaled_pair(pairs.{lane}, by.{lane})"));
    format!(
        "fn scaled_pair(x: u32, y: u32) -> u32 {{
    let p = vec2<f16>(unpack2x16float(x)) * vec2<f16>(unpack2x16float(y));
    return pack2x16float(vec2<f32>(p));
}}
fn scaled(pairs: vec4<u32>, by: vec4<u32>) -> vec4<u32> {{ return vec4<u32>({}); }}",
        products.join(", ")
    )
}

/// The body of a function of the words `first` and `second`, of `scale` and of `bias`: eight elements in f16, two in a word.
pub(super) fn eight_elements(form: &CodePanels) -> String {
    let pairs = match form.bits {
        4 => ["codes[0]", "codes[1]", "codes[2]", "codes[3]"],
        _ => ["codes[0]", "codes[1]", "more_codes[0]", "more_codes[1]"],
    };
    let elements: Vec<String> =
        (0..4).map(|i| format!("    let p{i} = fma({}, by, more);\n", pairs[i])).collect();
    let (second, words) = match form.bits {
        4 => ("", ["p0.x, p1.x", "p2.x, p3.x", "p0.y, p1.y", "p2.y, p3.y"]),
        _ => (
            "    let more_codes = codes_as_pairs(second);\n",
            ["p0.x, p1.x", "p0.y, p1.y", "p2.x, p3.x", "p2.y, p3.y"],
        ),
    };
    format!(
        "    let by = vec2<f16>(f16(scale * {}.0));
    let more = vec2<f16>(f16(bias));
    let codes = codes_as_pairs(first);
{second}{}    return vec4<u32>({});
",
        smaller(form),
        elements.concat(),
        words.map(|pair| format!("packed_pair({pair})")).join(", ")
    )
}

/// The hooks of a product of rows with codes of 4 bits: `products(sum, word, xs)`, and `taken(xs)`, the eight depths of a word as
/// the pairs that its codes are multiplied with, in one vector.
pub(crate) fn product_hooks() -> [(&'static str, String); 2] {
    let pairs =
        ["x", "y", "z", "w"].map(|lane| format!("pack2x16float(vec2<f32>(xs[0].{lane}, xs[1].{lane}))"));
    let products = "fn products(sum: f32, word: u32, xs: array<vec4<f32>, 1>) -> f32 {
    let x = bitcast<vec4<u32>>(xs[0]);
    let codes = codes_as_pairs(word);
    let early = fma(codes[1], half_pair(x.y), codes[0] * half_pair(x.x));
    let both = fma(codes[3], half_pair(x.w), fma(codes[2], half_pair(x.z), early));
    return sum + (f32(both.x) + f32(both.y));
}";
    let taken = format!(
        "fn taken(xs: array<vec4<f32>, 2>) -> array<vec4<f32>, 1> {{
    return array<vec4<f32>, 1>(bitcast<vec4<f32>>(vec4<u32>({})));
}}",
        pairs.join(", ")
    );
    [("products", products.to_string()), ("taken", taken)]
}
