"""What tests share: a guard against matrices that should never exist, and encoded sounds."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import heedmap

# In the background of a shell Ctrl-C is ignored, and what is started there would ignore it, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ForbidDense = Callable[[int], AbstractContextManager[None]]
WriteSound = Callable[..., Path]


@pytest.fixture
def forbid_dense() -> ForbidDense:
    """Return a function that forbids, in a block, tensors of so many cells or more.

    ``with forbid_dense(queries * keys):`` fails the test as soon as a torch operation in the block,
    forward or backward, allocates a tensor of that many elements. Views of what is there already
    are fine. What an operation allocates and frees within itself is not seen.
    """
    return _forbid_dense


@contextmanager
def _forbid_dense(cells: int) -> Iterator[None]:
    with heedmap.dense_budget(0), _NoTensorOf(cells):
        yield


class _NoTensorOf(TorchDispatchMode):
    """Fails when an operation returns new memory of at least `cells` elements."""

    def __init__(self, cells: int) -> None:
        super().__init__()
        self.cells = cells

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_storage(tensor) for tensor in _tensors((args, kwargs))}
        returned = func(*args, **(kwargs or {}))
        for tensor in _tensors(returned):
            elements = tensor.untyped_storage().nbytes() // tensor.element_size()
            if elements >= self.cells and _storage(tensor) not in given:
                # A BaseException, so that no handler in the code under test hides it.
                pytest.fail(
                    f"{func} made a tensor of {elements} elements, shape {list(tensor.shape)}; "
                    f"{self.cells} or more are forbidden here."
                )
        return returned


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


@pytest.fixture
def write_sound(tmp_path: Path) -> WriteSound:
    """Return a function that encodes samples [channels, samples], with a cover or a gap midway."""

    def write(
        name: str,
        samples: np.ndarray,
        *,
        codec: str,
        rate: int = 16000,
        cover: bool = False,
        gap_samples: int = 0,
    ) -> Path:
        path = tmp_path / name
        layout = "mono" if len(samples) == 1 else "stereo"
        kind = "mp4" if cover and path.suffix == ".m4a" else None
        with av.open(str(path), "w", format=kind) as container:
            stream = container.add_stream(codec, rate=rate, layout=layout)
            if cover:
                art = container.add_stream("mjpeg", rate=1)
                art.width = art.height = 32
                art.pix_fmt = "yuvj420p"
                art.disposition = av.stream.Disposition.attached_pic
                picture = av.VideoFrame.from_ndarray(np.full((48, 32), 90, np.uint8), "yuvj420p")
                picture.pts = 0
                container.mux(art.encode(picture))
                container.mux(art.encode(None))
            resampler = av.AudioResampler(stream.codec_context.format.name, layout, rate)
            for start in range(0, samples.shape[1], 1024):
                piece = np.ascontiguousarray(samples[:, start : start + 1024], np.float32)
                frame = av.AudioFrame.from_ndarray(piece, "fltp", layout)
                frame.rate = rate
                frame.pts = start + (gap_samples if start >= samples.shape[1] // 2 else 0)
                for converted in resampler.resample(frame):
                    container.mux(stream.encode(converted))
            container.mux(stream.encode(None))
        return path

    return write
