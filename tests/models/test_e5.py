"""The 4-bit file: values as the format defines them, and the model that comes of it."""

import json
import struct
from pathlib import Path

import pytest
import torch
from transformers import BertModel

from heedmap.errors import ModelError
from heedmap.models.e5 import E5, PackedEmbedding, expand_q4, load_e5
from heedmap.models.packages import PACKAGED, fetch_file

HIDDEN, LAYERS, HEADS, INNER, VOCABULARY, POSITIONS = 32, 2, 4, 64, 12, 10
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁a", "b", "ab", "<mask>"]


def pack(values: torch.Tensor) -> tuple[bytes, torch.Tensor]:
    """Return Q4_0 bytes, and the values that they stand for, worked out one by one."""
    packed, meant = b"", []
    for block in values.flatten().split(32):
        scale = struct.unpack("<e", struct.pack("<e", float(block.abs().max()) / 7))[0]
        halves = [max(0, min(15, round(float(v) / scale) + 8)) for v in block]
        packed += struct.pack("<e", scale)
        packed += bytes(halves[i] | halves[i + 16] << 4 for i in range(16))
        meant += [(half - 8) * scale for half in halves]
    return packed, torch.tensor(meant).view(values.shape)


def layer_shapes(layer: int) -> dict[str, tuple[int, ...]]:
    parts = {"q": (HIDDEN, HIDDEN), "k": (HIDDEN, HIDDEN), "v": (HIDDEN, HIDDEN)}
    parts |= {"ao": (HIDDEN, HIDDEN), "fi": (INNER, HIDDEN), "fo": (HIDDEN, INNER)}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in parts.items():
        shapes |= {f"l{layer}.{name}.w": shape, f"l{layer}.{name}.b": shape[:1]}
    for name in ("aln", "oln"):
        shapes |= {f"l{layer}.{name}.w": (HIDDEN,), f"l{layer}.{name}.b": (HIDDEN,)}
    return shapes


def write_file(path: Path) -> dict[str, torch.Tensor]:
    """Write a small random file of the format and return the values that its tensors stand for."""
    shapes: dict[str, tuple[int, ...]] = {"emb.word": (VOCABULARY, HIDDEN)}
    shapes |= {"emb.pos": (POSITIONS, HIDDEN), "emb.type": (2, HIDDEN)}
    shapes |= {"emb.ln.w": (HIDDEN,), "emb.ln.b": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= layer_shapes(layer)
    generator = torch.Generator().manual_seed(0)
    meant, data, directory = {}, b"", []
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator) * 0.2
        if name == "emb.word" or (name[0] == "l" and len(shape) == 2):
            packed, values = pack(values)
        else:
            packed = values.numpy().tobytes()
        meant[name] = values
        directory.append((name.encode(), values.numel(), len(data), len(packed)))
        data += packed
    joined = "".join(PIECES).encode()
    ends = [0]
    for piece in PIECES:
        ends.append(ends[-1] + len(piece.encode()))
    scores = [0.0] * 4 + [-1.0, -2.0, -3.0, -4.0] + [0.0]
    normalizer = struct.pack("<IBI", ord("A"), 1, ord("a"))
    head = b"E5S1\x01\0\0\0" + struct.pack(
        "<7ifi5iQ",
        *(HIDDEN, LAYERS, HEADS, INNER, VOCABULARY, POSITIONS, 2, 1e-12, 32),
        *(len(PIECES), 0, 2, 1, 3, len(joined)),
    )
    head += struct.pack(f"<{len(ends)}I", *ends) + struct.pack(f"<{len(scores)}f", *scores)
    head += joined + struct.pack("<iI", 1, len(normalizer)) + normalizer
    head += struct.pack("<i", len(directory))
    start = len(head) + sum(2 + len(name) + 21 for name, *_ in directory)
    start += -start % 64
    for name, elements, offset, size in directory:
        head += struct.pack("<H", len(name)) + name
        head += struct.pack("<BiQQ", 1, elements, start + offset, size)
    path.write_bytes(head.ljust(start, b"\0") + data)
    return meant


@pytest.fixture
def small(tmp_path: Path) -> tuple[E5, dict[str, torch.Tensor]]:
    meant = write_file(tmp_path / "small.bin")
    return load_e5(tmp_path / "small.bin"), meant


def test_expands_as_the_format_says():
    packed, meant = pack(torch.randn(3, 64, generator=torch.Generator().manual_seed(1)))
    rows = torch.frombuffer(bytearray(packed), dtype=torch.uint8).view(3, 36)
    assert torch.equal(expand_q4(rows), meant)
    ids = torch.tensor([[2, 0], [1, 1]])
    assert torch.equal(PackedEmbedding(rows)(ids), meant[ids])


