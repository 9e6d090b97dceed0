"""A process in which contestants wait for their turn: `python -m benchmarks.worker`.

Asked in JSON lines, ``{"prepare": NAME, "problem": {…}}``, ``{"run": NAME}``, ``{"drop": NAME}``,
it answers each with one line.
"""

import contextlib
import gc
import json
import os
import sys
import time
from typing import Any

from benchmarks import contestants
from benchmarks.problems import Problem


def main() -> None:
    # Whatever prints must not disturb the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(contestants.THREADS)
    waiting: dict[str, contestants.Call] = {}
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line), waiting)) + "\n")
        answers.flush()


def _answer(asked: dict[str, Any], waiting: dict[str, contestants.Call]) -> dict[str, Any]:
    if "prepare" in asked:
        name = asked["prepare"]
        try:
            call = getattr(contestants, name)(Problem(**asked["problem"]))
            call()
        except contestants.Refused:
            return {"refused": ""}
        # Others' packages raise what they like; the table then says so.
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {str(error).splitlines()[:1]}"}
        waiting[name] = call
        return {"ready": True}
    if "drop" in asked:
        waiting.pop(asked["drop"], None)
        gc.collect()
        return {}
    call = waiting[asked["run"]]
    gc.disable()
    began = time.perf_counter()
    call()
    taken = time.perf_counter() - began
    gc.enable()
    return {"seconds": taken}


if __name__ == "__main__":
    main()
