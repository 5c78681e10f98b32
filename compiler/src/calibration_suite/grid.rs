//! Graphs of the calibration suite with sizes that occur in networks, in text form.
//!
//! Most graphs begin with an elementwise operator, so that the tested operator reads values of the graph's precision.

use super::integers;

/// M, K and N of matmuls whose second operand is constant.
const MATMULS: &[[u32; 3]] = &[
    [1, 512, 512],
    [1, 768, 768],
    [1, 768, 3072],
    [1, 3072, 768],
    [1, 2048, 1000],
    [1, 2048, 2048],
    [1, 4096, 4096],
    [2, 1024, 4096],
    [4, 768, 3072],
    [4, 4096, 4096],
    [8, 2048, 2048],
    [16, 768, 768],
    [16, 1024, 4096],
    [32, 1024, 1024],
    [50, 768, 768],
    [64, 2048, 2048],
    [128, 384, 384],
    [128, 384, 1536],
    [128, 768, 768],
    [128, 3072, 768],
    [197, 768, 2304],
    [256, 1024, 1024],
    [256, 2048, 2048],
    [256, 2048, 8192],
    [256, 8192, 2048],
    [256, 4096, 4096],
    [512, 1024, 4096],
    [1500, 512, 512],
    [4096, 320, 320],
    [4096, 320, 1280],
    [8192, 320, 2560],
    [8192, 1280, 320],
    [2048, 640, 5120],
    [512, 1280, 1280],
    [197, 768, 3072],
    [1500, 384, 1536],
    [577, 768, 3072],
    [197, 3072, 768],
];

/// Operation after a matmul with a bias in a transformer.
#[derive(Clone, Copy)]
enum After {
    /// Nothing, as in a projection of queries, keys and values.
    Bias,
    Gelu,
    Residual,
}

/// M, K and N of matmuls of transformers, and the operation after them. Their results are stored in the precision of the graph.
const LAYERS: &[([u32; 3], After)] = &[
    ([50, 768, 3072], After::Gelu),
    ([50, 3072, 768], After::Residual),
    ([128, 768, 2304], After::Bias),
    ([128, 768, 3072], After::Gelu),
    ([128, 3072, 768], After::Residual),
    ([197, 768, 768], After::Residual),
    ([197, 768, 2304], After::Bias),
    ([197, 768, 3072], After::Gelu),
    ([197, 3072, 768], After::Residual),
    ([257, 384, 1152], After::Bias),
    ([257, 1536, 384], After::Residual),
    ([577, 768, 2304], After::Bias),
    ([577, 3072, 768], After::Residual),
    ([1500, 384, 1152], After::Bias),
    ([1500, 384, 1536], After::Gelu),
    ([1500, 1536, 384], After::Residual),
    ([49, 3072, 768], After::Residual),
    ([196, 384, 1536], After::Gelu),
    ([196, 1536, 384], After::Residual),
    ([784, 768, 192], After::Residual),
    ([3136, 96, 384], After::Gelu),
    ([512, 1280, 1280], After::Residual),
    ([2048, 640, 640], After::Residual),
    ([8192, 320, 960], After::Bias),
    ([8192, 1280, 320], After::Residual),
    ([8192, 320, 2560], After::Bias),
    ([8192, 320, 320], After::Residual),
    ([2048, 640, 5120], After::Bias),
    ([2048, 2560, 640], After::Residual),
    ([512, 1280, 10240], After::Bias),
    ([512, 5120, 1280], After::Residual),
];

/// Batch size, M, K and N of matmuls of two computed values. The flag is true if the second operand is transposed.
const BATCHED_MATMULS: &[([u32; 4], bool)] = &[
    ([12, 128, 64, 128], true),
    ([12, 128, 128, 64], false),
    ([8, 512, 64, 512], true),
    ([8, 512, 512, 64], false),
    ([16, 1, 64, 512], true),
    ([16, 1, 512, 64], false),
];

