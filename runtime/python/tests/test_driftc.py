"""Tests of the Python package: `python test_driftc.py`. Needs driftc, numpy, onnx and ml_dtypes."""

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

import driftc

TARGET = os.environ.get("DRIFT_TEST_TARGET", "lavapipe")
#: Folder of a small language model without tokenizer.
LLAMA = Path(__file__).parents[3] / "tests" / "language" / "llama"


def model(elements=TensorProto.FLOAT, shape=("n", 3)) -> onnx.ModelProto:
    """y = x + x"""
    ports = [helper.make_tensor_value_info(name, elements, list(shape)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def chat_model(folder: Path) -> Path:
    """Returns the bundle of a language model whose tokens are the words w0, w1 and so on."""
    path = folder / "chat.drift"
    if path.exists():
        return path
    shutil.copytree(LLAMA, folder / "chat", ignore=shutil.ignore_patterns("*.npy"))
    count = json.loads((LLAMA / "config.json").read_text())["vocab_size"]
    words = {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(count)}, "unk_token": "w0"}
    parts = dict.fromkeys(["truncation", "padding", "normalizer", "decoder", "post_processor"])
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": words}
    (folder / "chat" / "tokenizer.json").write_text(json.dumps({**tokenizer, **parts}))
    template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    (folder / "chat" / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    driftc.compile(folder / "chat", path, TARGET, dims={"context": 64})
    return path


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        # Pipeline caches must not get into the user's cache folder.
        os.environ["XDG_CACHE_HOME"] = cls.folder.name
        cls.path = Path(cls.folder.name) / "twice.drift"
        cls.report = driftc.compile(model(), cls.path, TARGET, dims={"n": (1, 1024)})

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_arrays_of_every_memory_order_give_correct_results(self):
        base = np.arange(24, dtype=np.float32)
        read_only = base.reshape(8, 3).copy()
        read_only.flags.writeable = False
        arrays = {
            "C": base.reshape(8, 3),
            "Fortran": np.asfortranarray(base.reshape(8, 3)),
            "strided": base.reshape(4, 6)[:, ::2],
            "reversed": base.reshape(8, 3)[::-1],
            "read-only": read_only,
            "broadcast": np.broadcast_to(np.float32([1, 2, 3]), (2, 3)),
            "unaligned": np.frombuffer(b"?" + base.tobytes(), np.float32, offset=1).reshape(8, 3),
            "list": [[1.0, 2.0, 3.0]],
        }
        with driftc.Session(self.path) as session:
            for name, array in arrays.items():
                got = session.run({"x": array})["y"]
                np.testing.assert_array_equal(got, np.asarray(array, np.float32) * 2, name)

    def test_dlpack_inputs_and_outputs(self):
        class Capsule:
            """An object with only the two methods of DLPack."""

            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        with driftc.Session(self.path) as session:
            got = session.run({"x": Capsule(np.ones((2, 3), np.float32))})["y"]
            np.testing.assert_array_equal(np.from_dlpack(got), np.full((2, 3), 2, np.float32))

    def test_invalid_arguments_raise_errors(self):
        with driftc.Session(self.path) as session:
            with self.assertRaisesRegex(TypeError, r"`x` takes float32, but the array given is float64.*astype"):
                session.run({"x": np.ones((2, 3))})
            with self.assertRaisesRegex(TypeError, "takes float32"):
                session.run({"x": np.ones((2, 3), ">f4")})
            with self.assertRaisesRegex(ValueError, r"takes shape \[n in 1..1024, 3\]"):
                session.run({"x": np.ones((2, 4), np.float32)})
            for shape in ((3,), (0, 3), (2, 3, 1), ()):
                with self.assertRaises(ValueError, msg=str(shape)):
                    session.run({"x": np.ones(shape, np.float32)})
            with self.assertRaisesRegex(TypeError, "takes float32, but the array given is object"):
                session.run({"x": np.array([[None, 1, 2]])})
            with self.assertRaisesRegex(ValueError, r"compiled for 1..1024[^\n]*\nhelp: .*--dim n=1..1025"):
                session.run({"x": np.ones((1025, 3), np.float32)})
            with self.assertRaisesRegex(driftc.Error, "no input `z`"):
                session.run({"z": np.ones((2, 3), np.float32)})
            with self.assertRaisesRegex(driftc.Error, "no function `other`"):
                session.run({}, function="other")
            with self.assertRaisesRegex(driftc.Error, "no output `z`"):
                session.run({"x": np.ones((2, 3), np.float32)}, ["z"])
        with self.assertRaisesRegex(driftc.Error, "closed"):
            session.run({"x": np.ones((2, 3), np.float32)})
        with self.assertRaisesRegex(driftc.Error, "nowhere"):
            driftc.Session("/nowhere/at/all")
        with self.assertRaises(driftc.Error) as raised:
            driftc.compile(model(), self.path.with_name("no.drift"), "no such target")
        error = raised.exception
        self.assertEqual(error.message, "no target is called `no such target`")
        self.assertRegex(error.reasons[0], "^known targets: .*lavapipe")
        self.assertTrue(error.help)
        self.assertEqual(str(error), f"{error.message}\n  {error.reasons[0]}\nhelp: {error.help}")
        # The parser of command lines has no reasons and no help.
        with self.assertRaisesRegex(driftc.Error, r"^invalid value 'f1' for '--precision"):
            driftc.compile(model(), self.path.with_name("no.drift"), TARGET, precision="f1")
        with self.assertRaises(driftc.Error) as raised:
            driftc.Session(__file__)
        self.assertIn("not a drift bundle", raised.exception.message)
        self.assertIn("help: give a bundle", str(raised.exception))
        with self.assertRaisesRegex(TypeError, "a model must be"):
            driftc.compile(3, self.path, TARGET)

    def test_ports_are_described(self):
        with driftc.Session(self.path) as session:
            self.assertEqual(session.functions, ["main"])
            (port,) = session.inputs()
            self.assertEqual((port.name, port.dtype, port.device_type), ("x", np.float32, "f32"))
            self.assertEqual((port.min_shape, port.max_shape), ((1, 3), (1024, 3)))
            self.assertEqual(session.symbols(), {"n": (1, 1024)})
            self.assertEqual(session.target, TARGET)
            self.assertTrue(session.device)

    def test_loading_reports_its_progress(self):
        calls = []
        with driftc.Session(self.path, progress=lambda *call: calls.append(call)) as session:
            total = session.stats()["pipelines"]
        self.assertEqual(calls, [(created, total) for created in range(total + 1)])
        self.assertGreater(total, 0)
        with self.assertRaisesRegex(ZeroDivisionError, "zero"):
            driftc.Session(self.path, progress=lambda created, total: 1 // 0)

    def test_only_bundles_of_trusted_keys_are_loaded(self):
        folder = Path(self.folder.name)
        keys, signed = folder / "python.key", folder / "signed.drift"
        program = driftc.compiler.program()
        subprocess.run([program, "keygen", "-o", keys, "--no-password", "--force"], check=True, capture_output=True)
        driftc.compile(model(), signed, TARGET, dims={"n": (1, 1024)}, sign=keys)
        self.assertEqual(driftc.inspect(signed)["hash"], driftc.inspect(self.path)["hash"])
        with self.assertRaisesRegex(driftc.Error, "none.key"):
            driftc.compile(model(), folder / "unsigned.drift", TARGET, dims={"n": 2}, sign=folder / "none.key")
        text = keys.with_suffix(".pub").read_text()
        other = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
        for trusted in ([text], [other, text.splitlines()[1]], None):
            driftc.Session(signed, trusted_keys=trusted).close()
        with self.assertRaisesRegex(driftc.Error, "it is not signed, but trusted keys are: [0-9A-F]{16};"):
            driftc.Session(self.path, trusted_keys=[text])
        with self.assertRaisesRegex(driftc.Error, "signed it, but trusted keys are: E7620F1842B4E81F;"):
            driftc.Session(signed, trusted_keys=[other])
        with self.assertRaisesRegex(driftc.Error, "trusted keys are: none"):
            driftc.open_together([signed], trusted_keys=[])
        with self.assertRaisesRegex(driftc.Error, "trusted key 2: it is a secret key"):
            driftc.Session(signed, trusted_keys=[text, keys.read_text()])
        with self.assertRaises(TypeError):
            driftc.Session(signed, trusted_keys=text)

    def test_the_self_test_runs_on_the_device(self):
        with driftc.Session(self.path) as session:
            self.assertEqual(session.self_test(), 1)
            self.assertEqual(session.self_test(), 1)
        path = self.path.with_name("tested.drift")
        for vectors in (0, 2):
            driftc.compile(model(), path, TARGET, dims={"n": 2}, self_test=vectors)
            with driftc.Session(path) as session:
                self.assertEqual(session.self_test(), vectors)
        with self.assertRaisesRegex(driftc.Error, "--self-test"):
            driftc.compile(model(), path, TARGET, dims={"n": 2}, self_test=-1)

    def test_pipelines_are_cached_by_default(self):
        def cached(**options):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["XDG_CACHE_HOME"] = folder
                try:
                    driftc.Session(self.path, **options).close()
                finally:
                    os.environ["XDG_CACHE_HOME"] = self.folder.name
                return [file.name for file in sorted(Path(folder).rglob("*.pipelines"))]

        own = f"{driftc.inspect(self.path)['hash'][:32]}.pipelines"
        self.assertEqual(cached(), [own])
        self.assertEqual(cached(pipeline_cache=False), [])
        self.assertEqual(cached(pipeline_cache=None), [])
        path = self.path.with_name("own.pipelines")
        self.assertEqual(cached(pipeline_cache=path), [])
        self.assertTrue(path.exists())

    def test_metadata_travels_in_the_bundle(self):
        labeled = model()
        helper.set_model_props(labeled, {"labels": "cat\ndog", "größe": "ü"})
        path = self.path.with_name("labeled.drift")
        driftc.compile(labeled, path, TARGET, dims={"n": 2})
        with driftc.Session(path) as session:
            self.assertEqual(session.metadata, {"labels": "cat\ndog", "größe": "ü"})
        with driftc.Session(self.path) as session:
            self.assertEqual(session.metadata, {})

    def test_linked_models_pass_values_on_the_device(self):
        folder = Path(self.folder.name)
        for name in ["first", "second"]:
            onnx.save(model(), folder / f"{name}.onnx")
        path = folder / "both.drift"
        models = [folder / "first.onnx", folder / "second.onnx"]
        driftc.compile(models, path, TARGET, dims={"n": (1, 8)}, links=["first.y=second.x"])
        with driftc.Session(path) as session:
            self.assertEqual(session.functions, ["first", "second"])
            x = np.arange(6, dtype=np.float32).reshape(2, 3)
            self.assertEqual(session.run({"x": x}, function="first"), {})
            session.set_symbol("n", 2, "second")
            np.testing.assert_array_equal(session.run({}, function="second")["y"], 4 * x)
        with self.assertRaisesRegex(driftc.Error, "names no function"):
            driftc.compile(models, path, TARGET, links=["third.y=second.x"])

    def test_integers_and_scalars(self):
        path = self.path.with_name("integers.drift")
        driftc.compile(model(TensorProto.INT64, ()), path, TARGET)
        with driftc.Session(path) as session:
            for value in (np.int64(-3), np.array(-3), -3):
                got = session.run({"x": value})["y"]
                self.assertEqual((got.dtype, got.shape, int(got)), (np.int64, (), -6))
            with self.assertRaisesRegex(driftc.Error, "cannot represent"):
                session.run({"x": np.int64(2**40)})

    def test_bf16(self):
        path = self.path.with_name("bf16.drift")
        driftc.compile(model(TensorProto.BFLOAT16), path, TARGET, dims={"n": (1, 8)})
        array = np.array([[1.5, -2, 3.25], [0, 1, 2]], ml_dtypes.bfloat16)
        with driftc.Session(path) as session:
            for given in (array, np.asfortranarray(array), array[::-1]):
                got = session.run({"x": given})["y"]
                self.assertEqual(got.dtype, ml_dtypes.bfloat16)
                np.testing.assert_array_equal(got, given + given)
            with self.assertRaisesRegex(TypeError, "takes bfloat16, but the array given is float32"):
                session.run({"x": array.astype(np.float32)})
        same = driftc.verify(
            model(TensorProto.BFLOAT16), TARGET, inputs={"x": array}, expect={"y": array + array}, dims={"n": (1, 8)}
        )
        self.assertTrue(same["equal"])

    def test_memory_is_accessed_without_copies_and_outlives_its_session(self):
        session = driftc.Session(self.path)
        for value in (1.0, 2.0):
            x = session.input("x", (2, 3))
            x[:] = value
            session.run({}, ["y"])
            y = session.output("y")
            np.testing.assert_array_equal(y, np.full((2, 3), 2 * value, np.float32))
        self.assertFalse(y.flags.writeable)
        self.assertEqual(session.input("x").shape, (1024, 3))
        with self.assertRaisesRegex(driftc.Error, "shape"):
            session.input("x", (2, 4))
        session.close()
        del session
        gc.collect()
        np.testing.assert_array_equal(y, np.full((2, 3), 4, np.float32))
        x[:] = 7

    def test_a_thousand_runs_allocate_nothing_on_the_device(self):
        array = np.ones((4, 3), np.float32)
        with driftc.Session(self.path) as session:
            session.run({"x": array})
            before = session.stats()
            for count in range(1000):
                array[0, 0] = count
                self.assertEqual(session.run({"x": array})["y"][0, 0], 2 * count)
            self.assertEqual(session.stats(), before)

    def test_dispatches_are_timed(self):
        with driftc.Session(self.path) as session:
            session.run({"x": np.ones((2, 3), np.float32)})
            session.reset_states()
            times = session.run_timed()
            self.assertTrue(times and all(label and 0 <= start <= end for label, start, end in times))

    def test_a_language_model_generates_tokens(self):
        path = self.path.with_name("llama.drift")
        driftc.compile(LLAMA, path, TARGET)
        with driftc.Generator(path) as model:
            self.assertEqual(model.set_text([1, 2, 3]), 0)
            seen = []
            first = model.generate(5, each=seen.append)
            self.assertEqual((first.tokens, first.ended, first.prompt_tokens), (seen, "length", 3))
            self.assertEqual(model.text, [1, 2, 3, *seen])
            self.assertGreater(model.set_text([1, 2, 3]), 0)
            again = model.generate(5, stops=[seen[2]], each=lambda token: True)
            self.assertEqual((again.tokens, again.stop), (seen[: seen.index(seen[2])], seen[2]))
            model.set_text([1, 2, 3])
            self.assertEqual(model.generate(5, each=lambda token: False).ended, "caller")
            with self.assertRaisesRegex(ZeroDivisionError, "zero"):
                model.generate(5, each=lambda token: 1 // 0)
            with self.assertRaisesRegex(driftc.Error, str(model.vocabulary)):
                model.set_text([model.vocabulary])
        with self.assertRaisesRegex(driftc.Error, "decode"):
            driftc.Generator(self.path)

    def test_a_chat_answers_like_the_program(self):
        path = chat_model(self.path.parent)
        arguments = ["generate", path, "--chat", "--system", "w9 w8", "--prompt", "w3 w4", "--max-tokens", "12"]
        command = [sys.executable, "-m", "driftc", *map(str, arguments)]
        environment = {**os.environ, "XDG_CACHE_HOME": self.folder.name}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        with driftc.Chat(path, system="w9 w8") as chat:
            answer = chat.say("w3 w4", max_tokens=12)
            pieces = list(answer)
            self.assertGreater(len(pieces), 6)
            self.assertEqual("".join(pieces), answer.text)
            self.assertEqual(answer.text.strip(), done.stdout.strip())
            self.assertEqual((answer.finish, answer.stop, answer.usage.tokens), ("length", None, 12))
            self.assertEqual(answer.usage.prompt_tokens, 4)
            saved = chat.messages
            self.assertEqual([message["role"] for message in saved], ["system", "user", "assistant"])
            self.assertEqual(saved[2]["content"], answer.text)
            self.assertGreater(chat.tokens, 4)
            self.assertEqual(chat.context, 64)

            words = answer.text.split()
            stop = next(word for word in words[1:] if word != words[0])
            again = chat.regenerate(max_tokens=12, stop=["absent", stop])
            self.assertEqual(str(again), answer.text[: answer.text.index(stop)])
            self.assertEqual((again.finish, again.stop), ("stop", stop))

            chat.save(self.path.with_name("chat.json"))
            self.assertEqual(json.loads(self.path.with_name("chat.json").read_text()), chat.messages)
            chat.reset()
            self.assertEqual(chat.messages, [{"role": "system", "content": "w9 w8"}])
            chat.system = None
            self.assertIsNone(chat.system)
            chat.load(self.path.with_name("chat.json"))
            self.assertEqual((chat.system, len(chat.messages)), ("w9 w8", 3))
            with self.assertRaisesRegex(driftc.Error, "nowhere"):
                chat.load("/nowhere/at/all")

    def test_an_answer_is_cancelled_or_fails(self):
        with driftc.Chat(chat_model(self.path.parent)) as chat:
            answer = chat.say("w1", max_tokens=50)
            first = next(answer)
            answer.close()
            self.assertEqual((answer.finish, answer.text.startswith(first)), ("cancelled", True))
            self.assertEqual(chat.messages[1]["content"], answer.text)
            self.assertLess(answer.usage.tokens, 50)
            # Nobody refers to this answer any more.
            chat.say("w2", max_tokens=50)
            chat.reset()
            self.assertEqual(chat.messages, [])
            answer = chat.say("w1 " * 100)
            with self.assertRaisesRegex(driftc.Error, "context is full.*\n?help: .*--dim context"):
                list(answer)
            answer.close()
            with self.assertRaisesRegex(driftc.Error, "min_p"):
                chat.say("w1", min_p=2.0, temperature=1.0).wait()
            with self.assertRaisesRegex(ValueError, "zero byte"):
                chat.say("w1", stop="a\0b")
            self.assertEqual(chat.messages, [])
            answer = chat.say("w1", max_tokens=40)
            next(answer)
            if answer._work.thread.is_alive():
                with self.assertRaisesRegex(driftc.Error, "still being generated\nhelp: read"):
                    chat.say("w2")
            answer.close()
        with self.assertRaisesRegex(driftc.Error, "closed"):
            chat.messages
        with self.assertRaisesRegex(driftc.Error, "no tokenizer"):
            driftc.Chat(self.path)

    def test_the_tokenizer_and_the_files_of_a_bundle(self):
        path = chat_model(self.path.parent)
        tokenizer = driftc.Tokenizer(path)
        ids = tokenizer.encode("w5 w0 w7")
        self.assertEqual((ids, tokenizer.decode(ids), tokenizer.count("w1 w1")), ([5, 0, 7], "w5 w0 w7", 2))
        self.assertEqual(len(tokenizer), json.loads((LLAMA / "config.json").read_text())["vocab_size"])
        with self.assertRaises(ValueError):
            tokenizer.decode([-1])
        self.assertIn("vocab", json.loads(driftc.attachment(path, "tokenizer.json"))["model"])
        self.assertIsNone(driftc.attachment(path, "absent.txt"))
        with self.assertRaises(driftc.Error):
            driftc.attachment("/nowhere/at/all", "tokenizer.json")
        with self.assertRaisesRegex(driftc.Error, "no tokenizer"):
            driftc.Tokenizer(self.path)

    def test_embeddings_match_a_session(self):
        path = self.path.with_name("minilm.drift")
        driftc.compile(os.environ["DRIFT_MINILM"], path, TARGET, dims={"seq": (1, 32)})
        texts = ["A man is eating food.", "Someone has a meal."]
        with driftc.Embedder(path) as embedder:
            self.assertEqual((embedder.size, embedder.max_tokens), (384, 32))
            found = embedder.embed(texts)
            self.assertEqual((found.shape, found.dtype), ((2, 384), np.float32))
            np.testing.assert_array_equal(embedder.embed(texts[1]), found[1:])
            with self.assertRaisesRegex(driftc.Error, r"the text has \d+ tokens.*\nhelp: split the text"):
                embedder.embed("word " * 40)
        tokenizer = driftc.Tokenizer(path)
        with driftc.Session(path) as session:
            for text, row in zip(texts, found):
                ids = np.array([tokenizer.encode(text)])
                inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
                outputs = session.run(inputs)
                np.testing.assert_array_equal(outputs["sentence_embedding"][0], row)
                mean = outputs["last_hidden_state"][0].mean(axis=0)
                np.testing.assert_allclose(row, mean / np.linalg.norm(mean), atol=1e-5)
        with self.assertRaisesRegex(driftc.Error, "computes no embeddings"):
            driftc.Embedder(self.path)

    def test_runs_in_flight(self):
        with driftc.Session(self.path, frames=2) as session:
            tickets = [session.submit({"x": np.full((1, 3), value, np.float32)}) for value in (1, 2)]
            for value, ticket in zip((1, 2), tickets):
                np.testing.assert_array_equal(session.collect(ticket)["y"], np.full((1, 3), 2 * value, np.float32))
            session.submit({})
            with self.assertRaisesRegex(driftc.Error, "overwritten"):
                session.collect(tickets[0])

    def test_an_output_of_one_session_is_an_input_of_another(self):
        first, second = driftc.open_together([self.path, self.path])
        first.run({"x": np.ones((5, 3), np.float32)}, [])
        y = first.device_output("y")
        self.assertEqual(y.dtype, "f32")
        np.testing.assert_array_equal(second.run({"x": y})["y"], np.full((5, 3), 4, np.float32))
        with driftc.Session(self.path) as other, self.assertRaisesRegex(driftc.Error, "together"):
            other.run({"x": y})

    def test_threads(self):
        errors = []

        def work(session, value):
            for _ in range(50):
                got = session.run({"x": np.full((2, 3), value, np.float32)})["y"]
                if not (got == 2 * value).all():
                    errors.append(value)

        sessions = [driftc.Session(self.path) for _ in range(3)]
        threads = [threading.Thread(target=work, args=(s, v)) for v, s in enumerate(sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_the_compiler(self):
        self.assertEqual(self.report["targets"][0]["target"], TARGET)
        self.assertIn(TARGET, [target["name"] for target in driftc.targets()])
        self.assertTrue(driftc.inspect(self.path)["variants"])
        sample = {"x": np.ones((2, 3), np.float32)}
        same = driftc.verify(model(), TARGET, inputs=sample, expect={"y": np.full((2, 3), 2, np.float32)})
        other = driftc.verify(model(), TARGET, inputs=sample, expect={"y": np.zeros((2, 3), np.float32)})
        self.assertNotEqual(same, other)
        done = subprocess.run([sys.executable, "-m", "driftc", "--version"], capture_output=True, text=True, check=True)
        self.assertIn(driftc.__version__, done.stdout)


if __name__ == "__main__":
    unittest.main()
