"""Sequences that ranks share are not taken for whole ones."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import heedmap
from heedmap.errors import ModelError


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """Return a mesh of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


class Attends(nn.Module):
    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.by_hand = by_hand

    def forward(self, x: Tensor) -> Tensor:
        if self.by_hand:
            return torch.softmax(x @ x.mT, -1) @ x
        return F.scaled_dot_product_attention(x, x, x)


# PyTorch takes its own attention apart for the parts of ranks, and loads a compiler for that.
@pytest.mark.parametrize("by_hand", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_part_is_not_taken_for_the_whole(mesh: DeviceMesh, by_hand: bool) -> None:
    x = distribute_tensor(torch.randn(1, 2, 6, 4), mesh, [Shard(2)])
    model = Attends(by_hand)
    words = "one rank's part of a sequence"
    with torch.no_grad(), pytest.raises(ModelError, match=words) as caught, heedmap.watch(model):
        watched = model(x)
    assert "see heedmap.parallel" in str(caught.value)
    assert torch.equal(watched.full_tensor(), model(x).full_tensor())