/// M, N and K of matmuls with quantized weights, and the encoding of the weights.
const QUANTIZED_MATMULS: &[([u32; 3], &str)] = &[
    ([1, 2048, 2048], "q8_0"),
    ([1, 2048, 2048], "q4_0"),
    ([1, 4096, 4096], "q8_0"),
    ([1, 4096, 4096], "q4_0"),
    ([1, 3072, 3072], "u8 in groups of 3072"),
    ([1, 3072, 8192], "u4 in groups of 128"),
    ([1, 3072, 8192], "u8 in groups of 8192"),
    ([1, 8192, 3072], "q4_0"),
    ([4, 2048, 2048], "q8_0"),
    ([8, 4096, 4096], "q4_0"),
    ([8, 3072, 8192], "u4 in groups of 128"),
    ([16, 2048, 2048], "u4 in groups of 128"),
    ([16, 3072, 3072], "u8 in groups of 3072"),
    ([16, 3072, 8192], "u8 in groups of 8192"),
    ([64, 2048, 2048], "q8_0"),
    ([256, 2048, 2048], "q4_0"),
];

/// M, N and K of fused matmuls, and the encoding of their weights (empty for floats). The first flag is true for a
/// fused SwiGLU gate, the second for a fused RMSNorm.
const FUSED_MATMULS: &[([u32; 3], &str, bool, bool)] = &[
    ([1, 2048, 2048], "", false, true),
    ([1, 8192, 2048], "", true, true),
    ([1, 3072, 3072], "", false, true),
    ([4, 8192, 2048], "", true, true),
    ([1, 3072, 3072], "q8_0", false, true),
    ([1, 8192, 3072], "q8_0", true, true),
    ([1, 8192, 3072], "u8 in groups of 3072", true, true),
    ([1, 3072, 3072], "u4 in groups of 128", false, true),
    ([1, 8192, 3072], "u4 in groups of 128", true, true),
    ([8, 8192, 3072], "q4_0", true, true),
    ([8, 5120, 3072], "u4 in groups of 128", false, true),
    ([16, 8192, 3072], "u4 in groups of 128", true, true),
    ([16, 8192, 3072], "u8 in groups of 3072", true, true),
    ([4, 8192, 2048], "q8_0", true, false),
    ([8, 8192, 3072], "u4 in groups of 128", true, false),
    ([16, 8192, 3072], "u4 in groups of 128", true, false),
    ([16, 8192, 3072], "u8 in groups of 3072", true, false),
    ([16, 14336, 4096], "u8 in groups of 4096", true, false),
];

/// Input channels, output channels, image side, filter side, stride and groups of convolutions.
const CONVOLUTIONS: &[[u32; 6]] = &[
    [3, 32, 224, 3, 2, 1],
    [3, 64, 224, 7, 2, 1],
    [3, 768, 224, 16, 16, 1],
    [16, 16, 128, 3, 1, 1],
    [32, 64, 112, 1, 1, 1],
    [64, 64, 56, 1, 1, 1],
    [64, 64, 56, 3, 1, 1],
    [64, 256, 56, 1, 1, 1],
    [128, 128, 28, 3, 1, 1],
    [128, 128, 56, 3, 2, 1],
    [256, 512, 14, 1, 1, 1],
    [256, 256, 14, 3, 1, 1],
    [512, 512, 7, 3, 1, 1],
    [512, 2048, 7, 1, 1, 1],
    [96, 24, 56, 1, 1, 1],
    [24, 144, 56, 1, 1, 1],
    [160, 960, 7, 1, 1, 1],
    [320, 320, 64, 3, 1, 1],
    [128, 128, 28, 3, 1, 32],
    [32, 32, 112, 3, 1, 32],
    [96, 96, 112, 3, 2, 96],
    [144, 144, 56, 3, 1, 144],
    [576, 576, 14, 3, 1, 576],
    [960, 960, 7, 3, 1, 960],
    [240, 240, 28, 5, 2, 240],
    [1280, 1280, 8, 3, 1, 1],
    [1280, 1280, 16, 3, 1, 1],
    [640, 640, 32, 3, 1, 1],
    [256, 256, 96, 3, 1, 1],
    [1024, 256, 14, 1, 1, 1],
    [640, 640, 32, 3, 2, 1],
    [2560, 1280, 8, 3, 1, 1],
    [960, 320, 64, 1, 1, 1],
    [320, 320, 64, 3, 2, 1],
    [96, 96, 56, 7, 1, 96],
    [192, 192, 28, 7, 1, 192],
    [384, 384, 14, 7, 1, 384],
    [768, 768, 7, 7, 1, 768],
    [256, 256, 64, 3, 1, 256],
];

