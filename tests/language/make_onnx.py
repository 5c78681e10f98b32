"""Writes ONNX language models that take and give their caches: NAME.onnx, NAME.ids.npy and NAME.logits.npy.

    pip install onnx onnxruntime && python make_onnx.py FOLDER

Inputs and outputs have the names that the usual exporters give. ONNX Runtime computes the logits of a whole text.
"""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h

OUT = sys.argv[1]
VOCAB, HIDDEN, HEADS, SHARED, SIZE, INNER, LONGEST = 64, 48, 4, 2, 16, 48, 64
SEED = np.random.default_rng(7)


class Graph:
    def __init__(self):
        self.nodes, self.weights = [], []

    def add(self, op, inputs, outputs=None, domain="", **attributes):
        outputs = outputs or [f"{op.lower()}_{len(self.nodes)}"]
        self.nodes.append(h.make_node(op, inputs, outputs, domain=domain, name=f"{op}_{len(self.nodes)}", **attributes))
        return outputs[0]

    def constant(self, values):
        name = f"constant_{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape, scale=None):
        scale = scale or shape[0] ** -0.5
        return self.constant((SEED.standard_normal(shape) * scale).astype(np.float32))

    def linear(self, x, inputs, outputs):
        return self.add("MatMul", [x, self.weight(inputs, outputs)])

    def norm(self, x):
        weight = self.constant((1 + 0.2 * SEED.standard_normal(HIDDEN)).astype(np.float32))
        return self.add("LayerNormalization", [x, weight], epsilon=1e-5)

    def feed(self, x):
        y = self.linear(self.norm(x), HIDDEN, INNER)
        y = self.add("Mul", [y, self.add("Sigmoid", [y])])
        return self.add("Add", [x, self.linear(y, INNER, HIDDEN)])

    def heads(self, x, n):
        return self.add("Transpose", [self.add("Reshape", [x, self.constant([0, 0, n, SIZE])])], perm=[0, 2, 1, 3])


def tensor(name, dtype, shape):
    return h.make_tensor_value_info(name, dtype, shape)


def grouped():
    """One node of attention a layer, with rotary embedding; windows and soft caps in the second."""
    g = Graph()
    x = g.add("Gather", [g.weight(VOCAB, HIDDEN, scale=1.0), "input_ids"])
    one = g.constant([1])
    seen = g.add("ReduceSum", ["attention_mask", one], keepdims=0)
    lengths = g.add("Cast", [g.add("Sub", [seen, one])], to=T.INT32)
    total = g.add("Gather", [g.add("Shape", ["attention_mask"]), g.constant(np.int64(1))])
    total = g.add("Cast", [total], to=T.INT32)
    angles = np.arange(LONGEST)[:, None] * 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))
    cos, sin = [g.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    caches = []
    for layer in range(2):
        y = g.norm(x)
        q, k, v = [g.linear(y, HIDDEN, n * SIZE) for n in (HEADS, SHARED, SHARED)]
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        present = [f"present.{layer}.{part}" for part in ("key", "value")]
        more = dict(local_window_size=8, softcap=2.0) if layer else {}
        y = g.add("GroupQueryAttention", [q, k, v, *past, lengths, total, cos, sin], [f"y{layer}", *present],
                  domain="com.microsoft", num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1, **more)
        x = g.feed(g.add("Add", [x, g.linear(y, HEADS * SIZE, HIDDEN)]))
        caches += zip(past, present)
    g.add("MatMul", [g.norm(x), g.weight(HIDDEN, VOCAB)], ["logits"])
    return g, caches, "kv_cache_dim", "total_sequence_length", []


def concat():
    """Attention in plain operators behind concatenations, and positions in a table of as many rows as a text may have."""
    g = Graph()
    x = g.add("Gather", [g.weight(VOCAB, HIDDEN, scale=1.0), "input_ids"])
    x = g.add("Add", [x, g.add("Gather", [g.weight(LONGEST, HIDDEN, scale=1.0), "position_ids"])])
    zero, one = g.constant(np.int64(0)), g.constant(np.int64(1))
    keys = g.add("Gather", [g.add("Shape", ["attention_mask"]), one])
    key = g.add("Range", [zero, keys, one])
    query = g.add("Unsqueeze", ["position_ids", g.constant([1, 3])])
    kept = g.add("Unsqueeze", [g.add("Cast", ["attention_mask"], to=T.BOOL), g.constant([1, 2])])
    seen = g.add("And", [g.add("LessOrEqual", [key, query]), kept])
    mask = g.add("Where", [seen, g.constant(np.float32(0)), g.constant(np.float32(-3e38))])
    caches = []
    for layer in range(2):
        y = g.norm(x)
        q, k, v = [g.heads(g.linear(y, HIDDEN, HEADS * SIZE), HEADS) for _ in range(3)]
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        present = [f"present.{layer}.{part}" for part in ("key", "value")]
        k, v = [g.add("Concat", [a, b], [c], axis=2) for a, b, c in zip(past, (k, v), present)]
        scores = g.add("MatMul", [q, g.add("Transpose", [k], perm=[0, 1, 3, 2])])
        scores = g.add("Add", [g.add("Div", [scores, g.constant(np.float32(SIZE ** 0.5))]), mask])
        y = g.add("MatMul", [g.add("Softmax", [scores], axis=-1), v])
        y = g.add("Reshape", [g.add("Transpose", [y], perm=[0, 2, 1, 3]), g.constant([0, 0, HEADS * SIZE])])
        x = g.feed(g.add("Add", [x, g.linear(y, HEADS * SIZE, HIDDEN)]))
        caches += zip(past, present)
    g.add("MatMul", [g.norm(x), g.weight(HIDDEN, VOCAB)], ["logits"])
    return g, caches, SIZE, "past_sequence_length + sequence_length", ["position_ids"]


for make in (grouped, concat):
    g, caches, size, total, positions = make()
    heads = SHARED if make is grouped else HEADS
    batch, seq, past = "batch_size", "sequence_length", "past_sequence_length"
    inputs = [tensor("input_ids", T.INT64, [batch, seq]), tensor("attention_mask", T.INT64, [batch, total])]
    inputs += [tensor(name, T.INT64, [batch, seq]) for name in positions]
    inputs += [tensor(name, T.FLOAT, [batch, heads, past, size]) for name, _ in caches]
    outputs = [tensor("logits", T.FLOAT, [batch, seq, VOCAB])]
    outputs += [tensor(name, T.FLOAT, [batch, heads, total, size]) for _, name in caches]
    graph = h.make_graph(g.nodes, make.__name__, inputs, outputs, g.weights)
    sets = [h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)]
    model = h.make_model(graph, opset_imports=sets, ir_version=9)
    onnx.checker.check_model(model)
    path = f"{OUT}/{make.__name__}"
    onnx.save(model, f"{path}.onnx")
    ids = SEED.integers(0, VOCAB, (1, 40))
    session = onnxruntime.InferenceSession(f"{path}.onnx")
    fed = {"input_ids": ids, "attention_mask": np.ones((1, 40), np.int64)}
    fed |= {name: np.arange(40)[None] for name in positions}
    fed |= {name: np.zeros((1, heads, 0, SIZE), np.float32) for name, _ in caches}
    np.save(f"{path}.ids.npy", ids)
    np.save(f"{path}.logits.npy", session.run(["logits"], fed)[0])
