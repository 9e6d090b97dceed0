"""Sizes of 0, odd lengths, great lengths, strides, shared heads, batches and their samples."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedmap
from heedmap import AttentionMap, Causal, Documents, Padding
from heedmap.errors import DTypeError, ShapeError

from ..watch.dense import dense_weights, require_close
from .common import HEADS, WAYS, Way, draw, heads_of, plain_layer, watched

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
backends = pytest.mark.parametrize("backend", ["auto", "tiles", "reference"])


@ways
@pytest.mark.parametrize(("queries", "keys"), [(129, 129), (1, 127), (130, 1), (5, 257)])
def test_h19_weights_are_unpadded_not_negative_and_normalised(
    way: Way, queries: int, keys: int
) -> None:
    x, source = draw(2, queries, 8, seed=1), draw(2, keys, 8, seed=2)
    weights = way(x, source).weights.detach()
    assert weights.shape == (2, HEADS, queries, keys)
    dense = weights.to_dense()
    assert float(dense.amin()) >= 0
    require_close(dense, dense_weights(heads_of(x), heads_of(source)))
    require_close(weights.sum(-1), torch.ones(2, HEADS, queries))


EMPTY = {
    "no samples": ((0, 2, 3, 4), (0, 2, 5, 4), (0, 2, 5, 6)),
    "no queries": ((2, 2, 0, 4), (2, 2, 5, 4), (2, 2, 5, 6)),
    "no keys": ((2, 2, 3, 4), (2, 2, 0, 4), (2, 2, 0, 6)),
    "no width": ((2, 2, 3, 0), (2, 2, 5, 0), (2, 2, 5, 6)),
    "no width of values": ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 0)),
    "nothing at all": ((0, 2, 0, 0), (0, 2, 0, 0), (0, 2, 0, 0)),
}


@backends
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("case", EMPTY)
def test_h20_sizes_of_zero_have_the_right_shape(case: str, masked: bool, backend: str) -> None:
    query, key, value = (draw(*shape).requires_grad_() for shape in EMPTY[case])
    batch, _, keys, _ = key.shape
    mask = Padding(torch.ones(batch, keys)) & Causal("end") if masked else None
    output, weights = heedmap.attention(query, key, value, mask=mask, backend=backend)
    assert output.shape == (*query.shape[:3], value.shape[3])
    assert weights.shape == (*query.shape[:3], keys)
    expected = float(keys > 0)
    require_close(weights.sum(-1), torch.full(query.shape[:3], expected))
    assert weights.to_dense().shape == weights.shape
    assert weights.received().shape == (*query.shape[:2], keys)
    assert weights.entropy().shape == weights.shape[:-1]
    (output.sum() + weights.entropy().sum()).backward()
    for leaf in (query, key, value):
        assert leaf.grad is not None
        assert leaf.grad.shape == leaf.shape


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 3, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_h20_the_module_and_a_watched_model(batch: int, queries: int, keys: int) -> None:
    x, source = draw(batch, queries, 8), draw(batch, keys, 8)
    for way in WAYS.values():
        output, weights = way(x, source)
        assert output.shape == (batch, queries, 8)
        assert weights.shape == (batch, HEADS, queries, keys)
        assert bool((output == 0).all()) or keys
        assert weights.to_dense().shape == weights.shape


def test_h20_a_sample_of_length_zero_among_others() -> None:
    x = draw(3, 4, 8)
    valid = torch.arange(4) < torch.tensor([[4], [0], [2]])
    for way in WAYS.values():
        output, weights = way(x, x, valid)
        assert bool((output[1] == 0).all())
        require_close(weights.sum(-1)[:, 0, 0], torch.tensor([1.0, 0, 1]))


HEADLESS: dict[str, Callable[[], object]] = {
    "none": lambda: heedmap.attention(*[draw(2, 0, 3, 4)] * 3),
    "no heads of keys": lambda: heedmap.attention(
        draw(2, 2, 3, 4), draw(2, 0, 3, 4), draw(2, 0, 3, 4)
    ),
    "no multiple": lambda: heedmap.attention(draw(2, 4, 3, 4), draw(2, 3, 3, 4), draw(2, 3, 3, 4)),
    "fewer than keys": lambda: heedmap.attention(
        draw(2, 2, 3, 4), draw(2, 4, 3, 4), draw(2, 4, 3, 4)
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", HEADLESS)
def test_h38_numbers_of_heads_that_make_no_sense(case: str) -> None:
    with pytest.raises(ShapeError, match="multiple of the number of key heads, both at least 1"):
        HEADLESS[case]()


@pytest.mark.bad_input
@pytest.mark.parametrize(("keys", "values"), [(4, 3), (3, 4), (1, 4), (4, 0)])
def test_h21_values_of_another_length(keys: int, values: int) -> None:
    query, key, value = draw(1, 2, 4, 8), draw(1, 2, keys, 8), draw(1, 2, values, 8)
    for backend in ("auto", "fused", "tiles", "reference"):
        with pytest.raises(ShapeError, match=f"positions; got {keys} and {values}"):
            heedmap.attention(query, key, value, backend=backend)


class Grouped(nn.Module):
    """A model that attends by PyTorch's function, with heads that are shared."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        shared = key.shape[1] < query.shape[1]
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=shared)


