"""What a tile looks like on the wire."""

import struct

import pytest
import torch

from heedmap.explore.tiles import Recent, empty, encode
from tests.explore.dense import taken_apart


def test_the_bytes_are_as_documented():
    tile = encode(torch.tensor([[0.0, 0.25, 1.0]]), exact=True)
    header = b"HMT1" + bytes([2, 1, 1, 0, 3, 0, 0, 0]) + struct.pack("<f", 1.0)
    assert tile == header + struct.pack("<3f", 0.0, 0.25, 1.0)


def test_a_tile_that_is_not_exact_says_so():
    assert taken_apart(encode(torch.ones(2, 2), exact=False)).exact is False


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_values_go_out_as_float32_row_by_row(dtype: torch.dtype):
    values = torch.arange(6, dtype=dtype).view(3, 2).mT
    found = taken_apart(encode(values, exact=True)).values
    assert torch.equal(torch.as_tensor(found), values.float())


def test_a_tile_without_any_weight_is_a_flag():
    assert encode(torch.zeros(7, 256), exact=True) == empty(7, 256)
    assert taken_apart(empty(7, 256)) == (0, True, 7, 256, 0.0, None)
    assert taken_apart(empty(0, 0)).rows == 0


def test_a_sample_of_zeros_is_not_said_to_be_empty():
    assert taken_apart(encode(torch.zeros(2, 2), exact=False)).kind == 2


def test_what_is_not_a_number_is_sent_and_not_the_largest():
    tile = taken_apart(encode(torch.tensor([[torch.nan, -2.0], [torch.inf, -1.0]]), exact=True))
    assert tile.largest == -1
    assert bool(torch.as_tensor(tile.values)[0, 0].isnan())
    assert taken_apart(encode(torch.full((1, 1), torch.nan), exact=True)).largest == 0


def test_the_tile_that_was_asked_for_least_lately_makes_room():
    kept = Recent(most_bytes=8)
    kept.put("a", b"1234")
    kept.put("b", b"5678")
    assert kept.get("a") == b"1234"
    kept.put("c", b"9abc")
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (b"1234", None, b"9abc")
    kept.put("d", b"larger than all the room")
    assert kept.get("d") is None
    kept.put("a", b"1")
    kept.put("a", b"12345678")
    assert kept.get("a") == b"12345678"
