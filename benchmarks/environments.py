"""Where contestants live: processes of this environment, or of one made for a peer."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from benchmarks.contestants import THREADS
from benchmarks.problems import Problem

FOLDER = Path(__file__).parent / ".environments"

PEERS = {
    "onnxruntime": ["onnxruntime==1.32.0", "onnx==1.23.2"],
    "jax": ["jax==0.10.2", "jaxlib==0.10.2"],
}
"""What is installed for a peer that heedmap does not need itself."""


def python_of(peer: str) -> Path | None:
    """Return the interpreter of a peer's environment, made first; None where that fails."""
    folder = FOLDER / peer
    python = folder / "bin" / "python"
    if (folder / "made").exists():
        return python
    print(f"Installing {peer} into an environment of its own …", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    install = [python, "-m", "pip", "install", "--quiet", *PEERS[peer]]
    if subprocess.run(install, stdout=subprocess.DEVNULL, check=False).returncode:
        return None
    (folder / "made").touch()
    return python


class Process:
    """A worker, and what it has been asked."""

    def __init__(self, python: str | Path, **environment: str) -> None:
        """Start it."""
        threads = {"OMP_NUM_THREADS": str(THREADS)}
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | threads | environment,
            cwd=Path(__file__).parent.parent,
        )

    def prepare(self, name: str, problem: Problem) -> str | None:
        """Return why a contestant does not take a problem, None if it does."""
        answer = self._ask({"prepare": name, "problem": problem.as_plain()})
        return answer.get("refused")

    def run(self, name: str) -> float:
        """Return the seconds of one call."""
        return float(self._ask({"run": name})["seconds"])

    def drop(self, name: str) -> None:
        """Let a contestant forget its problem."""
        self._ask({"drop": name})

    def close(self) -> None:
        """End it."""
        self.process.communicate()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended with status {self.process.wait()}")
        return json.loads(line)