/// Input channels, output channels, image side, filter side, stride and groups of convolutions of two images.
const BATCHED_CONVOLUTIONS: &[[u32; 6]] = &[
    [320, 320, 64, 3, 1, 1],
    [640, 640, 32, 3, 1, 1],
    [960, 640, 32, 3, 1, 1],
    [1280, 1280, 16, 3, 1, 1],
    [1280, 1280, 8, 3, 1, 1],
    [2560, 1280, 8, 3, 1, 1],
    [640, 320, 64, 1, 1, 1],
];

/// Input channels, output channels, image side, filter side, stride and groups of convolutions with filters of 8 bits, which
/// have a scale for each output channel.
const QUANTIZED_CONVOLUTIONS: &[[u32; 6]] = &[
    [320, 320, 64, 3, 1, 1],
    [1280, 1280, 8, 3, 1, 1],
    [1280, 1280, 16, 3, 1, 1],
    [640, 640, 32, 3, 1, 1],
    [2560, 1280, 16, 3, 1, 1],
    [640, 640, 32, 3, 2, 1],
    [512, 512, 128, 3, 1, 1],
    [128, 128, 256, 3, 1, 1],
    [960, 320, 64, 1, 1, 1],
    [256, 256, 14, 3, 1, 1],
];

/// Batch size, input channels, output channels, image side, filter side and stride of convolutions that read an input
/// of the graph.
const STEMS: &[[u32; 6]] =
    &[[1, 3, 32, 224, 3, 2], [8, 3, 16, 224, 3, 2], [1, 3, 64, 224, 7, 2], [1, 1, 16, 256, 5, 1]];

/// Input channels, output channels and image side of depthwise-separable convolutions.
const SEPARABLE: &[[u32; 3]] = &[[32, 64, 112], [128, 128, 56], [256, 256, 28], [512, 512, 14]];

/// Input channels, output channels, image side, filter side and stride of transposed convolutions.
const TRANSPOSED_CONVOLUTIONS: &[[u32; 5]] = &[[128, 64, 32, 4, 2], [64, 32, 64, 2, 2], [32, 3, 128, 4, 2]];

/// Query heads, key heads, number of queries, number of keys and head size of attention operators.
const ATTENTIONS: &[[u32; 5]] = &[
    [12, 12, 128, 128, 64],
    [16, 16, 512, 512, 64],
    [12, 12, 197, 197, 64],
    [8, 8, 4096, 77, 40],
    [8, 8, 1024, 1024, 80],
    [32, 8, 1, 512, 64],
    [32, 8, 1, 2048, 64],
    [32, 8, 1, 4096, 128],
    [24, 8, 1, 16384, 128],
    [32, 8, 1, 32768, 128],
    [32, 8, 4, 2048, 64],
    [24, 8, 8, 1024, 128],
    [32, 8, 16, 1024, 128],
    [24, 8, 16, 16384, 128],
    [32, 8, 256, 1280, 64],
    [6, 6, 1, 1500, 64],
    [8, 8, 4096, 4096, 40],
    [6, 6, 1500, 1500, 64],
    [12, 12, 577, 577, 64],
    [6, 6, 257, 257, 64],
    [12, 12, 50, 50, 64],
    [1, 1, 1024, 1024, 512],
];

/// Number and length of the rows that softmax, normalization, reductions and similar operators process.
const ROWS: &[[u32; 2]] =
    &[[1, 768], [1, 4096], [1, 32000], [16, 2048], [128, 768], [256, 4096], [1536, 128], [4096, 320]];

/// Number and length of the rows of LayerNorms in vision networks.
const NORMS: &[[u32; 2]] =
    &[[50, 768], [197, 768], [577, 768], [1500, 384], [3136, 96], [784, 192], [8192, 320], [512, 1280]];

/// Channels, image side and result side, then the number of spatial axes and the interpolation mode of `grid-sample`
/// operators.
const GRID_SAMPLES: &[([u32; 3], usize, &str)] = &[
    ([3, 512, 512], 2, "linear"),
    ([64, 128, 128], 2, "linear"),
    ([64, 128, 128], 2, "nearest"),
    ([64, 128, 128], 2, "cubic"),
    ([256, 32, 64], 2, "linear"),
    ([256, 32, 10], 2, "linear"),
    ([32, 256, 64], 2, "cubic"),
    ([32, 32, 32], 3, "linear"),
    ([16, 48, 48], 3, "nearest"),
];