def test_h21_a_watched_model_is_stopped_by_its_own_kernel_and_nothing_stays_hung() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    model, before = Grouped(), F.scaled_dot_product_attention
    query, key, value = draw(1, 2, 4, 8), draw(1, 2, 4, 8), draw(1, 2, 3, 8)

    def run() -> None:
        with sdpa_kernel(SDPBackend.MATH), heedmap.watch(model):
            model(query, key, value)

    with pytest.raises(RuntimeError, match="Expected size"):
        run()
    assert F.scaled_dot_product_attention is before


STRIDES: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "last dimension outermost": lambda t: t.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "every second": lambda t: torch.stack([t, t + 9], 2).flatten(1, 2)[:, ::2],
    "every second feature": lambda t: torch.stack([t, t + 9], -1)[..., 0],
    "narrow": lambda t: F.pad(t, (0, 0, 3, 2), value=9).narrow(1, 3, t.shape[1]),
    "backwards": lambda t: t.flip(1).contiguous().flip(1),
    "of a wider one": lambda t: F.pad(t, (1, 2), value=9)[..., 1:-2],
}


@ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stride", STRIDES)
def test_h22_strides_do_not_matter(way: Way, stride: str, dtype: torch.dtype) -> None:
    x, source = draw(2, 9, 8, seed=1, dtype=dtype), draw(2, 9, 8, seed=2, dtype=dtype)
    valid = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
    expected = way(x, source, valid)
    change = STRIDES[stride]
    assert torch.equal(change(x), x)
    found = way(change(x), change(source), valid)
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    require_close(found.output, expected.output, tolerance)
    require_close(found.weights, expected.weights.to_dense())


@ways
def test_h22_tensors_that_are_only_spread(way: Way) -> None:
    x, source = draw(2, 9, 8), draw(1, 1, 8, seed=2)
    for spread in (source.expand(2, 9, 8), source.expand(2, 1, 8), draw(1, 9, 8).expand(2, 9, 8)):
        found, expected = way(x, spread), way(x, spread.contiguous())
        require_close(found.output, expected.output)
        require_close(found.weights, expected.weights.to_dense())


@ways
@pytest.mark.parametrize("queries", [1, 2, 4])
def test_h24_more_keys_than_sixteen_bits_count(way: Way, queries: int) -> None:
    keys = 65_537
    x, source = draw(1, queries, 2, seed=1), draw(1, keys, 2, seed=2)
    valid = torch.ones(1, keys)
    valid[0, -3] = 0
    output, weights = way(x, source, valid)
    visible = valid.bool()[:, None, None]
    expected = dense_weights(heads_of(x), heads_of(source), visible=visible)
    require_close(weights, expected, 1e-8)
    require_close(output, (expected @ heads_of(source).double()).transpose(1, 2).flatten(2))
    assert torch.equal(weights.argmax(-1), expected.argmax(-1))
    assert weights[0, 0, 0, -3].item() == 0
    assert weights[0, 0, 0, -1].item() > 0


def test_h24_more_pairs_than_thirty_two_bits_count() -> None:
    size = 50_000
    query, key = draw(1, 2, size, 2, seed=1), draw(1, 2, size, 2, seed=2)
    weights = AttentionMap.from_factors(query, key, mask=Causal())
    rows = torch.tensor([0, 32_768, 46_341, size - 1])
    expected = dense_weights(query[:, :, rows], key, visible=torch.arange(size) <= rows[:, None])
    require_close(weights[0, 1, rows], expected[0, 1], 1e-9)
    assert weights[0, 1, -1, -1].item() == pytest.approx(expected[0, 1, -1, -1].item(), rel=1e-5)
    assert torch.equal(weights[0, 1, rows].argmax(-1), expected[0, 1].argmax(-1))
    values, keys = weights[0, 1, -1].topk(3)
    require_close(values, expected[0, 1, -1, keys])