def test_every_weight_is_in_its_place(small: tuple[E5, dict[str, torch.Tensor]]):
    loaded, meant = small
    weights = loaded.model.state_dict()
    assert torch.equal(weights["embeddings.position_embeddings.weight"], meant["emb.pos"])
    assert torch.equal(weights["embeddings.LayerNorm.bias"], meant["emb.ln.b"])
    layer = "encoder.layer.1."
    for ours, theirs in {
        "attention.self.query.weight": "q.w",
        "attention.self.key.bias": "k.b",
        "attention.self.value.weight": "v.w",
        "attention.output.dense.weight": "ao.w",
        "attention.output.LayerNorm.weight": "aln.w",
        "intermediate.dense.weight": "fi.w",
        "output.dense.weight": "fo.w",
        "output.LayerNorm.bias": "oln.b",
    }.items():
        assert torch.equal(weights[layer + ours], meant[f"l1.{theirs}"]), ours


def test_the_packed_table_gives_what_a_full_one_would(small: tuple[E5, dict[str, torch.Tensor]]):
    loaded, meant = small
    ids = torch.tensor([[0, 4, 7, 3, 2]])
    with torch.no_grad():
        output = loaded.model(ids).last_hidden_state
        same = loaded.model(inputs_embeds=meant["emb.word"][ids]).last_hidden_state
    assert torch.equal(output, same)
    assert not any(tensor.is_meta for tensor in loaded.model.buffers())
    assert not loaded.model.training


def test_a_saved_model_is_whole(small: tuple[E5, dict[str, torch.Tensor]], tmp_path: Path):
    loaded, meant = small
    loaded.model.save_pretrained(tmp_path / "saved")
    again = BertModel.from_pretrained(tmp_path / "saved", add_pooling_layer=False).eval()
    assert torch.equal(again.embeddings.word_embeddings.weight, meant["emb.word"])
    ids = torch.tensor([[0, 4, 7, 3, 2]])
    with torch.no_grad():
        assert torch.equal(again(ids).last_hidden_state, loaded.model(ids).last_hidden_state)


def test_the_tokenizer_is_the_files_own(small: tuple[E5, dict[str, torch.Tensor]]):
    tokenizer = small[0].tokenizer
    pieces = [token.piece for token in tokenizer.encode("Aab b")]
    assert pieces == ["<s>", "▁a", "ab", "▁", "b", "</s>"]
    assert "<mask>" not in [token.piece for token in tokenizer.encode("<mask>")]


@pytest.mark.parametrize("keep", [3, 40, 90, 300, 2000, -100])
def test_a_file_that_breaks_off_is_refused(tmp_path: Path, keep: int):
    write_file(tmp_path / "whole.bin")
    content = (tmp_path / "whole.bin").read_bytes()
    (tmp_path / "part.bin").write_bytes(content[:keep])
    with pytest.raises(ModelError, match="must be a whole file of format E5S1"):
        load_e5(tmp_path / "part.bin")


def test_an_empty_file_is_refused(tmp_path: Path):
    (tmp_path / "part.bin").touch()
    with pytest.raises(
        ModelError, match="must be a readable file; got “cannot mmap an empty file”"
    ):
        load_e5(tmp_path / "part.bin")


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    (tmp_path / "other.bin").write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(ModelError, match="it begins with b'GGUF'"):
        load_e5(tmp_path / "other.bin")


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match="must be a readable file"):
        load_e5(tmp_path / "none.bin")


@pytest.fixture(scope="module")
def packaged() -> E5:
    return load_e5(fetch_file(PACKAGED["e5-small"]))


@pytest.mark.slow
def test_embeddings_are_those_of_the_packages_own_engine(packaged: E5):
    reference = json.loads(Path(__file__).with_name("e5_fingerprints.json").read_text("utf-8"))
    assert len(reference["sentences"]) == 12
    for text, first_values in reference["sentences"].items():
        ids = torch.tensor([[t.id for t in packaged.tokenizer.encode(f"passage: {text}")]])
        with torch.no_grad():
            mean = packaged.model(ids).last_hidden_state[0].mean(0)
        ours = (mean / mean.norm())[:16]
        theirs = torch.tensor(first_values)
        assert torch.cosine_similarity(ours, theirs, dim=0) > 0.999, text
        # The engine's 8-bit activations move a value by some 0.0007.
        assert (ours - theirs).abs().max() < 0.003, text


@pytest.mark.slow
def test_a_known_sentence_is_cut_as_published(packaged: E5):
    tokens = packaged.tokenizer.encode("他说他今天不能来")
    assert [t.piece for t in tokens] == ["<s>", "▁", "他说", "他", "今天", "不能", "来", "</s>"]
    assert [(t.start, t.end) for t in tokens][1:4] == [(0, 0), (0, 2), (2, 3)]