/// Sequence length, batch size and hidden size of LSTMs.
const RECURRENT: &[[u32; 3]] = &[[32, 1, 128], [32, 1, 256], [50, 8, 128], [100, 16, 64]];

/// Returns every graph with its name. The order of the calibration suite follows from hashes of the names.
pub(super) fn graphs() -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut add = |kind: &str, texts: Vec<String>| {
        out.extend(texts.into_iter().enumerate().map(|(i, text)| (format!("grid {kind} {i}"), text)));
    };
    add("product", MATMULS.iter().map(|sizes| matmul(*sizes)).collect());
    let every_third = MATMULS.iter().step_by(3);
    add("transposed matmul", every_third.map(|sizes| matmul_transposed(*sizes, "")).collect());
    add("layer", LAYERS.iter().map(|(sizes, after)| layer(*sizes, *after)).collect());
    add("pair", BATCHED_MATMULS.iter().map(|(sizes, trans)| batched_matmul(*sizes, *trans)).collect());
    let quantized = |([m, n, k], encoding): &([u32; 3], &str)| matmul_transposed([*m, *k, *n], encoding);
    add("quantized matmul", QUANTIZED_MATMULS.iter().map(quantized).collect());
    add("integer matmul", integers::matmuls());
    add("integer layer", integers::layers());
    add("integer convolution", integers::convolutions());
    let fused = |(sizes, encoding, gated, normalized): &([u32; 3], &str, bool, bool)| {
        fused_matmul(*sizes, encoding, *gated, *normalized)
    };
    add("fused matmul", FUSED_MATMULS.iter().map(fused).collect());
    add("convolution", CONVOLUTIONS.iter().map(|sizes| conv(1, *sizes, "")).collect());
    add(
        "convolution of several images",
        BATCHED_CONVOLUTIONS.iter().map(|sizes| conv(2, *sizes, "")).collect(),
    );
    let per_output = |sizes: &[u32; 6]| format!("u8 in groups of {}", sizes[0] * sizes[3] * sizes[3]);
    add(
        "quantized convolution",
        QUANTIZED_CONVOLUTIONS.iter().map(|sizes| conv(1, *sizes, &per_output(sizes))).collect(),
    );
    add("convolution of an input", STEMS.iter().map(|sizes| stem(*sizes)).collect());
    add("separable", SEPARABLE.iter().map(|sizes| separable(*sizes)).collect());
    add(
        "transposed convolution",
        TRANSPOSED_CONVOLUTIONS.iter().map(|sizes| conv_transpose(*sizes)).collect(),
    );
    add("winograd", [[64, 56], [128, 28], [256, 14]].into_iter().map(winograd).collect());
    add("attention", ATTENTIONS.iter().map(|sizes| attention(*sizes)).collect());
    add("rows", ROWS.iter().flat_map(|sizes| rows(*sizes)).collect());
    add("norm", NORMS.iter().map(|sizes| norm(*sizes)).collect());
    let sampled = |(sizes, axes, mode): &([u32; 3], usize, &str)| grid_sample(*sizes, *axes, mode);
    add("grid_sample", GRID_SAMPLES.iter().map(sampled).collect());
    add("recurrent", RECURRENT.iter().map(|sizes| recurrent(*sizes)).collect());
    add("image", [[64, 112], [256, 28], [32, 256]].into_iter().flat_map(images).collect());
    add("table", [[8000, 768, 128], [1000, 64, 500]].into_iter().flat_map(tables).collect());
    out
}

fn input(id: u32, name: &str, shape: &[u32]) -> String {
    format!("%{id} = input {{\"name\":\"{name}\",\"dtype\":\"f32\",\"shape\":{shape:?}}}\n")
}

fn constant(id: u32, shape: &[u32]) -> String {
    encoded(id, shape, "")
}

/// Returns a constant in an encoding, or a constant of plain floats if `encoding` is empty.
fn encoded(id: u32, shape: &[u32], encoding: &str) -> String {
    let encoding = if encoding.is_empty() { String::new() } else { format!(",\"encoding\":\"{encoding}\"") };
    format!("%{id} = constant {{\"dtype\":\"f32\",\"shape\":{shape:?}{encoding},\"random\":{id}}}\n")
}