@backends
@pytest.mark.parametrize(("heads", "shared"), [(4, 2), (6, 2), (4, 1), (6, 3)])
def test_h38_neighbouring_heads_share(heads: int, shared: int, backend: str) -> None:
    query = draw(2, heads, 3, 4, seed=1)
    key, value = draw(2, shared, 5, 4, seed=2), draw(2, shared, 5, 6, seed=3)
    each = key.repeat_interleave(heads // shared, 1)
    expected = dense_weights(query, each)
    output, weights = heedmap.attention(query, key, value, backend=backend)
    require_close(weights, expected)
    require_close(output, expected @ value.repeat_interleave(heads // shared, 1).double())
    _, layer = watched(Grouped(), query, key, value)
    require_close(layer.weights, expected)


def test_h38_the_module() -> None:
    from heedmap.nn import SelfAttention

    torch.manual_seed(0)
    layer, x = SelfAttention(6, 8, num_heads=4, kv_heads=2), draw(2, 5, 6)
    query = layer.w_q(x).unflatten(-1, (4, 2)).transpose(1, 2)
    key = layer.w_k(x).unflatten(-1, (2, 2)).transpose(1, 2).repeat_interleave(2, 1)
    require_close(layer(x)[1].detach(), dense_weights(query, key))


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
def test_h42_nested_tensors_are_refused_with_what_to_do(layout: torch.layout) -> None:
    ragged = torch.nested.nested_tensor([draw(3, 8), draw(5, 8)], layout=layout)
    with pytest.raises(DTypeError, match=r"Pad it and give mask=Padding.*mask=Documents"):
        heedmap.attention(ragged, ragged, ragged)
    with pytest.raises(DTypeError, match=r"x must be .* got a nested one"):
        plain_layer(8)(ragged)


def test_h42_packed_samples_do_not_see_each_other() -> None:
    first, second = draw(1, HEADS, 3, 4, seed=1), draw(1, HEADS, 5, 4, seed=2)
    packed = torch.cat([first, second], 2)
    numbers = torch.tensor([[0] * 3 + [1] * 5])
    output, weights = heedmap.attention(packed, packed, packed, mask=Documents(numbers))
    dense = weights.to_dense()
    assert bool((dense[..., :3, 3:] == 0).all())
    assert bool((dense[..., 3:, :3] == 0).all())
    for part, place in ((first, slice(3)), (second, slice(3, None))):
        alone, alone_weights = heedmap.attention(part, part, part)
        require_close(output[:, :, place], alone)
        require_close(dense[..., place, place], alone_weights.to_dense())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("lengths", [(3, 5), (4,)])
def test_h42_a_watched_model_of_nested_tensors(lengths: tuple[int, ...]) -> None:
    samples = [draw(HEADS, length, 4, seed=length) for length in lengths]
    nested = torch.nested.nested_tensor(samples)

    class Nested(nn.Module):
        def forward(self) -> Tensor:
            return F.scaled_dot_product_attention(nested, nested, nested)

    model = Nested()
    with heedmap.watch(model) as seen:
        model()
    assert len(seen[0]) == len(lengths)
    for number, sample in enumerate(samples):
        size = sample.shape[1]
        dense = seen[0].to_dense()[number]
        require_close(dense[:, :size, :size], dense_weights(sample, sample))
        assert bool((dense[:, size:] == 0).all())
        assert bool((dense[:, :, size:] == 0).all())


@ways
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_h43_a_sample_alone_and_in_a_batch(way: Way, dtype: torch.dtype, tolerance: float) -> None:
    x = draw(7, 33, 8, dtype=dtype)
    output, weights = way(x, x, causal=True)
    alone = way(x[3:4], x[3:4], causal=True)
    require_close(output[3:4], alone.output, tolerance)
    require_close(weights[3:4], alone.weights.to_dense(), tolerance)


@ways
@pytest.mark.parametrize("size", [5, 300])
def test_h43_the_same_call_gives_the_same_bits(way: Way, size: int) -> None:
    x = draw(2, size, 8)
    first, second = way(x, x), way(x, x)
    assert torch.equal(first.output, second.output)
    for question in (AttentionMap.to_dense, AttentionMap.entropy, AttentionMap.received):
        assert torch.equal(question(first.weights), question(second.weights))


@ways
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [False, True])
def test_h50_each_sample_of_a_padded_batch_equals_itself_alone(
    way: Way, side: str, causal: bool
) -> None:
    lengths, longest = [1, 4, 9, 0, 7], 9
    samples = [draw(length, 8, seed=length) for length in lengths]
    x, valid = torch.full((5, longest, 8), 3.0), torch.zeros(5, longest)
    places = [slice(n) if side == "right" else slice(longest - n, longest) for n in lengths]
    for number, (sample, place) in enumerate(zip(samples, places, strict=True)):
        x[number, place], valid[number, place] = sample, 1
    output, weights = way(x, x, valid, causal=causal)
    for number, (sample, place) in enumerate(zip(samples, places, strict=True)):
        alone = way(sample[None], sample[None], causal=causal)
        require_close(output[number, place], alone.output[0])
        require_close(weights[number, :, place, place], alone.weights.to_dense()[0])
        assert math.isclose(
            float(weights[number, :, place].detach().sum()), HEADS * len(sample), abs_tol=1e-4
        )


@ways
def test_h52_every_length_up_to_seventy_with_keys_that_are_spread(way: Way) -> None:
    for keys in range(1, 71):
        x = draw(2, 3, 8, seed=keys)
        source = draw(1, keys, 8, seed=100 + keys).expand(2, keys, 8)
        valid = torch.ones(2, keys)
        valid[1, keys // 2 :] = 0
        output, weights = way(x, source, valid)
        expected = dense_weights(heads_of(x), heads_of(source), visible=valid.bool()[:, None, None])
        require_close(weights, expected)
        require_close(output, (expected @ heads_of(source).double()).transpose(1, 2).flatten(2))
