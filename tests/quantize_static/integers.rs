//! The compiler computes a QDQ model with integers, and stores the values between operators in 8 bits.

use driftc::import::onnx::quantize_static::Settings;
use driftc::import::onnx::{Options, load_bytes};
use driftc::ir::eval::eval;
use driftc::ir::op::Op;
use driftc::ir::tensor::DType;
use driftc::pass::{Context, Precision};
use driftc::passes;
use driftc::target::TargetProfile;

use super::models::{conv_net, sample, samples};
use super::quantized;

#[test]
fn values_between_operators_take_8_bits() {
    let model = quantized(&conv_net(17), Settings::default(), &samples(&[1, 3, 8, 8], 3));
    let mut graph = load_bytes(drift_tests::onnx::bytes(&model), &Options::default()).unwrap().graph;
    let input = sample(&[1, 3, 8, 8], 9);
    let expected = eval(&graph, &input).unwrap();
    let target = TargetProfile::load("lavapipe").unwrap();
    let context = Context { target: &target, precision: Precision::F32 };
    passes::run_pipeline(&mut graph, &context, passes::Options::default()).unwrap();
    let is_8_bit = |id| matches!(graph.tensor(id).dtype, DType::I8 | DType::U8);
    let mut convolutions = 0;
    for id in graph.ids() {
        match graph.op(id) {
            Op::Conv(_) => {
                convolutions += 1;
                assert!(graph.operands(id).into_iter().take(2).all(is_8_bit), "a convolution of floats");
            }
            Op::Input(_) | Op::Constant(_) => continue,
            _ => {}
        }
        // A reduction reads floats.
        let reduced = graph.users(id).iter().all(|user| matches!(graph.op(*user), Op::Reduce(_)));
        let tensor = graph.tensor(id);
        assert!(
            reduced || tensor.rank() < 4 || is_8_bit(id),
            "`{}` is stored as {tensor}",
            graph.node(id).name
        );
    }
    assert_eq!(convolutions, 3);
    assert_eq!(eval(&graph, &input).unwrap(), expected);
}
