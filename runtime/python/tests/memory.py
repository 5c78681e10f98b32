"""Passes arrays to a bundle in every supported way, and texts to a language model; `runtime/c/memcheck.sh` runs this script
under valgrind. `compile` writes the bundle, and the language model beside it.

Usage: memory.py compile|run BUNDLE
"""

import sys
from pathlib import Path

import driftc
import numpy as np


def compile(path: str) -> None:
    from onnx import TensorProto, helper
    from test_driftc import chat_model

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", ports[:1], ports[1:])
    driftc.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path, "lavapipe")
    chat_model(Path(path).parent)


def run(path: str) -> None:
    with driftc.Session(path, frames=2) as session:
        for value in range(20):
            array = np.full((2, 2), value, np.float32)
            for given in (array, np.asfortranarray(array), np.full((4, 4), value, np.float32)[::2, ::2], array.tolist()):
                assert (session.run({"x": given})["y"] == 2 * value).all()
        for wrong in (np.zeros((2, 2)), np.zeros((3, 2), np.float32), np.zeros(0, np.float32)):
            try:
                session.run({"x": wrong})
            except (TypeError, ValueError):
                continue
            raise SystemExit(f"an array of {wrong.dtype} {wrong.shape} was accepted")
        session.input("x")[:] = 3
        assert session.run_timed()
        tickets = [session.submit({"x": np.full((2, 2), value, np.float32)}) for value in (1, 2)]
        assert [float(session.collect(ticket)["y"][0, 0]) for ticket in tickets] == [2, 4]
        seen = session.output("y", tickets[1])
    assert (seen == 4).all()
    first, second = driftc.open_together([path, path])
    first.run({"x": np.ones((2, 2), np.float32)}, [])
    y = first.device_output("y")
    del first
    assert (second.run({"x": y})["y"] == 4).all()
    texts(Path(path).with_name("chat.drift"))


def texts(path: Path) -> None:
    tokenizer = driftc.Tokenizer(path)
    assert tokenizer.decode(tokenizer.encode("w1 w2 w3")) == "w1 w2 w3"
    assert tokenizer.count("w4 " * 100) == 100
    assert driftc.attachment(path, "tokenizer.json") and driftc.attachment(path, "absent") is None
    with driftc.Chat(path, system="w5") as chat:
        answer = chat.say("w1 w2", max_tokens=6, stop=["absent", "w"], temperature=1.0, seed=3)
        assert "".join(answer) == answer.text and answer.finish in ("stop", "length")
        cancelled = chat.regenerate(max_tokens=30)
        next(cancelled)
        cancelled.close()
        assert [message["role"] for message in chat.messages] == ["system", "user", "assistant"]
        chat.say("w1", max_tokens=30)
        try:
            chat.say("w1 " * 100).wait()
        except driftc.Error:
            return
    raise SystemExit("a prompt longer than the context was accepted")


if __name__ == "__main__":
    {"compile": compile, "run": run}[sys.argv[1]](sys.argv[2])