const PLAIN: &str = "{\"trans_a\":false,\"trans_b\":false}";
const TRANSPOSED_B: &str = "{\"trans_a\":false,\"trans_b\":true}";

fn matmul([m, k, n]: [u32; 3]) -> String {
    let (a, b) = (input(0, "a", &[m, k]), constant(1, &[k, n]));
    format!("{a}{b}%2 = neg %0\n%3 = matmul %2 %1 {PLAIN}\noutput \"c\" %3\n")
}

fn layer([m, k, n]: [u32; 3], after: After) -> String {
    let (a, b, bias) = (input(0, "a", &[m, k]), constant(1, &[k, n]), constant(2, &[n]));
    let matmul = format!("{a}{b}{bias}%3 = neg %0\n%4 = matmul %3 %1 {PLAIN}\n%5 = add %4 %2\n");
    let (last, steps) = match after {
        After::Bias => (5, String::new()),
        After::Gelu => (6, "%6 = gelu %5\n".to_string()),
        After::Residual => (8, format!("{}%7 = neg %6\n%8 = add %5 %7\n", input(6, "r", &[m, n]))),
    };
    // The result of a graph is f32 in every precision, so the matmul is not the last node.
    format!(
        "{matmul}{steps}%9 = reduce %{last} {{\"kind\":\"mean\",\"axes\":[1],\"keepdims\":true}}\noutput \"c\" %9\n"
    )
}

fn matmul_transposed([m, k, n]: [u32; 3], encoding: &str) -> String {
    let (a, b) = (input(0, "a", &[m, k]), encoded(1, &[n, k], encoding));
    format!("{a}{b}%2 = neg %0\n%3 = matmul %2 %1 {TRANSPOSED_B}\noutput \"c\" %3\n")
}

fn fused_matmul([m, n, k]: [u32; 3], encoding: &str, gated: bool, normalized: bool) -> String {
    let matrix = |id: u32| encoded(id, &[n, k], encoding);
    let (a, first) = (input(0, "a", &[1, m, k]), matrix(2));
    let (scale, scaled, epsilon) =
        if normalized { (constant(1, &[k]), " %1", "0.00001") } else { (String::new(), "", "null") };
    let (second, operands, gate) = if gated {
        let swish = "{\"element\":{\"unary\":{\"swish\":{\"alpha\":1.0}}},\"args\":[{\"step\":0}]}";
        let product = "{\"element\":{\"binary\":\"mul\"},\"args\":[{\"step\":1},{\"input\":2}]}";
        (matrix(3), "%2 %3", format!("{swish},{product}"))
    } else {
        (String::new(), "%2", String::new())
    };
    format!(
        "{a}{scale}{first}{second}%4 = neg %0\n%5 = fused-matmul %4 {operands}{scaled} {{\"matmul\":{TRANSPOSED_B},\"epsilon\":{epsilon},\"gate\":[{gate}]}}\noutput \"c\" %5\n"
    )
}

fn batched_matmul([batch, m, k, n]: [u32; 4], trans: bool) -> String {
    let (second, attributes) = if trans { ([batch, n, k], TRANSPOSED_B) } else { ([batch, k, n], PLAIN) };
    let (a, b) = (input(0, "a", &[batch, m, k]), input(1, "b", &second));
    format!("{a}{b}%2 = neg %0\n%3 = neg %1\n%4 = matmul %2 %3 {attributes}\noutput \"c\" %4\n")
}

fn conv(batch: u32, [ci, co, side, window, stride, group]: [u32; 6], encoding: &str) -> String {
    let pad = if stride == window { 0 } else { window / 2 };
    let x = input(0, "x", &[batch, ci, side, side]);
    let filters = encoded(2, &[co, ci / group, window, window], encoding);
    let bias = constant(3, &[co]);
    format!(
        "{x}%1 = neg %0\n{filters}{bias}%4 = conv %1 %2 %3 {{\"strides\":[{stride},{stride}],\"dilations\":[1,1],\"pads_begin\":[{pad},{pad}],\"pads_end\":[{pad},{pad}],\"group\":{group}}}\n%5 = relu %4\noutput \"y\" %5\n"
    )
}

