"""Four small networks that read a sequence, each in its own way, of about the same size.

Self-attention looks at all positions at once; an LSTM and a GRU read them one after the other; a
dilated CNN sees windows, each layer twice as wide as the one before.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedmap.nn import SelfAttention

PARAMETERS = 3400
"""How many parameters each network has, as nearly as its width allows."""

KERNEL = 3
CNN_LAYERS = 4
WIDEST = 96


class AttentionReader(nn.Module):
    """One layer of self-attention, scaled by √d."""

    def __init__(self, features: int, width: int) -> None:
        """Make a layer of one head of this width."""
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.attend = SelfAttention(width, width, output_dim=width)

    def forward(
        self, x: Float[Tensor, "batch positions features"]
    ) -> Float[Tensor, "batch positions width"]:
        """Return what each position has read."""
        output, _ = self.attend(self.embed(x))
        return output


class RecurrentReader(nn.Module):
    """One layer that reads a position at a time and remembers a state."""

    def __init__(self, features: int, width: int, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        """Make a layer of this kind and width."""
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.read = kind(width, width, batch_first=True)

    def forward(
        self, x: Float[Tensor, "batch positions features"]
    ) -> Float[Tensor, "batch positions width"]:
        """Return what each position has read."""
        return self.read(self.embed(x))[0]


class ConvolutionReader(nn.Module):
    """Some layers of causal convolutions, dilated by 1, 2, 4 and so on, with skips around them."""

    def __init__(self, features: int, width: int, layers: int = CNN_LAYERS) -> None:
        """Make this many layers of this width."""
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, KERNEL, dilation=2**number) for number in range(layers)
        )

    def forward(
        self, x: Float[Tensor, "batch positions features"]
    ) -> Float[Tensor, "batch positions width"]:
        """Return what each position has read."""
        state = self.embed(x).mT
        for number, layer in enumerate(self.layers):
            before = (KERNEL - 1) * 2**number
            state = state + torch.relu(layer(nn.functional.pad(state, (before, 0))))
        return state.mT


MAKERS: dict[str, Callable[[int, int], nn.Module]] = {
    "attention": AttentionReader,
    "lstm": lambda features, width: RecurrentReader(features, width, nn.LSTM),
    "gru": lambda features, width: RecurrentReader(features, width, nn.GRU),
    "cnn": ConvolutionReader,
}
"""The networks by their names in the results."""


class Answering(nn.Module):
    """A network that reads a sequence, and answers at its last position."""

    def __init__(self, name: str, features: int, width: int, answers: int) -> None:
        """Make a network of `MAKERS` that knows so many answers."""
        super().__init__()
        self.reader = MAKERS[name](features, width)
        self.answer = nn.Linear(width, answers)

    def forward(
        self, x: Float[Tensor, "batch positions features"]
    ) -> Float[Tensor, "batch answers"]:
        """Return a score of each answer."""
        return self.answer(self.reader(x)[:, -1])


def size_of(network: nn.Module) -> int:
    """Return how many parameters a network has.

    >>> size_of(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in network.parameters())


def width_for(name: str, features: int, answers: int) -> int:
    """Return the width at which a network comes nearest to `PARAMETERS`.

    >>> sizes = [size_of(Answering(name, 9, width_for(name, 9, 8), 8)) for name in MAKERS]
    >>> max(sizes) < 1.02 * min(sizes)
    True
    """
    with torch.random.fork_rng(devices=[]):
        return min(
            range(4, WIDEST),
            key=lambda width: abs(size_of(Answering(name, features, width, answers)) - PARAMETERS),
        )
