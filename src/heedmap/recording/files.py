"""Tensors in one safetensors file: written in order, hashed, mapped into memory when opened."""

import hashlib
import importlib
import json
import os
import re
import stat
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from heedmap.errors import InputError, MissingExtraError, UnsupportedError

ALIGNMENT = 64
"""Where in memory tensors begin. Products of one and the same matrix can differ in the last bit
when it begins elsewhere, so a mapped tensor begins where one of PyTorch's own would."""

NAME = re.compile(r"\d{4,9}(-\d{4,9})?\.safetensors")
"""The number of the layer and, where each of several ranks wrote a part, that of the rank."""

CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls the number types that a recording can hold."""

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in CODES}
"""The same by the names that stand in a manifest."""


def name_of(dtype: torch.dtype) -> str:
    """Return what a manifest calls a number type.

    Raises:
        UnsupportedError: if a recording cannot hold it.
    """
    if dtype not in CODES:
        raise UnsupportedError(f"its tensors must be numbers of {', '.join(DTYPES)}; got {dtype}")
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class TensorFile:
    """A file of a recording, as its manifest has it.

    Attributes:
        name: Its name in the folder.
        size_bytes: Its length.
        sha256: Of all its bytes.
        tensors: The number type and shape of each tensor in it.
    """

    name: str
    size_bytes: int
    sha256: str
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]

    def as_plain(self) -> dict[str, Any]:
        """Return it as the manifest has it."""
        tensors = {
            name: {"dtype": name_of(dtype), "shape": list(shape)}
            for name, (dtype, shape) in self.tensors.items()
        }
        return {
            "name": self.name,
            "bytes": self.size_bytes,
            "sha256": self.sha256,
            "tensors": tensors,
        }

    @classmethod
    def of_plain(cls, plain: Any) -> "TensorFile":
        """Return what a manifest says of a file.

        Raises:
            InputError: if its name is none that a recording gives.
            KeyError, TypeError, ValueError, AttributeError: if it makes no sense otherwise.
        """
        name = plain["name"]
        if NAME.fullmatch(name) is None:
            raise InputError(f"it names the file {name!r}")
        tensors = {
            tensor: (DTYPES[about["dtype"]], tuple(map(_size, about["shape"])))
            for tensor, about in plain["tensors"].items()
        }
        return cls(name, _size(plain["bytes"]), str(plain["sha256"]), tensors)

    def hollow(self) -> dict[str, Shaped[Tensor, "..."]]:
        """Return tensors of these shapes without memory."""
        return {
            name: torch.empty(shape, dtype=dtype, device="meta")
            for name, (dtype, shape) in self.tensors.items()
        }

    def check(self, folder: Path) -> None:
        """Compare the file's kind, length and header with the manifest; no tensor is read.

        Raises:
            InputError: if they differ.
        """
        try:
            found = os.lstat(folder / self.name)
        except FileNotFoundError:
            raise damaged(folder, self.name, "is missing") from None
        if not stat.S_ISREG(found.st_mode):
            raise damaged(folder, self.name, "is no ordinary file")
        if found.st_size != self.size_bytes:
            raise damaged(
                folder, self.name, f"has {found.st_size} bytes where it had {self.size_bytes}"
            )
        with _opened(folder, self.name) as file:
            # The file is no mapping: it has `keys`, and cannot be gone through itself.
            names: list[str] = file.keys()
            header = {name: _header_of(file, name) for name in names}
        known = {name: (CODES[dtype], shape) for name, (dtype, shape) in self.tensors.items()}
        if header != known:
            raise damaged(folder, self.name, "holds other tensors than the manifest says")

    def read(self, folder: Path) -> dict[str, Shaped[Tensor, "..."]]:
        """Return the tensors, mapped from the file, whose bytes are compared with their hash.

        Raises:
            InputError: if the file is not what was saved.

        Cost: the file is read once; in memory lies only what is used of it later.
        """
        self.check(folder)
        with (folder / self.name).open("rb") as bytes_of_file:
            found = hashlib.file_digest(bytes_of_file, "sha256").hexdigest()
        if found != self.sha256:
            raise damaged(folder, self.name, "was altered: its SHA-256 is another")
        with _opened(folder, self.name) as file:
            tensors = {name: file.get_tensor(name) for name in self.tensors}
        return {
            name: tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor
            for name, tensor in tensors.items()
        }


def write_tensors(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> TensorFile:
    """Write a file, down to the disk, and return what there is to know of it.

    Those whose lengths keep the next one aligned come first, so that few are misaligned.

    Cost: memory of one tensor where it is on another device or not contiguous.
    """
    order = sorted(tensors, key=lambda tensor: tensors[tensor].nbytes % ALIGNMENT != 0)
    header, place = {}, 0
    for tensor in order:
        given = tensors[tensor]
        end = place + given.nbytes
        about = {"dtype": CODES[given.dtype], "shape": list(given.shape)}
        header[tensor] = about | {"data_offsets": [place, end]}
        place = end
    head = json.dumps(header).encode()
    head += b" " * (-(8 + len(head)) % ALIGNMENT)
    digest = hashlib.sha256()
    with (folder / name).open("xb") as file:
        for part in (struct.pack("<Q", len(head)), head, *(tensors[tensor] for tensor in order)):
            data = _bytes_of(part) if isinstance(part, Tensor) else part
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    shapes = {tensor: (t.dtype, tuple(t.shape)) for tensor, t in tensors.items()}
    return TensorFile(name, 8 + len(head) + place, digest.hexdigest(), shapes)


def unrepeated(table: Tensor, dims: int) -> Tensor:
    """Return a table with one entry along each of its first `dims` dimensions that only repeats.

    What `expand` has spread would be written as often as it is repeated.
    """
    for dim in range(dims):
        if table.stride(dim) == 0 and table.shape[dim] > 1:
            table = table.narrow(dim, 0, 1)
    return table


def damaged(folder: Path, name: str, what: str) -> InputError:
    """Return the error of a folder of which one file is not what was saved."""
    return InputError(
        f"folder must hold a whole recording; got {folder}, whose {name} {what}. Save it again."
    )


def safetensors() -> ModuleType:
    """Return the package that reads the files.

    Raises:
        MissingExtraError: if it is missing, or numpy, on which it stands.
        UnsupportedError: on machines that write numbers the other way round.
    """
    if sys.byteorder != "little":
        raise UnsupportedError("recordings must be used on a little-endian machine; got another.")
    for package in ("numpy", "safetensors"):
        try:
            importlib.import_module(package)
        except ImportError:
            raise MissingExtraError(package, "models") from None
    return sys.modules["safetensors"]


def _opened(folder: Path, name: str) -> Any:
    package = safetensors()
    try:
        return package.safe_open(folder / name, framework="pt")
    except (package.SafetensorError, OSError) as error:
        raise damaged(folder, name, f"cannot be read as a file of tensors ({error})") from error


def _header_of(file: Any, name: str) -> tuple[str, tuple[int, ...]]:
    part = file.get_slice(name)
    return part.get_dtype(), tuple(part.get_shape())


def _bytes_of(tensor: Tensor) -> Any:
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _size(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is no size")
    return number