fn stem([batch, ci, co, side, window, stride]: [u32; 6]) -> String {
    let pad = window / 2;
    let (x, filters) = (input(0, "x", &[batch, ci, side, side]), constant(1, &[co, ci, window, window]));
    let bias = constant(2, &[co]);
    format!(
        "{x}{filters}{bias}%3 = conv %0 %1 %2 {{\"strides\":[{stride},{stride}],\"dilations\":[1,1],\"pads_begin\":[{pad},{pad}],\"pads_end\":[{pad},{pad}],\"group\":1}}\n%4 = relu %3\noutput \"y\" %4\n"
    )
}

fn separable([ci, co, side]: [u32; 3]) -> String {
    let x = input(0, "x", &[1, ci, side, side]);
    let (filters, matrix) = (constant(2, &[ci, 1, 3, 3]), constant(3, &[co, ci, 1, 1]));
    let bias = constant(4, &[co]);
    format!(
        "{x}%1 = neg %0\n{filters}{matrix}{bias}%5 = separable-conv %1 %2 %3 %4 {{\"depthwise\":{{\"strides\":[1,1],\"dilations\":[1,1],\"pads_begin\":[1,1],\"pads_end\":[1,1],\"group\":{ci}}},\"epilogue\":[],\"bias\":true}} then (relu #0)\noutput \"y\" %5\n"
    )
}

fn conv_transpose([ci, co, side, window, stride]: [u32; 5]) -> String {
    let pad = (window - stride) / 2;
    let (x, filters) = (input(0, "x", &[1, ci, side, side]), constant(2, &[ci, co, window, window]));
    format!(
        "{x}%1 = neg %0\n{filters}%3 = conv-transpose %1 %2 {{\"strides\":[{stride},{stride}],\"dilations\":[1,1],\"pads_begin\":[{pad},{pad}],\"pads_end\":[{pad},{pad}],\"output_padding\":[0,0],\"group\":1}}\noutput \"y\" %3\n"
    )
}

fn winograd([channels, side]: [u32; 2]) -> String {
    let x = input(0, "x", &[1, channels, side, side]);
    let tiles = side.div_ceil(4) * side.div_ceil(4);
    let product = input(3, "p", &[36, tiles, channels]);
    format!(
        "{x}%1 = neg %0\n%2 = winograd-input %1 {{\"outputs\":4,\"pads_begin\":[1,1],\"pads_end\":[1,1]}}\n{product}%4 = neg %3\n%5 = winograd-output %4 {{\"outputs\":4,\"shape\":[1,{channels},{side},{side}]}}\noutput \"y\" %2\noutput \"z\" %5\n"
    )
}

fn attention([heads, key_heads, s, t, d]: [u32; 5]) -> String {
    let q = input(0, "q", &[1, heads, s, d]);
    let [k, v] = [(1, "k"), (2, "v")].map(|(id, name)| input(id, name, &[1, key_heads, t, d]));
    format!(
        "{q}{k}{v}%3 = neg %0\n%4 = neg %1\n%5 = neg %2\n%6 = attention %3 %4 %5 {{\"scale\":0.125,\"causal\":{}}}\noutput \"y\" %6\n",
        key_heads < heads
    )
}

fn norm([count, length]: [u32; 2]) -> String {
    let x = input(0, "x", &[count, length]);
    let (gain, shift) = (constant(2, &[length]), constant(3, &[length]));
    format!(
        "{x}%1 = neg %0\n{gain}{shift}%4 = layer-norm %1 %2 %3 {{\"axis\":1,\"epsilon\":0.00001,\"rms\":false}}\noutput \"y\" %4\n"
    )
}

fn rows([count, length]: [u32; 2]) -> Vec<String> {
    let x = input(0, "x", &[count, length]);
    let after_neg = |text: &str| format!("{x}%1 = neg %0\n%4 = {text}\noutput \"y\" %4\n");
    vec![
        after_neg("softmax %1 {\"axis\":1,\"log\":false}"),
        norm([count, length]),
        after_neg("reduce %1 {\"kind\":\"mean\",\"axes\":[1],\"keepdims\":true}"),
        after_neg("reduce %1 {\"kind\":\"max\",\"axes\":[0],\"keepdims\":false}"),
        after_neg("arg-reduce %1 {\"axis\":1,\"largest\":true,\"last\":false,\"keepdims\":false}"),
        after_neg("cum-sum %1 {\"axis\":1,\"exclusive\":false,\"reverse\":false}"),
        after_neg("top-k %1 {\"axis\":1,\"k\":40,\"largest\":true,\"indices\":false}"),
        after_neg("gelu %1"),
    ]
}

