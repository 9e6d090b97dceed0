"""A program for test_machinery.py: maps in processes started by ``spawn`` or ``fork``.

The processes that it starts must find what they are to run, so it is no module of the tests.
"""

import sys
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import heedmap
from heedmap import AttentionMap, Causal, Padding
from heedmap.nn import SelfAttention


def make(seed: int) -> AttentionMap:
    x = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(seed))
    valid = torch.tensor([[1] * 6, [0] * 2 + [1] * 4])
    return heedmap.attention(x, x, x, mask=Padding(valid) & Causal())[1]


def answer(asked: Any, answers: Any) -> None:
    """Send a map back, what is computed from it, and whether a layer can be trained here."""
    torch.set_num_threads(1)  # as in a worker of PyTorch: no threads of OpenMP survive a fork
    held = asked.get()
    layer = SelfAttention(4, 8)
    output, weights = layer(torch.randn(2, 5, 4))
    (output.sum() + weights.entropy().sum()).backward()
    answers.put((held, held.received(), bool(layer.w_q.weight.grad.abs().sum() > 0)))
    # What was put is in memory of this process until the other one has taken it.
    asked.get()


class Samples(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        weights = make(place)
        return {"weights": weights, "received": weights.received(), "dense": weights.to_dense()}


def exchange(start: str) -> None:
    context = mp.get_context(start)
    asked, answers = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(asked, answers))
    process.start()
    held = make(0)
    asked.put(held)
    back, received, trained = answers.get(timeout=60)
    assert torch.equal(back.to_dense(), held.to_dense())
    assert torch.equal(received, held.received())
    assert trained
    asked.put(None)
    process.join(timeout=60)
    assert process.exitcode == 0


def load(start: str | None) -> None:
    workers = 0 if start is None else 2
    loader = DataLoader(Samples(), batch_size=2, num_workers=workers, multiprocessing_context=start)
    batches = list(loader)
    assert len(batches) == 2
    for number, batch in enumerate(batches):
        weights = batch["weights"]
        assert isinstance(weights, AttentionMap)
        assert weights.shape == (2, 2, 6, 6)
        assert torch.equal(weights.to_dense(), batch["dense"])
        assert torch.equal(weights[1].to_dense(), make(2 * number + 1).to_dense())
        assert torch.equal(weights.sum(-2), batch["received"])


if __name__ == "__main__":
    load(None)
    exchange(sys.argv[1])
    load(sys.argv[1])
    print("agreed")
