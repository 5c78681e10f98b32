"""Writes the ONNX project's operator tests as files: FOLDER/NAME/model.onnx, test_data_set_I/{input,output}_J.pb.

The package `onnx` holds the tests as Python code that computes their data; the seed is set before each of them.
"""

import os
import sys

from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases


def serialized(value, info):
    if isinstance(value, TensorProto):
        return value.SerializeToString(deterministic=True)
    kinds = {
        "sequence_type": numpy_helper.from_list,
        "map_type": numpy_helper.from_dict,
        "optional_type": numpy_helper.from_optional,
    }
    write = kinds.get(info.type.WhichOneof("value"), numpy_helper.from_array)
    return write(value, info.name).SerializeToString(deterministic=True)


def save(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def main(folder):
    for case in collect_testcases():
        at = os.path.join(folder, case.name)
        save(os.path.join(at, "model.onnx"), case.model.SerializeToString(deterministic=True))
        for i, (inputs, outputs) in enumerate(case.data_sets):
            for kind, values, infos in (
                ("input", inputs, case.model.graph.input),
                ("output", outputs, case.model.graph.output),
            ):
                for j, (value, info) in enumerate(zip(values, infos)):
                    save(os.path.join(at, f"test_data_set_{i}", f"{kind}_{j}.pb"), serialized(value, info))


main(sys.argv[1])