fn grid_sample([channels, side, places]: [u32; 3], axes: usize, mode: &str) -> String {
    let shape = |first: &[u32], side: u32, last: &[u32]| [first, &vec![side; axes], last].concat();
    let x = input(0, "x", &shape(&[1, channels], side, &[]));
    let at = input(1, "at", &shape(&[1], places, &[axes as u32]));
    format!(
        "{x}{at}%2 = neg %0\n%3 = grid-sample %2 %1 {{\"mode\":\"{mode}\",\"padding\":\"zeros\",\"align_corners\":false}}\noutput \"y\" %3\n"
    )
}

fn recurrent([steps, batch, units]: [u32; 3]) -> String {
    let x = input(0, "x", &[steps, batch, 1, 4 * units]);
    let weights = constant(1, &[1, units, 4 * units]);
    let [h, c] = [(2, "h"), (3, "c")].map(|(id, name)| input(id, name, &[1, batch, units]));
    format!(
        "{x}{weights}{h}{c}%4 = recurrent %0 %1 %2 %3 {{\"cell\":{{\"lstm\":{{\"peepholes\":false,\"coupled\":false}}}},\"reverse\":[false],\"functions\":[\"sigmoid\",\"tanh\",\"tanh\"],\"clip\":null,\"lengths\":false,\"states\":2}}\noutput \"y\" %4\n"
    )
}

fn images([channels, side]: [u32; 2]) -> Vec<String> {
    let x = input(0, "x", &[1, channels, side, side]);
    let other = input(5, "z", &[1, channels, side, side]);
    let (gain, shift) = (constant(2, &[channels]), constant(3, &[channels]));
    let after_neg = |text: &str| format!("{x}%1 = neg %0\n%4 = {text}\noutput \"y\" %4\n");
    let twice = side * 2;
    vec![
        after_neg(
            "pool %1 {\"kind\":\"max\",\"kernel\":[3,3],\"strides\":[2,2],\"dilations\":[1,1],\"pads_begin\":[1,1],\"pads_end\":[1,1],\"ceil\":false}",
        ),
        after_neg("reduce %1 {\"kind\":\"mean\",\"axes\":[2,3],\"keepdims\":true}"),
        after_neg(&format!(
            "resize %1 {{\"filter\":\"linear\",\"coordinates\":\"half-pixel\",\"scales\":[1.0,1.0,2.0,2.0],\"sizes\":[1,{channels},{twice},{twice}],\"roi\":[],\"extrapolation\":0.0,\"antialias\":false,\"exclude_outside\":false}}"
        )),
        after_neg("pad %1 {\"mode\":\"constant\",\"before\":[0,0,1,1],\"after\":[0,0,1,1],\"value\":0.0}"),
        format!(
            "{x}%1 = neg %0\n{gain}{shift}%4 = group-norm %1 %2 %3 {{\"groups\":32,\"epsilon\":0.00001}}\noutput \"y\" %4\n"
        ),
        format!("{x}%1 = neg %0\n{other}%6 = neg %5\n%7 = concat %1 %6 {{\"axis\":1}}\noutput \"y\" %7\n"),
        format!("{x}%1 = neg %0\n{other}%6 = add %1 %5\noutput \"y\" %6\n"),
    ]
}

/// Returns two graphs: one gathers some rows of a table, the other adds updates to some rows of a table. The
/// selected rows are scattered over the table.
fn tables([rows, width, count]: [u32; 3]) -> Vec<String> {
    let table = input(0, "t", &[rows, width]);
    let places: Vec<u32> = (0..count).map(|i| i * 7919 % rows).collect();
    let [one, tuple] = [format!("[{count}]"), format!("[{count},1]")].map(|shape| {
        format!("%1 = constant {{\"dtype\":\"i32\",\"shape\":{shape},\"values\":{places:?}}}\n")
    });
    let updates = input(2, "u", &[count, width]);
    vec![
        format!("{table}{one}%3 = neg %0\n%4 = gather %3 %1 {{\"axis\":0}}\noutput \"y\" %4\n"),
        format!(
            "{table}{tuple}{updates}%3 = neg %0\n%4 = scatter-nd %3 %1 %2 {{\"combine\":\"add\"}}\noutput \"y\" %4\n"
        ),
    ]
}
