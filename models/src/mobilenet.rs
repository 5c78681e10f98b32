//! MobileNet v1 and v2 (1.0, 224 x 224) and DeepLabV3 on a MobileNetV2, as they are deployed:
//! batch norms are folded into the convolutions, which have TensorFlow's `SAME` padding.
//!
//! The input is `image [1, 3, N, N]`. The output of a MobileNet is `probabilities [1, 1001]`; the output of DeepLabV3 is
//! `scores [1, 21, 257, 257]`.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{BinaryFn, Concat, UnaryFn};
use driftc::ir::ops::reduce::ReduceKind;
use driftc::ir::ops::resize::Filter;

use crate::blocks::{ConvWindow, conv, resize, size};
use crate::weights::Tensors;

/// Output channels and stride of the 13 separable convolutions of MobileNet v1.
const SEPARABLE: [(usize, usize); 13] = [
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
];
/// Expansion factor, output channels, number of blocks and stride of each stage of MobileNetV2.
const STAGES: [(usize, usize, usize, usize); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];
/// Number of classes of the MobileNet classifiers: the 1000 classes of ImageNet and one for the background.
const CLASSES: usize = 1001;
/// Height and width of DeepLabV3's input image.
const SCENE: usize = 257;
/// Classes of DeepLabV3.
const SCENE_CLASSES: usize = 21;
/// Ratio of the image size to the size of DeepLabV3's features.
const SCENE_STRIDE: usize = 8;
/// Number of channels in DeepLabV3's head.
const HEAD: usize = 256;

