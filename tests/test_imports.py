"""The whole library can be imported with torch and jaxtyping alone."""

import subprocess
import sys

OPTIONAL = (
    "numpy",
    "anywidget",
    "httptools",
    "starlette",
    "uvicorn",
    "av",
    "pyannote.core",
    "pyannote.metrics",
    "scipy",
    "webvtt",
    "kaldi_native_fbank",
    "matplotlib",
    "safetensors",
    "soundfile",
    "soxr",
    "transformers",
    "triton",
)
PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({OPTIONAL}))  # None: importing it fails
import importlib, pkgutil, torch, heedmap
names = [found.name for found in pkgutil.walk_packages(heedmap.__path__, "heedmap.")]
for name in names:
    importlib.import_module(name)
output, weights = heedmap.attention(*[torch.ones(3, 4)] * 3)
print(len(names), weights.shape)
"""


def test_every_module_can_be_imported_without_the_extras() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    count, shape = done.stdout.split(maxsplit=1)
    assert int(count) > 40
    assert shape.strip() == "torch.Size([3, 3])"
