"""Checks the GitHub action by the schemas of actions and workflows, and runs its shell scripts in a project.

Usage: github.py ACTION_FOLDER PROJECT. The project's lock file must be up to date; driftc must be in PATH."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

action_folder, project = map(Path, sys.argv[1:])
for schema, file in (("actions", "action.yml"), ("workflows", "example-workflow.yml")):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.github-{schema}"]
    subprocess.run([*command, action_folder / file], check=True)

action = YAML(typ="safe").load(action_folder / "action.yml")


def run(inputs: dict[str, str]) -> dict[str, str]:
    """Runs the scripts of the action, as the runner does. Returns the outputs of the steps. Raises an error if a script fails."""
    inputs = {name: values["default"] for name, values in action["inputs"].items()} | inputs
    with tempfile.TemporaryDirectory() as scratch:
        outputs = Path(scratch, "outputs")
        environment = os.environ | {"RUNNER_TEMP": scratch, "GITHUB_OUTPUT": str(outputs)}
        for step in action["runs"]["steps"]:
            is_listing = "list-only" in step.get("if", "") and inputs["list-only"] == "true"
            if "run" not in step or is_listing or step["name"] == "Install driftc":
                continue
            variables = {
                name: re.sub(r"\$\{\{ inputs\.([a-z-]+) }}", lambda match: inputs[match[1]], value)
                for name, value in step["env"].items()
            }
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            subprocess.run(command, cwd=project, env=environment | variables, check=True)
        return dict(line.split("=", 1) for line in outputs.read_text().splitlines())


bundle = project / "bundles/detector.app.drift"
listed = run({"list-only": "true"})
assert json.loads(listed["bundles"]) == ["detector.app"], listed
assert not bundle.exists()
built = run({"only": "detector.app"})
assert built["key"] == listed["key"] and bundle.exists()

# A bundle that differs from the lock file fails the action, unless the lock file is not checked.
manifest = project / "drift.toml"
manifest.write_text(manifest.read_text().replace("1..4", "1..5"))
try:
    run({})
    raise SystemExit("a bundle that differs from the lock file was accepted")
except subprocess.CalledProcessError:
    pass
assert run({"locked": "false"})["key"] != built["key"]