/// Builds MobileNet v1.
///
/// # Errors
/// If a weight is missing or has another shape.
pub fn v1(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()> {
    let x = image(g, w, 224)?;
    let mut x = filter(g, w, "Conv2d_0", x, 32, [3, 2, 1])?;
    for (i, (channels, stride)) in SEPARABLE.into_iter().enumerate() {
        let name = format!("Conv2d_{}", i + 1);
        x = depthwise(g, w, &format!("{name}_depthwise"), x, stride, 1)?;
        x = filter(g, w, &format!("{name}_pointwise"), x, channels, [1, 1, 1])?;
    }
    classify(g, w, x)
}

/// Builds MobileNetV2.
///
/// # Errors
/// If a weight is missing or has another shape.
pub fn v2(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()> {
    let x = image(g, w, 224)?;
    let x = features(g, w, x, 1.0, 32)?;
    let x = filter(g, w, "Conv_1", x, 1280, [1, 1, 1])?;
    classify(g, w, x)
}

/// Builds DeepLabV3 as TensorFlow Lite's `deeplabv3_257_mv_gpu`: half the channels, features at 1/8 of the image size
/// from dilated convolutions, and a head with image pooling and one convolution.
///
/// # Errors
/// If a weight is missing or has another shape.
pub fn deeplab(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()> {
    let x = image(g, w, SCENE)?;
    let x = features(g, w, x, 0.5, SCENE_STRIDE)?;
    let side = size(g, x, 2)?;
    g.name = "image_pooling".into();
    let pooled = g.reduce(ReduceKind::Mean, x, vec![2, 3], true)?;
    let pooled = conv(g, w, "image_pooling", pooled, HEAD, ConvWindow::with_kernel(1))?;
    let pooled = g.unary(UnaryFn::Relu, pooled)?;
    let pooled = resize(g, pooled, [side, side], Filter::Linear)?;
    let y = conv(g, w, "aspp0", x, HEAD, ConvWindow::with_kernel(1))?;
    let y = g.unary(UnaryFn::Relu, y)?;
    let y = g.add(Concat { axis: 1 }, &[pooled, y])?;
    let y = conv(g, w, "concat_projection", y, HEAD, ConvWindow::with_kernel(1))?;
    let y = g.unary(UnaryFn::Relu, y)?;
    let y = conv(g, w, "logits", y, SCENE_CLASSES, ConvWindow::with_kernel(1))?;
    let y = resize(g, y, [SCENE, SCENE], Filter::Linear)?;
    g.graph.add_output("scores", y);
    Ok(())
}

/// Adds the input `image` with three channels and the given height and width.
fn image(g: &mut Builder<'_>, w: &dyn Tensors, side: usize) -> Result<NodeId> {
    g.input("image", w.element(), vec![Dim::known(1), Dim::known(3), side.into(), side.into()])
}

/// Adds the stages of MobileNetV2, with numbers of channels multiplied by `width`. A stride that would raise the total stride
/// above `max_stride` becomes a dilation.
fn features(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    x: NodeId,
    width: f32,
    max_stride: usize,
) -> Result<NodeId> {
    // Round channels to a multiple of 8, and never down by more than 10 %.
    let scaled_channels = |channels: usize| {
        let exact = channels as f32 * width;
        let rounded = ((exact + 4.0) / 8.0) as usize * 8;
        if (rounded as f32) < 0.9 * exact { rounded + 8 } else { rounded.max(8) }
    };
    let mut x = filter(g, w, "Conv", x, scaled_channels(32), [3, 2, 1])?;
    let (mut total_stride, mut dilation, mut index) = (2, 1, 0);
    for (expansion, channels, blocks, stride) in STAGES {
        for block in 0..blocks {
            let wanted = if block == 0 { stride } else { 1 };
            let stride = if total_stride * wanted > max_stride { 1 } else { wanted };
            let name = if index == 0 { "expanded_conv".into() } else { format!("expanded_conv_{index}") };
            x = bottleneck(g, w, &name, x, [expansion, scaled_channels(channels)], [stride, dilation])?;
            total_stride *= stride;
            dilation *= wanted / stride;
            index += 1;
        }
    }
    Ok(x)
}

/// Adds a block of MobileNetV2: expansion, depthwise convolution and projection, with a residual add if the shape does not
/// change.
fn bottleneck(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    x: NodeId,
    [expansion, outputs]: [usize; 2],
    [stride, dilation]: [usize; 2],
) -> Result<NodeId> {
    let inputs = size(g, x, 1)?;
    let mut y = x;
    if expansion > 1 {
        y = filter(g, w, &format!("{name}/expand"), y, inputs * expansion, [1, 1, 1])?;
    }
    y = depthwise(g, w, &format!("{name}/depthwise"), y, stride, dilation)?;
    y = conv(g, w, &format!("{name}/project"), y, outputs, ConvWindow::with_kernel(1))?;
    if stride == 1 && inputs == outputs { g.binary(BinaryFn::Add, y, x) } else { Ok(y) }
}

/// Adds a convolution with the given kernel size, stride and dilation, clipped to 0..6 (ReLU6).
fn filter(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    x: NodeId,
    outputs: usize,
    [kernel, stride, dilation]: [usize; 3],
) -> Result<NodeId> {
    let window = ConvWindow::same(size(g, x, 2)?, kernel, stride, dilation);
    let y = conv(g, w, name, x, outputs, window)?;
    g.unary(UnaryFn::Clip { low: 0.0, high: 6.0 }, y)
}

/// Adds a 3 x 3 depthwise convolution, clipped to 0..6 (ReLU6).
fn depthwise(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    x: NodeId,
    stride: usize,
    dilation: usize,
) -> Result<NodeId> {
    let channels = size(g, x, 1)?;
    let window = ConvWindow::same(size(g, x, 2)?, 3, stride, dilation).depthwise(channels);
    let y = conv(g, w, name, x, channels, window)?;
    g.unary(UnaryFn::Clip { low: 0.0, high: 6.0 }, y)
}

/// Adds the classifier: mean over the image, 1 x 1 convolution and softmax.
fn classify(g: &mut Builder<'_>, w: &dyn Tensors, x: NodeId) -> Result<()> {
    g.name = "Predictions".into();
    let y = g.reduce(ReduceKind::Mean, x, vec![2, 3], true)?;
    let y = conv(g, w, "Logits", y, CLASSES, ConvWindow::with_kernel(1))?;
    let y = g.reshape(y, vec![Dim::known(1), CLASSES.into()])?;
    let y = g.softmax(y, 1)?;
    g.graph.add_output("probabilities", y);
    Ok(())
}
