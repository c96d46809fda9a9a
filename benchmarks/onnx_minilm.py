"""all-MiniLM-L6-v2 in ONNX Runtime on the CPU, over the rows of examples/serve."""

from __future__ import annotations

from typing import Any

import minilm
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, HIDDEN, EPSILON = 6, 12, 384, 1e-12
INPUTS = ("pieces", "positions", "numbers")


class Graph:
    """Nodes and constants; each method adds a node and gives the name of its result."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation."""
        result = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def constant(self, name: str, value: Any) -> str:
        """Add a value that the model brings with it."""
        self.constants[name] = np.asarray(value)
        return name

    def weight(self, name: str) -> str:
        """Add a weight; a dense layer's is (in, out) here."""
        value = self.weights[name]
        is_dense = value.ndim == 2 and "embeddings" not in name
        return self.constant(name, np.ascontiguousarray(value.T) if is_dense else value)

    def dense(self, name: str, x: str) -> str:
        """A linear layer."""
        product = self.node("MatMul", x, self.weight(f"{name}.weight"))
        return self.node("Add", product, self.weight(f"{name}.bias"))

    def normal(self, name: str, x: str) -> str:
        """A layer norm."""
        parts = (self.weight(f"{name}.LayerNorm.{part}") for part in ("weight", "bias"))
        return self.node("LayerNormalization", x, *parts, epsilon=EPSILON)

    def attention(self, layer: str, x: str, mask: str) -> str:
        """Multi-head attention, whose mask is 0 or a very small number."""

        def heads(name: str, order: tuple[int, ...]) -> str:
            projected = self.dense(f"{layer}.attention.self.{name}", x)
            split = self.constant("split", [0, 0, HEADS, HIDDEN // HEADS])
            return self.node("Transpose", self.node("Reshape", projected, split), perm=order)

        query, value = (heads(name, (0, 2, 1, 3)) for name in ("query", "value"))
        scores = self.node("MatMul", query, heads("key", (0, 2, 3, 1)))
        root = self.constant("root", np.float32((HIDDEN // HEADS) ** 0.5))
        scores = self.node("Add", self.node("Div", scores, root), mask)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        mixed = self.node("Transpose", mixed, perm=(0, 2, 1, 3))
        together = self.node("Reshape", mixed, self.constant("together", [0, 0, HIDDEN]))
        return self.dense(f"{layer}.attention.output.dense", together)

    def embeddings(self) -> str:
        """The whole model, from INPUTS."""
        words, places, segments = (
            self.weight(f"embeddings.{table}_embeddings.weight")
            for table in ("word", "position", "token_type")
        )
        x = self.node(
            "Add", self.node("Gather", words, "pieces"), self.node("Gather", places, "positions")
        )
        x = self.node("Add", x, self.node("Gather", segments, self.constant("first", 0)))
        x = self.normal("embeddings", x)
        one, two = (self.constant(f"axis {axis}", [axis]) for axis in (1, 2))
        each = [self.node("Unsqueeze", "numbers", axis) for axis in (one, two)]
        same = self.node("Cast", self.node("Equal", *each), to=TensorProto.FLOAT)
        # The mask is 0 where two pieces are of one text, and the lowest number elsewhere.
        lowest = self.constant("lowest", np.finfo(np.float32).min)
        off = self.node("Sub", self.constant("unit", np.float32(1)), same)
        mask = self.node("Unsqueeze", self.node("Mul", off, lowest), one)
        for index in range(LAYERS):
            layer = f"encoder.layer.{index}"
            attended = self.node("Add", x, self.attention(layer, x, mask))
            x = self.normal(f"{layer}.attention.output", attended)
            inner = self.node("Gelu", self.dense(f"{layer}.intermediate.dense", x))
            x = self.node("Add", x, self.dense(f"{layer}.output.dense", inner))
            x = self.normal(f"{layer}.output", x)
        count = self.node("ReduceSum", same, two)
        pooled = self.node("Div", self.node("MatMul", same, x), count)
        return self.node("LpNormalization", pooled, axis=-1, p=2)


def rows(threads: int) -> minilm.Run:
    """What the program of examples/serve computes, in a session with so many threads."""
    graph = Graph(minilm.weights())
    result = graph.embeddings()
    shape = ["rows", "tokens"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, shape) for name in INPUTS]
    output = helper.make_tensor_value_info(result, TensorProto.FLOAT, [*shape, HIDDEN])
    constants = [numpy_helper.from_array(value, name) for name, value in graph.constants.items()]
    made = helper.make_graph(graph.nodes, "minilm", inputs, [output], constants)
    # The first operator set with Gelu.
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that spin take the processor from whatever is measured next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def run(*arrays: np.ndarray) -> np.ndarray:
        computed: np.ndarray = session.run(None, dict(zip(INPUTS, arrays, strict=True)))[0]
        return computed

    return run
