"""What this installation of heedmap has to work with: `heedmap doctor`."""

import importlib.util
import os
import platform
from importlib.metadata import version

import torch

from heedmap import compiled
from heedmap.kernels.triton import library as triton

EXTRAS = {
    "media": ("numpy", "soundfile", "soxr", "av", "kaldi_native_fbank"),
    "models": ("numpy", "transformers", "safetensors"),
    "plot": ("numpy", "matplotlib"),
    "explore": ("starlette", "uvicorn", "httptools"),
    "notebook": ("anywidget",),
    "speech": ("scipy", "pyannote.metrics", "webvtt"),
}


def examine() -> dict[str, str]:
    """Return what there is, by what it is called.

    Example:
        >>> list(examine())[:8]
        ['heedmap', 'python', 'torch', 'cpu', 'threads', 'kernel', 'gpu', 'triton']
    """
    found = {
        "heedmap": version("heedmap"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": str(torch.get_num_threads()),
        "kernel": _kernel(),
        "gpu": _gpu(),
        "triton": _triton(),
    }
    return found | {name: _extra(name) for name in EXTRAS}


def _kernel() -> str:
    found = compiled.load()
    if found is not None:
        return f"native, compiled for {found[0]}"
    if os.environ.get("HEEDMAP_KERNEL") == "torch":
        return "PyTorch's, as HEEDMAP_KERNEL says"
    if not compiled.runnable():
        return "PyTorch's: there is no kernel of our own for this CPU"
    return "PyTorch's: none was compiled at installation, for want of a C++ compiler with OpenMP"


def _gpu() -> str:
    if not torch.cuda.is_available():
        return "none that torch can use: everything is computed on the CPU"
    others = torch.cuda.device_count() - 1
    return torch.cuda.get_device_name(0) + (f", and {others} more" if others else "")


def _triton() -> str:
    version_there = triton.version_there()
    if version_there is None:
        return "not installed; only statistics on a GPU use it, which take longer without"
    if triton.is_interpreted():
        return f"{version_there}, interpreted, as TRITON_INTERPRET says: slow"
    if not torch.cuda.is_available():
        return f"{version_there}, without a GPU to run on"
    return f"{version_there}, products in {triton.products()}"


def _extra(name: str) -> str:
    missing = [package for package in EXTRAS[name] if not _is_there(package)]
    if not missing:
        return "installed"
    return f"without {', '.join(missing)}; run: pip install 'heedmap[{name}]'"


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it lies in
        return False
