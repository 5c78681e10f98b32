"""Progress of a fleet: one line for each model, or events as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any, Sequence

from .actions import Action
from .worker import Outcome


class Progress:
    """Counts finished actions by model, and prints a line when a model is finished. On a terminal, the last line shows the
    models in progress."""

    def __init__(self, actions: Sequence[Action], as_json: bool) -> None:
        self._models = {action.name: action.model for action in actions}
        self._total = Counter(self._models.values())
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()
        self._json = as_json
        # Other output goes to standard error while a cluster is connected.
        self._out = sys.stdout
        self._is_terminal = sys.stderr.isatty() and not as_json

    def event(self, **event: Any) -> None:
        """Prints an event, in JSON only."""
        if self._json:
            print(json.dumps(event), file=self._out, flush=True)

    def finished(self, outcome: Outcome) -> None:
        """Notes a finished action."""
        model = self._models[outcome.name]
        self._done[model] += 1
        self._failed[model] += outcome.event.get("event") == "failed"
        self._seconds[model] += outcome.seconds
        self.event(**{**outcome.event, "worker": outcome.worker, "task_seconds": round(outcome.task_seconds, 4)})
        if self._json:
            return
        if self._done[model] == self._total[model]:
            self._line(self._text(model))
        if self._is_terminal:
            busy = [model for model in self._total if 0 < self._done[model] < self._total[model]]
            shown = ", ".join(f"{model} {self._done[model]}/{self._total[model]}" for model in busy)
            all_done, total = sum(self._done.values()), sum(self._total.values())
            sys.stderr.write(f"\r\033[K{all_done}/{total} bundles: {shown}"[:160])
            sys.stderr.flush()

    def _text(self, model: str) -> str:
        failed = f", {self._failed[model]} failed" if self._failed[model] else ""
        return f"{model}: {self._done[model]} bundles{failed}, {self._seconds[model]:.1f} s of compile time"

    def note(self, text: str) -> None:
        """Prints a note to standard error."""
        self._line(text)

    def _line(self, text: str) -> None:
        sys.stderr.write(("\r\033[K" if self._is_terminal else "") + text + "\n")
        sys.stderr.flush()
