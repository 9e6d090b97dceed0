"""multilingual-e5-small out of one file with 4-bit weights, as an ordinary transformers BERT.

The file (``e5-small-q4.bin``, format E5S1, little endian) holds sizes, the pieces of a unigram
tokenizer with their scores, its character map, a directory of tensors, and the tensors. Of the 117
million parameters, 96 million are word embeddings of which a text needs a few rows: these stay as
they are in the memory map and are expanded when they are looked up.

Weights of 4 bits (Q4_0) come in blocks of 18 bytes for 32 values: a float16 scale and 16 bytes
whose low halves are the first 16 values and whose high halves are the others;
value = (half − 8) · scale.
"""

import mmap
import struct
from array import array
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from heedmap.errors import MissingExtraError, ModelError
from heedmap.models.unigram import UnigramTokenizer

if TYPE_CHECKING:
    from transformers import BertModel

_MAGIC = b"E5S1"
_BLOCK_VALUES = 32
_BLOCK_BYTES = 18


# What reading nonsense raises, here and where a model of nonsensical sizes is built.
_DAMAGE = (struct.error, ValueError, LookupError, AssertionError, RuntimeError)


class _Sizes(NamedTuple):
    """The head of the file, field by field as it stands there."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    types: int
    epsilon: float
    quantization: int
    pieces: int
    begin: int
    end: int
    padding: int
    unknown: int
    piece_bytes: int


_SIZES = struct.Struct("<7ifi5iQ")
_TENSOR = struct.Struct("<BiQQ")


class _Entry(NamedTuple):
    """Where a tensor lies in the file."""

    elements: int
    offset: int
    size: int


@dataclass(frozen=True)
class E5:
    """The model, in evaluation mode, and the tokenizer that goes with it."""

    model: "BertModel"
    tokenizer: UnigramTokenizer


def load_e5(path: Path) -> E5:
    """Return the BERT (no pooler, ``attn_implementation="sdpa"``) and the tokenizer in the file.

    Args:
        path: A file of format E5S1.

    Raises:
        ModelError: if the file is not of that format, or not whole.
        MissingExtraError: if transformers is not installed.

    Cost:
        About half a second and 160 MB; the file stays mapped while the model lives.
    """
    file = _map(path)
    try:
        head, sizes = _read_sizes(file)
        tokenizer, head = _read_tokenizer(file, head, sizes)
        entries = _read_directory(file, head)
        model = _build(file, sizes, entries)
    except _DAMAGE as error:
        raise ModelError(
            f"{path} must be a whole file of format E5S1; got one that breaks off or does not "
            f"fit together ({error}). Delete it, so that it is fetched again."
        ) from error
    return E5(model, tokenizer)


def expand_q4(rows: UInt8[Tensor, "*rows bytes"]) -> Float[Tensor, "*rows values"]:
    """Return the float32 values of rows of Q4_0 blocks: 32 values for every 18 bytes.

    Example:
        >>> one = torch.tensor([0x00, 0x3C], dtype=torch.uint8)  # 1.0 as float16
        >>> halves = torch.full((16,), 0x9A, dtype=torch.uint8)
        >>> expand_q4(torch.cat([one, halves]))[[0, 15, 16, 31]]
        tensor([2., 2., 1., 1.])
    """
    blocks = rows.unflatten(-1, (-1, _BLOCK_BYTES))
    scale = blocks[..., :2].contiguous().view(torch.float16).float()
    halves = torch.cat([blocks[..., 2:] & 0x0F, blocks[..., 2:] >> 4], dim=-1)
    return halves.float().sub_(8).mul_(scale).flatten(-2)


class PackedEmbedding(torch.nn.Module):
    """A table of embeddings in 4 bits, of which only the rows that are looked up are expanded.

    Its `state_dict` holds the whole table expanded, as ``weight``, so that a saved model is whole.
    """

    rows: Tensor

    def __init__(self, rows: UInt8[Tensor, "vocabulary bytes"]) -> None:
        """Keep the packed `rows` as they are; they are no parameters and have no gradient."""
        super().__init__()
        self.register_buffer("rows", rows, persistent=False)

    def forward(self, ids: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions hidden"]:
        """Return one expanded row for each number."""
        return expand_q4(self.rows[ids])

    def _save_to_state_dict(
        self, destination: dict[str, Tensor], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = expand_q4(self.rows)


def _map(path: Path) -> mmap.mmap:
    """Return the file as memory; copy-on-write, because torch wants memory that is writable."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} must be a readable file; got “{error}”.") from error


def _read_sizes(file: mmap.mmap) -> tuple[int, _Sizes]:
    """Return the end of the head and what it says."""
    if file[:4] != _MAGIC:
        raise ValueError(f"it begins with {file[:4]!r}")
    sizes = _Sizes(*_SIZES.unpack_from(file, 8))
    if sizes.quantization != _BLOCK_VALUES or min(sizes[:7]) < 1 or sizes.pieces < 1:
        raise ValueError(f"sizes {tuple(sizes)}")
    return 8 + _SIZES.size, sizes


