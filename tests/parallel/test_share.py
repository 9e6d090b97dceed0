"""Models of transformers on a shared sequence put out what they put out on one process."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralModel,
    T5Config,
    T5Model,
)

import heedmap
from heedmap import parallel
from heedmap.errors import ArgumentError, HeedmapError, ModelError, UnsupportedError
from heedmap.parallel import Layout, share

from .processes import Processes

LENGTH = 11
SIZES: dict[str, Any] = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
}


def model_of(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "llama":
        made = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2))
    elif kind == "gpt2":
        made = GPT2Model(GPT2Config(vocab_size=30, n_embd=16, n_layer=2, n_head=4))
    else:
        made = BertModel(BertConfig(**SIZES))
    return made.double().eval()


def ids_and_mask() -> tuple[Tensor, Tensor]:
    ids = torch.arange(2 * LENGTH).reshape(2, LENGTH) % 29 + 1
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return ids, mask


def first_of(result: Any) -> Tensor:
    return result[0]


def compare_model(kind: str, zigzag: bool, padded: bool) -> list[str]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = parallel.start(device="cpu")
    layout = Layout.zigzag(LENGTH, ranks) if zigzag else None
    place = layout or Layout.even(LENGTH, ranks)
    model, (ids, mask) = model_of(kind), ids_and_mask()
    given = {"attention_mask": mask} if padded else {}
    with heedmap.watch(model) as known:
        expected = first_of(model(ids, **given))
    expected.square().sum().backward()
    grads = [part.grad for part in model.parameters()]
    model.zero_grad()
    before = model.config._attn_implementation
    with share(model, mesh=mesh, layout=layout) as seen:
        own = {name: place.shard(part, rank, dim=1) for name, part in given.items()}
        positions = place.positions(rank)[None]
        output = first_of(model(place.shard(ids, rank, dim=1), position_ids=positions, **own))
    assert model.config._attn_implementation == before
    real = place.shard(mask, rank, dim=1).bool() if padded else slice(None)
    theirs = place.shard(expected, rank, dim=1)
    torch.testing.assert_close(output[real], theirs[real], atol=1e-12, rtol=1e-9)
    assert seen.names == known.names
    for mine, map_of_one, layer in zip(seen, known, known.layers, strict=True):
        assert mine.shape == map_of_one.shape
        rows = mask.bool()[:, None, :, None] if padded else torch.ones(1, dtype=torch.bool)
        apart = (mine.to_dense().detach() - map_of_one.to_dense()) * rows
        assert float(apart.abs().amax()) < 1e-12, layer.name
    if not padded:
        output.square().sum().backward()
        for part, grad in zip(model.parameters(), grads, strict=True):
            if grad is not None:
                dist.all_reduce(part.grad)
                torch.testing.assert_close(part.grad, grad, atol=1e-9, rtol=1e-7)
    parallel.stop()
    return [layer.kind for layer in seen.layers]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "zigzag", "padded", "kinds"),
    [
        ("llama", True, False, "causal"),
        ("llama", False, True, "causal"),
        ("gpt2", True, True, "causal"),
        ("bert", False, True, "self"),
    ],
)
def test_a_model_is_what_it_is_on_one_process(
    processes: Processes, kind: str, zigzag: bool, padded: bool, kinds: str
) -> None:
    assert processes.run(2, compare_model, kind, zigzag, padded) == [[kinds] * 2] * 2


def watch_shared() -> str:
    """Watch a model while its sequence is shared: its layers are not seen, and that is told."""
    model, (ids, _) = model_of("llama"), ids_and_mask()
    place, rank = Layout.even(LENGTH, dist.get_world_size()), dist.get_rank()
    own, positions = place.shard(ids, rank, dim=1), place.positions(rank)[None]
    try:
        with share(model), heedmap.watch(model):
            model(own, position_ids=positions)
    except ModelError as error:
        return str(error)
    return "nothing"


@pytest.mark.slow
def test_watching_does_not_take_a_part_for_the_whole(processes: Processes) -> None:
    for said in processes.run(2, watch_shared):
        assert "of which no attention was captured" in said
        assert "ranks share the sequence: its maps are those of share()" in said


def run_wrongly(what: str) -> tuple[str, str]:
    model, (ids, _) = model_of("llama"), ids_and_mask()
    place, rank = Layout.even(LENGTH, dist.get_world_size()), dist.get_rank()
    own, positions = place.shard(ids, rank, dim=1), place.positions(rank)[None]
    second = rank == 1
    layout = Layout.of_lengths([4, LENGTH - 4]) if what == "another layout" else None
    try:
        with share(model, layout=layout) as seen:
            if what == "no positions":
                model(own)
            if what == "no inputs":
                model(position_ids=positions)
            if what == "a square mask":
                model(own, position_ids=positions, attention_mask=torch.ones(2, 1, 3, 3))
            if what == "a cache":
                cache = model_of("llama")(ids).past_key_values
                model(own, position_ids=positions, past_key_values=cache)
            if what == "labels":
                model(own, position_ids=positions, labels=own)
            if what == "another batch":
                model(own[: 1 if second else 2], position_ids=positions)
            if what == "dropout":
                model.train()
                for part in model.modules():
                    part.attention_dropout = 0.1
                model(own, position_ids=positions)
            if what == "another layout":
                model(own, position_ids=positions)
        assert len(seen) == 0
    except HeedmapError as error:
        return type(error).__name__, str(error)
    return "nothing", ""


WRONG = {
    "no positions": ("ArgumentError", "position_ids must be those of this rank's part"),
    "no inputs": ("ArgumentError", "input_ids must be given where a sequence is shared"),
    "a square mask": ("UnsupportedError", "attention_mask must be the padding of this rank's part"),
    "a cache": ("UnsupportedError", "past_key_values must not be given where a sequence is shared"),
    "labels": ("UnsupportedError", "labels must not be given where a sequence is shared"),
    "another batch": ("RankError", "input_ids must be parts of the same batch on all ranks"),
    "dropout": ("UnsupportedError", "attention must be full where ranks share a sequence"),
    "another layout": ("ShapeError", "input_ids must have this rank's"),
    "not run": ("ModelError", "model must be run while its sequence is shared"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
def test_a_run_that_cannot_be_shared(processes: Processes, what: str) -> None:
    kind, words = WRONG[what]
    for found in processes.run(2, run_wrongly, what):
        assert found[0] == kind
        assert words in found[1]


def test_models_that_say_no() -> None:
    window = MistralModel(MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=3))
    parallel.start(device="cpu")
    try:
        with pytest.raises(UnsupportedError, match="whose sequence ranks can share; got Mistral"):
            share(window).__enter__()
        both = T5Model(T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
        with pytest.raises(UnsupportedError, match="it has an encoder and a decoder"):
            share(both).__enter__()
        with pytest.raises(ModelError, match="model must be one of transformers to be shared"):
            share(nn.Linear(2, 2)).__enter__()
    finally:
        parallel.stop()


def test_outside_of_a_block() -> None:
    model = model_of("llama")
    parallel.start(device="cpu")
    try:
        with share(model):
            model(torch.ones(1, 3, dtype=torch.long), position_ids=torch.arange(3)[None])
            inner = model.config._attn_implementation
        model.set_attn_implementation(inner)
        with pytest.raises(UnsupportedError, match=r"inside a block of heedmap\.parallel\.share"):
            model(torch.ones(1, 3, dtype=torch.long))
        words = "position_ids must be those of this rank's part"
        with pytest.raises(ArgumentError, match=words), share(model):
            model(torch.ones(1, 3, dtype=torch.long))
    finally:
        parallel.stop()
