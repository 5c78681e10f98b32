//! Random numbers that become inputs of the graph, so that the host draws them.

use super::super::attributes::Attributes;
use super::super::lowering::{Lowered, Value};
use super::super::refused::Refused;
use super::super::schema::NodeProto;
use super::super::tensors;
use super::Lowerer;
use super::scope::domain;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::element::UnaryFn;
use crate::ir::tensor::DType;

impl Lowerer<'_> {
    /// True if a node draws numbers from a normal distribution, and the options turn them into inputs.
    pub(super) fn takes_random_input(&self, node: &NodeProto) -> bool {
        let draws = matches!(node.op_type(), "RandomNormal" | "RandomNormalLike");
        self.random_inputs && draws && domain(node).is_empty()
    }

    /// Lowers such an operator: adds an input, which is scaled to the mean and the deviation of the operator.
    pub(super) fn lower_random(
        &mut self,
        node: &NodeProto,
        operands: &[Value],
        attributes: &Attributes<'_>,
    ) -> Lowered {
        attributes.ignore(&["seed"]);
        let (shape, like): (Vec<Dim>, DType) = match operands.first() {
            Some(Value::Node(like)) => {
                let tensor = self.graph.tensor(*like);
                (tensor.shape.clone(), tensor.dtype)
            }
            Some(_) => return Err(Refused::new("the shape of the random numbers is not known")),
            None => {
                let sizes = attributes.ints_opt("shape")?.unwrap_or_default();
                (sizes.iter().copied().map(Dim::known).collect(), DType::F32)
            }
        };
        let dtype = match attributes.int_opt("dtype")? {
            Some(code) => tensors::dtype(i32::try_from(code).unwrap_or(0))?,
            None => like,
        };
        let (mean, deviation) = (attributes.float("mean", 0.0)?, attributes.float("scale", 1.0)?);
        let name = node.output.first().map_or("random", String::as_str);
        let mut g = Builder::new(&mut self.graph, name);
        let numbers = g.input(name, dtype, shape)?;
        Ok(g.unary(UnaryFn::Affine { scale: deviation, shift: mean }, numbers)?.into())
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::super::schema::{
        GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto, tensor_shape_proto, type_proto,
    };
    use super::super::super::schema::{TensorShapeProto, TypeProto};
    use super::super::super::{Options, load_bytes};

    /// Returns a model that adds random numbers to its input.
    fn model() -> Vec<u8> {
        let size = tensor_shape_proto::dimension::Value::DimValue(3);
        let dim = vec![tensor_shape_proto::Dimension { value: Some(size), ..Default::default() }];
        let shape = Some(TensorShapeProto { dim });
        let tensor = type_proto::Value::TensorType(type_proto::Tensor { elem_type: Some(1), shape });
        let port = |name: &str| ValueInfoProto {
            name: Some(name.into()),
            r#type: Some(TypeProto { value: Some(tensor.clone()), ..Default::default() }),
            ..Default::default()
        };
        let node = |op: &str, input: &[&str], output: &str| NodeProto {
            op_type: Some(op.into()),
            input: input.iter().map(ToString::to_string).collect(),
            output: vec![output.into()],
            ..Default::default()
        };
        let graph = GraphProto {
            node: vec![node("RandomNormalLike", &["x"], "noise"), node("Add", &["x", "noise"], "y")],
            input: vec![port("x")],
            output: vec![port("y")],
            ..Default::default()
        };
        let opset = OperatorSetIdProto { version: Some(18), ..Default::default() };
        let model = ModelProto {
            ir_version: Some(8),
            graph: Some(graph),
            opset_import: vec![opset],
            ..Default::default()
        };
        model.encode_to_vec()
    }

    #[test]
    fn random_numbers_become_inputs_on_request() {
        let refused = load_bytes(model().into(), &Options::default()).expect_err("refused").to_string();
        assert!(refused.contains("RandomNormalLike"), "{refused}");
        let options = Options { random_inputs: true, ..Options::default() };
        let graph = load_bytes(model().into(), &options).unwrap_or_else(|e| panic!("{e}")).graph;
        let names = graph.inputs().iter().filter_map(|id| Some(graph.input(*id)?.name.as_str()));
        assert_eq!(names.collect::<Vec<_>>(), ["x", "noise"]);
    }
}
