//! Graphs of 8-bit networks: matmuls and convolutions of integers, with the requantization that follows them.

/// M, K and N of matmuls whose sums become floats.
const MATMULS: &[[u32; 3]] = &[
    [1, 768, 768],
    [1, 1024, 4096],
    [8, 2048, 2048],
    [64, 1024, 1024],
    [128, 768, 3072],
    [256, 2048, 2048],
    [256, 2048, 8192],
    [256, 8192, 2048],
    [784, 128, 128],
];

/// M, K and N of matmuls whose sums are quantized.
const LAYERS: &[[u32; 3]] = &[
    [1, 1280, 1000],
    [1, 2048, 1000],
    [128, 768, 768],
    [128, 3072, 768],
    [197, 768, 768],
    [197, 768, 3072],
    [512, 1024, 4096],
];

/// Input channels, output channels, image side, filter side, stride and groups of convolutions whose sums are quantized.
const CONVOLUTIONS: &[[u32; 6]] = &[
    [3, 32, 224, 3, 2, 1],
    [3, 64, 224, 7, 2, 1],
    [16, 96, 112, 1, 1, 1],
    [96, 24, 56, 1, 1, 1],
    [24, 144, 56, 1, 1, 1],
    [144, 32, 28, 1, 1, 1],
    [192, 64, 14, 1, 1, 1],
    [64, 384, 14, 1, 1, 1],
    [576, 160, 7, 1, 1, 1],
    [320, 1280, 7, 1, 1, 1],
    [64, 64, 56, 3, 1, 1],
    [64, 256, 56, 1, 1, 1],
    [256, 64, 56, 1, 1, 1],
    [128, 128, 28, 3, 1, 1],
    [128, 512, 28, 1, 1, 1],
    [256, 256, 14, 3, 1, 1],
    [1024, 256, 14, 1, 1, 1],
    [256, 512, 28, 3, 2, 1],
    [512, 512, 7, 3, 1, 1],
    [512, 2048, 7, 1, 1, 1],
    [2048, 512, 7, 1, 1, 1],
    [32, 64, 160, 3, 2, 1],
    [64, 64, 80, 3, 1, 1],
    [32, 32, 112, 3, 1, 32],
    [96, 96, 112, 3, 2, 96],
    [144, 144, 56, 3, 1, 144],
    [192, 192, 28, 3, 2, 192],
    [384, 384, 14, 3, 1, 384],
    [240, 240, 28, 5, 2, 240],
    [960, 960, 7, 3, 1, 960],
];

/// Returns the graphs of matmuls whose sums become floats.
pub(super) fn matmuls() -> Vec<String> {
    let cast = "%3 = cast %2 {\"to\":\"f32\"}\noutput \"c\" %3\n";
    MATMULS.iter().map(|sizes| format!("{}{cast}", matmul(*sizes))).collect()
}

/// Returns the graphs of matmuls whose sums are quantized.
pub(super) fn layers() -> Vec<String> {
    let layer = |[m, k, n]: &[u32; 3]| {
        format!("{}{}output \"c\" %8\n", matmul([*m, *k, *n]), requantized(2, &format!("[{n}]")))
    };
    LAYERS.iter().map(layer).collect()
}

/// Returns the graphs of convolutions whose sums are quantized. A pool reads the result, so that it has the layout of
/// the values between convolutions.
pub(super) fn convolutions() -> Vec<String> {
    CONVOLUTIONS.iter().map(|sizes| convolution(*sizes)).collect()
}

/// Returns a matmul `%2` of unsigned rows with signed weights.
fn matmul([m, k, n]: [u32; 3]) -> String {
    format!(
        "%0 = input {{\"name\":\"a\",\"dtype\":\"u8\",\"shape\":[{m},{k}]}}\n%1 = constant {{\"dtype\":\"i8\",\"shape\":[{k},{n}],\"random\":1}}\n%2 = matmul %0 %1 {{\"trans_a\":false,\"trans_b\":false}}\n"
    )
}

/// Returns the nodes `%3` to `%8`, which quantize the sums `sums` with one factor for each output, of shape `shape`.
fn requantized(sums: u32, shape: &str) -> String {
    format!(
        "%3 = constant {{\"dtype\":\"i32\",\"shape\":{shape},\"random\":2}}\n%4 = add %{sums} %3\n%5 = cast %4 {{\"to\":\"f32\"}}\n%6 = constant {{\"dtype\":\"f32\",\"shape\":{shape},\"random\":3}}\n%7 = mul %5 %6\n%9 = quantize %7 {{\"scale\":1.0,\"zero_point\":0.0,\"low\":0.0,\"high\":255.0}}\n%8 = cast %9 {{\"to\":\"u8\"}}\n"
    )
}

fn convolution([ci, co, side, window, stride, group]: [u32; 6]) -> String {
    let (pad, taps) = (window / 2, format!("{},{window},{window}", ci / group));
    let requantized = requantized(2, &format!("[{co},1,1]"));
    format!(
        "%0 = input {{\"name\":\"x\",\"dtype\":\"u8\",\"shape\":[1,{ci},{side},{side}]}}\n%10 = add %0 %0\n%1 = constant {{\"dtype\":\"i8\",\"shape\":[{co},{taps}],\"random\":1}}\n%2 = conv %10 %1 {{\"strides\":[{stride},{stride}],\"dilations\":[1,1],\"pads_begin\":[{pad},{pad}],\"pads_end\":[{pad},{pad}],\"group\":{group}}}\n{requantized}%11 = pool %8 {{\"kind\":\"max\",\"kernel\":[2,2],\"strides\":[2,2],\"dilations\":[1,1],\"pads_begin\":[0,0],\"pads_end\":[0,0],\"ceil\":false}}\noutput \"y\" %11\n"
    )
}
