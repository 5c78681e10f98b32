//! ResNet-50 at its published size with random weights, as an ONNX file: a realistic model that needs no download.
//!
//! The model has 25.6 million parameters, 4.1 billion multiply-adds at 224 x 224, and unfolded batch norms. The
//! variance of the weights keeps activations at the same magnitude through the network. Every call gives the same file.

use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::{AttributeProto, GraphProto, ModelProto, TensorProto};

use crate::onnx::{bytes, graph, input, int, ints, model, node, with};

/// Number of bottleneck blocks, and their inner channels, in each of the four stages.
const STAGES: [(usize, usize); 4] = [(3, 64), (4, 128), (6, 256), (3, 512)];
/// Ratio of a bottleneck block's output channels to its inner channels.
const EXPANSION: usize = 4;
const CLASSES: usize = 1000;
const IMAGE: usize = 224;

/// Returns the bytes of the ONNX file. The model's input is `image [1, 3, 224, 224]`, its output `logits [1, 1000]`.
pub fn onnx() -> prost::bytes::Bytes {
    bytes(&network())
}

fn network() -> ModelProto {
    let image = input("image", &["1", "3", &IMAGE.to_string(), &IMAGE.to_string()]);
    let mut net = Net { graph: graph(vec![image], Vec::new(), &["logits"]), state: 1 };
    let mut x = net.conv("conv1", "image", [64, 3, 7, 7], 2, 1.0);
    x = net.relu(&x);
    let window = [ints("kernel_shape", &[3, 3]), ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1])];
    x = net.node("pool1", "MaxPool", &[&x], window);
    let mut channels = 64;
    for (stage, (blocks, inner)) in STAGES.into_iter().enumerate() {
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            x = net.bottleneck(&name, &x, [channels, inner], stride);
            channels = inner * EXPANSION;
        }
    }
    x = net.node("avgpool", "GlobalAveragePool", &[&x], []);
    x = net.node("flatten", "Flatten", &[&x], [int("axis", 1)]);
    net.weight("fc.weight", &[CLASSES, channels], (1.0 / channels as f32).sqrt());
    net.constant("fc.bias", CLASSES, 0.0);
    let head = node("Gemm", &[&x, "fc.weight", "fc.bias"], &["logits"]);
    net.graph.node.push(with(head, int("transB", 1)));
    model(17, net.graph)
}

/// ONNX graph of the network while it is built, with the state of the random number generator.
struct Net {
    graph: GraphProto,
    state: u64,
}

impl Net {
    /// Adds a bottleneck block: 1 x 1, 3 x 3 and 1 x 1 convolutions with a residual add.
    fn bottleneck(&mut self, name: &str, x: &str, [channels, inner]: [usize; 2], stride: i64) -> String {
        let outer = inner * EXPANSION;
        let y = self.conv(&format!("{name}.conv1"), x, [inner, channels, 1, 1], 1, 1.0);
        let y = self.relu(&y);
        let y = self.conv(&format!("{name}.conv2"), &y, [inner, inner, 3, 3], stride, 1.0);
        let y = self.relu(&y);
        // The small scale of this branch keeps the sum of 16 blocks in range.
        let y = self.conv(&format!("{name}.conv3"), &y, [outer, inner, 1, 1], 1, 0.25);
        let shortcut = match channels == outer {
            true => x.to_owned(),
            false => self.conv(&format!("{name}.downsample"), x, [outer, channels, 1, 1], stride, 1.0),
        };
        let sum = self.node(&format!("{name}.add"), "Add", &[&y, &shortcut], []);
        self.relu(&sum)
    }

    /// Adds a convolution without bias, followed by a batch norm.
    fn conv(&mut self, name: &str, x: &str, shape: [usize; 4], stride: i64, scale: f32) -> String {
        let [outputs, inputs, k, _] = shape;
        let weight = format!("{name}.weight");
        self.weight(&weight, &shape, (2.0 / (inputs * k * k) as f32).sqrt());
        let pad = i64::try_from(k / 2).unwrap_or(0);
        let window =
            [ints("kernel_shape", &[k as i64; 2]), ints("strides", &[stride; 2]), ints("pads", &[pad; 4])];
        let y = self.node(name, "Conv", &[x, &weight], window);
        let tensors = [("scale", scale), ("bias", 0.0), ("mean", 0.0), ("var", 1.0)];
        let norm = tensors.map(|(kind, value)| {
            let tensor = format!("{name}.bn.{kind}");
            self.constant(&tensor, outputs, value);
            tensor
        });
        let operands = [&y, &norm[0], &norm[1], &norm[2], &norm[3]].map(String::as_str);
        self.node(&format!("{name}.bn"), "BatchNormalization", &operands, [])
    }

    fn relu(&mut self, x: &str) -> String {
        self.node(&format!("{x}.relu"), "Relu", &[x], [])
    }

    /// Adds an ONNX node and returns the name of its result.
    fn node<const N: usize>(
        &mut self,
        name: &str,
        operator: &str,
        inputs: &[&str],
        attributes: [AttributeProto; N],
    ) -> String {
        let output = format!("{name}.out");
        let mut added = attributes.into_iter().fold(node(operator, inputs, &[&output]), with);
        added.name = Some(name.to_owned());
        self.graph.node.push(added);
        output
    }

    /// Adds an initializer of random numbers with mean 0 and the given standard deviation.
    fn weight(&mut self, name: &str, shape: &[usize], deviation: f32) {
        let n: usize = shape.iter().product();
        // The sum of two uniform numbers in [-1, 1) has a variance of 2/3.
        let factor = deviation * 1.5f32.sqrt();
        let mut bytes = Vec::with_capacity(n * 4);
        for _ in 0..n {
            // xorshift64*
            self.state ^= self.state >> 12;
            self.state ^= self.state << 25;
            self.state ^= self.state >> 27;
            let bits = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d);
            let (a, b) = ((bits >> 40) as f32, ((bits >> 8) & 0xff_ffff) as f32);
            let sum = (a + b) / (1 << 23) as f32 - 2.0;
            bytes.extend_from_slice(&(sum * factor).to_le_bytes());
        }
        self.tensor(name, shape, bytes);
    }

    fn constant(&mut self, name: &str, n: usize, value: f32) {
        self.tensor(name, &[n], value.to_le_bytes().repeat(n));
    }

    fn tensor(&mut self, name: &str, shape: &[usize], bytes: Vec<u8>) {
        self.graph.initializer.push(TensorProto {
            name: Some(name.to_owned()),
            dims: shape.iter().map(|d| *d as i64).collect(),
            data_type: Some(DataType::Float.into()),
            raw_data: Some(bytes.into()),
            ..TensorProto::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::network;

    #[test]
    fn parameters_match_the_published_resnet_50() {
        let graph = network().graph.unwrap();
        let trained =
            graph.initializer.iter().filter(|t| !t.name().ends_with(".mean") && !t.name().ends_with(".var"));
        let parameters: i64 = trained.map(|t| t.dims.iter().product::<i64>()).sum();
        assert_eq!(parameters, 25_557_032);
        assert_eq!(graph.node.iter().filter(|n| n.op_type() == "Conv").count(), 53);
    }
}
