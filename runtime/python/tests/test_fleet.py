"""Test of `python -m driftc.fleet` on a Ray cluster of two nodes on this machine: `python test_fleet.py FOLDER`.

FOLDER has the models that are built, and is changed. Needs the package ray, and driftc in the variable DRIFTC. Two tasks lose
their worker while the compiler runs; all files must be equal to the files of a local build."""

import hashlib
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

from ray.cluster_utils import Cluster

FOLDER = Path(sys.argv[1]).resolve()
MODELS = sorted(FOLDER.glob("*.onnx"))
TARGETS = [
    "lavapipe", "vulkan-baseline", "adreno-750", "mali-g720", "amd-rdna3", "intel-battlemage", "nvidia-ada", "webgpu-baseline",
]  # fmt: skip
#: A program that behaves like driftc, but kills the process that called it in the builds whose numbers the file KILLS has.
WRAPPER = """#!/bin/bash
if [[ " $* " = *" --only "* && -n "$KILLS" ]]; then
    exec 9>>"$KILLS.count"
    flock 9
    echo >>"$KILLS.count"
    number=$(wc -l <"$KILLS.count")
    flock -u 9
    if grep -qx "$number" "$KILLS"; then
        "$REAL_DRIFTC" "$@" >/dev/null 2>&1 9>&- & build=$!
        sleep 0.1
        kill -9 $PPID
        wait $build
        exit 1
    fi
    exec 9>&-
fi
exec "$REAL_DRIFTC" "$@"
"""


def manifest(folder: Path, models: list[Path] = MODELS) -> Path:
    """Writes a manifest of one bundle for each model and target."""
    folder.mkdir()
    text = f"[targets]\nall = {json.dumps(TARGETS)}\n"
    for model in models:
        text += f"[[model]]\nname = {json.dumps(model.stem)}\npath = {json.dumps(str(model))}\n"
        text += '[[model.artifact]]\nname = "one"\ntargets = "all"\nsplit = true\n'
    (folder / "drift.toml").write_text(text)
    return folder / "drift.toml"


def files(folder: Path) -> dict[str, str]:
    """Returns the hashes of the lock file, the reports and the bundles of a build."""
    found = [folder / "drift.lock", *(folder / "bundles").glob("*.*")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in found if file.is_file()}


class Fleet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kills = FOLDER / "kills"
        kills.write_text("3\n6\n" if len(MODELS) < 4 else "20\n50\n")
        wrapper = FOLDER / "driftc.sh"
        wrapper.write_text(WRAPPER)
        wrapper.chmod(0o755)
        os.environ |= {"REAL_DRIFTC": os.environ["DRIFTC"], "DRIFTC": str(wrapper), "KILLS": str(kills)}
        os.environ |= {"XDG_CACHE_HOME": str(FOLDER / "cache"), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        # Without the variable above, Ray replaces 127.0.0.1 by another address of this machine.
        cls.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "node_ip_address": "127.0.0.1"})
        cls.cluster.add_node(num_cpus=1, resources={"target:lavapipe": 1})

    @classmethod
    def tearDownClass(cls):
        cls.cluster.shutdown()

    def fleet(self, *arguments, **more) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "driftc.fleet", "--address", self.cluster.address, "--json"]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=1800, **more)

    def events(self, done: subprocess.CompletedProcess) -> list[dict]:
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for line in done.stdout.splitlines():
            self.assertTrue(line.startswith("{"), line)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_1_files_equal_a_local_build(self):
        local = manifest(FOLDER / "local")
        command = [os.environ["REAL_DRIFTC"], "build", local, "--no-cache", "--jobs", "2", "--json"]
        built = self.events(subprocess.run(command, capture_output=True, text=True, check=False))
        self.assertEqual(built[-1]["built"], len(MODELS) * len(TARGETS))
        events = self.events(self.fleet(manifest(FOLDER / "fleet")))
        self.assertEqual(files(FOLDER / "fleet"), files(FOLDER / "local"))
        attempts = (FOLDER / "kills.count").read_text().count("\n")
        self.assertEqual(attempts, len(MODELS) * len(TARGETS) + 2, "two tasks were repeated")
        self.assertEqual(events[-1]["cached"], len(MODELS) * len(TARGETS))
        (summary,) = [event for event in events if event["event"] == "fleet"]
        self.assertEqual(summary["slots"], 2)
        workers = {event["worker"] for event in events if "worker" in event}
        self.assertGreaterEqual(len(workers), 3)
        compile_seconds = sum(event.get("seconds", 0) for event in built)
        print(f"fleet: {json.dumps(summary)}; {len(workers)} processes; local compile time {compile_seconds:.1f} s")
        # A second build has nothing to do, and starts no task.
        again = self.events(self.fleet(FOLDER / "fleet/drift.toml"))
        self.assertEqual((again[0]["tasks"], again[-1]["up-to-date"]), (0, len(MODELS) * len(TARGETS)))

    def test_2_results_come_through_a_shared_cache(self):
        path = manifest(FOLDER / "shared", MODELS[:1])
        cache = f"file://{FOLDER}/store"
        events = self.events(self.fleet(path, "--shared-cache", cache, "--results", FOLDER / "results"))
        self.assertEqual(events[-1]["fetched"], len(TARGETS))
        expected = files(FOLDER / "local")
        bundles = {name: data for name, data in files(FOLDER / "shared").items() if name.endswith(".drift")}
        self.assertEqual(bundles, {name: expected[name] for name in bundles})

    def test_3_an_uploaded_folder_is_built(self):
        path = manifest(FOLDER / "upload", [])
        (FOLDER / "upload/model.onnx").write_bytes(MODELS[0].read_bytes())
        model = '[[model]]\npath = "model.onnx"\n[[model.artifact]]\nname = "one"\ntargets = "lavapipe"\n'
        path.write_text(path.read_text() + model)
        events = self.events(self.fleet("drift.toml", "--upload", "--results", "../more", cwd=FOLDER / "upload"))
        self.assertEqual(events[-1]["cached"], 1)

    def test_4_a_refused_model_is_reported(self):
        path = manifest(FOLDER / "refused", [])
        (FOLDER / "refused/model.onnx").write_bytes(b"no model")
        model = '[[model]]\npath = "model.onnx"\n[[model.artifact]]\nname = "one"\ntargets = "lavapipe"\n'
        path.write_text(path.read_text() + model)
        done = self.fleet(path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("model.onnx", done.stderr)

    def test_5_measurements_run_on_the_node_with_the_device(self):
        path = manifest(FOLDER / "measured", MODELS[:1])
        missing = self.fleet(path, "--measure", "check")
        self.assertIn("build the bundles before --measure check", missing.stderr)
        only = ["--only", f"{MODELS[0].stem}.one.lavapipe"]
        self.events(self.fleet(path, *only))
        checked = self.events(self.fleet(path, *only, "--measure", "check"))
        self.assertEqual(checked[-1]["errors"], [])
        done = self.fleet(path, "--measure", "tune", "--minutes", "0.1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("no node has the resource target:adreno-750", done.stderr)
        database = FOLDER / "measured/bundles/measured/lavapipe.tuning.txt"
        self.assertTrue(database.read_text().startswith("driftc tuning 1"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