def _read_tokenizer(file: mmap.mmap, head: int, sizes: _Sizes) -> tuple[UnigramTokenizer, int]:
    """Return the tokenizer and the place in the file after it."""
    ends = _numbers("I", file, head, sizes.pieces + 1)
    head += 4 * len(ends)
    scores = _numbers("f", file, head, sizes.pieces)
    head += 4 * len(scores)
    joined = file[head : head + sizes.piece_bytes]
    head += sizes.piece_bytes
    pieces = [joined[a:b].decode() for a, b in pairwise(ends)]
    normalizer, head = _read_normalizer(file, head)
    tokenizer = UnigramTokenizer(
        # Control tokens such as <s> and <mask> have the score 0; text never turns into them.
        ids={piece: i for i, piece in enumerate(pieces) if scores[i] < 0},
        scores=scores,
        normalizer=normalizer,
        begin=(sizes.begin, pieces[sizes.begin]),
        end=(sizes.end, pieces[sizes.end]),
        unknown=(sizes.unknown, pieces[sizes.unknown]),
        longest_piece=max(map(len, pieces)),
    )
    return tokenizer, head


def _numbers(code: str, file: mmap.mmap, head: int, count: int) -> array:
    numbers = array(code, file[head : head + 4 * count])
    if len(numbers) != count:
        raise ValueError("the pieces")
    return numbers


def _read_normalizer(file: mmap.mmap, head: int) -> tuple[dict[str, str], int]:
    """Return what characters turn into, and the place in the file after that."""
    entries, size = struct.unpack_from("<iI", file, head)
    head += 8
    after = head + size
    normalizer = {}
    for _ in range(entries):
        character, count = struct.unpack_from("<IB", file, head)
        replacement = struct.unpack_from(f"<{count}I", file, head + 5)
        normalizer[chr(character)] = "".join(map(chr, replacement))
        head += 5 + 4 * count
    if head != after:
        raise ValueError("the character map")
    return normalizer, after


def _read_directory(file: mmap.mmap, head: int) -> dict[str, _Entry]:
    (count,) = struct.unpack_from("<i", file, head)
    head += 4
    entries = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", file, head)
        name = file[head + 2 : head + 2 + length].decode()
        _, elements, offset, size = _TENSOR.unpack_from(file, head + 2 + length)
        if offset + size > len(file):
            raise ValueError(f"tensor {name}")
        entries[name] = _Entry(elements, offset, size)
        head += 2 + length + _TENSOR.size
    return entries


def _tensor(file: mmap.mmap, entry: _Entry) -> Float[Tensor, "values"]:
    """Return a tensor of the file as float32 values, copied out of the map."""
    if entry.size == 4 * entry.elements:
        floats = torch.frombuffer(
            file, dtype=torch.float32, count=entry.elements, offset=entry.offset
        )
        return floats.clone()
    return expand_q4(_bytes(file, entry))


def _bytes(file: mmap.mmap, entry: _Entry) -> UInt8[Tensor, "bytes"]:
    if entry.size * _BLOCK_VALUES != entry.elements * _BLOCK_BYTES:
        raise ValueError(f"{entry.elements} values in {entry.size} bytes")
    return torch.frombuffer(file, dtype=torch.uint8, count=entry.size, offset=entry.offset)


def _build(file: mmap.mmap, sizes: _Sizes, entries: dict[str, _Entry]) -> "BertModel":
    """Return the model with the weights of the file."""
    try:
        from transformers import BertConfig, BertModel
    except ImportError as error:
        raise MissingExtraError("transformers", "models") from error
    config = BertConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.feed_forward,
        max_position_embeddings=sizes.positions,
        type_vocab_size=sizes.types,
        layer_norm_eps=sizes.epsilon,
        pad_token_id=sizes.padding,
        attn_implementation="sdpa",  # pyright: ignore[reportCallIssue]
    )
    # On the meta device nothing is allocated or initialised only to be overwritten.
    with torch.device("meta"):
        model = BertModel(config, add_pooling_layer=False)
    weights = {
        name: _tensor(file, entries[_name_in_file(name)]).view(empty.shape)
        for name, empty in model.state_dict().items()
        if name != "embeddings.word_embeddings.weight"
    }
    embeddings: Any = model.embeddings
    embeddings.word_embeddings = PackedEmbedding(
        _bytes(file, entries["emb.word"]).view(sizes.vocabulary, -1)
    )
    # Two buffers that are no part of the weights.
    embeddings.position_ids = torch.arange(sizes.positions)[None]
    embeddings.token_type_ids = torch.zeros(1, sizes.positions, dtype=torch.int64)
    model.load_state_dict(weights, assign=True)
    return model.eval()


_EMBEDDINGS = {
    "position_embeddings": "emb.pos",
    "token_type_embeddings": "emb.type",
    "LayerNorm": "emb.ln",
}
_LAYER_PARTS = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
}


def _name_in_file(name: str) -> str:
    """Return what the file calls a weight of the model.

    >>> _name_in_file("encoder.layer.3.attention.self.query.bias")
    'l3.q.b'
    """
    module, kind = name.rsplit(".", 1)
    if module.startswith("embeddings."):
        stem = _EMBEDDINGS[module.removeprefix("embeddings.")]
        # The tables of embeddings are the only weights without a suffix.
        return f"{stem}.{kind[0]}" if stem == "emb.ln" else stem
    _, _, layer, part = module.split(".", 3)
    return f"l{layer}.{_LAYER_PARTS[part]}.{kind[0]}"
