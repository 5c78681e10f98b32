"""Tests of `driftc.fleet` that need no cluster: `python test_fleet_commands.py`. Needs driftc in the variable DRIFTC, and onnx."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from driftc.fleet.actions import list_actions
from driftc.fleet.measure import _tasks, measure_on_node

DRIFTC = os.environ["DRIFTC"]
#: A program that writes its arguments to the file behind `-o`, or fails if the target is `vulkan-baseline`.
RECORDER = """#!/bin/bash
[[ " $* " != *" vulkan-baseline "* ]] || { echo "no such device" >&2; exit 1; }
while [[ "$1" != -o ]]; do shift; done
echo "measured with $*" >"$2"
"""


class Fleet(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negative", ports[:1], ports[1:])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), self.folder / "model.onnx")
        self.manifest = self.folder / "drift.toml"
        artifact = '[[model.artifact]]\nname = "one"\ntargets = ["lavapipe", "vulkan-baseline"]\nsplit = true\n'
        self.manifest.write_text(f'[[model]]\npath = "model.onnx"\n{artifact}')

    def done(self, *command, **more) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_bundles_are_signed_on_this_machine(self):
        key, results = self.folder / "fleet.key", self.folder / "results"
        self.done(DRIFTC, "keygen", "-o", key, "--no-password")
        # The results are there, so the fleet needs no cluster.
        self.done(DRIFTC, "build", self.manifest, "--cache-dir", results, "--output", self.folder / "other")
        fleet = [sys.executable, "-m", "driftc.fleet", self.manifest, "--results", results, "--sign", key]
        self.done(*fleet)
        bundles = sorted((self.folder / "bundles").glob("*.drift"))
        self.assertEqual(len(bundles), 2)
        for bundle in bundles:
            self.assertIn("signed", self.done(DRIFTC, "check", bundle, "--key", key.with_suffix(".pub")))

    def test_each_target_is_calibrated_with_the_options_of_driftc(self):
        recorder = self.folder / "recorder.sh"
        recorder.write_text(RECORDER)
        recorder.chmod(0o755)
        tasks = _tasks("calibrate", list_actions(self.manifest, []), 2)
        self.assertEqual([task.target for task in tasks], ["lavapipe", "vulkan-baseline"])
        os.environ["DRIFTC"] = str(recorder)
        try:
            measured = [measure_on_node(task) for task in tasks]
        finally:
            os.environ["DRIFTC"] = DRIFTC
        self.assertEqual(measured[0].result, "lavapipe.calibration.txt")
        self.assertTrue(measured[0].contents.startswith(b"measured with -o "), measured[0])
        self.assertEqual((measured[0].errors, measured[1].contents), ([], b""))
        self.assertIn("no such device", measured[1].errors[0])
        # The program takes these options.
        for words in tasks[0].commands:
            self.done(DRIFTC, *words, "--help")
        wrong = subprocess.run([DRIFTC, "calibrate", "--other", "--help"], capture_output=True, check=False)
        self.assertEqual(wrong.returncode, 2)


if __name__ == "__main__":
    unittest.main()
