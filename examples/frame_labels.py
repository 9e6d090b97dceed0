"""Is there speech in this moment, is there music, or both? SelfAttention learns to say.

    python examples/frame_labels.py

lays packaged voices and music over each other, so that the truth is known. Three nets with the same
parameters learn from them; they differ in what a frame may look at. They are asked about voices and
pieces that they never heard, and a picture shows what the heads look at before and after.
"""

import sys
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, binary_cross_entropy_with_logits, relu

from heedmap import AttentionMap, Axis
from heedmap.models.mel import mel_frames
from heedmap.nn import SelfAttention
from heedmap.plot import plot_heatmap, save_figure
from heedmap.speech.material import packaged_music, packaged_voices
from heedmap.speech.simulation import simulate

LEARNED, HELD_OUT = ("June Wallack", "Carlo Flora"), ("Paola Dal Zot", "Russian announcer")
FRAMES, BANDS, WIDTH, HEADS = 96, 80, 64, 4  # A frame is a tenth of a second.
ALONE, NEAR, ATTENTION = "each frame alone", "the second around it", "self-attention"


def bar(count: int, what: str) -> Iterator[int]:
    """Yield 0, 1, … and draw how many of them are done."""
    for number in range(count):
        blocks = 40 * (number + 1) // count
        if blocks > 40 * number // count:
            print(f"\r{what:22}{'█' * blocks}{'·' * (40 - blocks)}", end="", file=sys.stderr)
        yield number
    print(file=sys.stderr)


def make_sounds(names: tuple[str, ...], music: list[Path], minutes: int, seed: int) -> list[Tensor]:
    """Return sounds as mel frames, and whether there is speech, and music, in each frame."""
    voices, times = packaged_voices(names, print), (torch.arange(6 * FRAMES) + 0.5) / 10
    frames, labels = [], []
    for number in bar(minutes, f"making {minutes} minutes"):
        talk = simulate(
            voices,
            seconds=61,
            overlap_share=0,
            seed=seed + number,
            music=music,
            music_snr_db=(0.0, 5.0, 10.0)[number % 3],
            noise_snr_db=20,
        )
        frames.append(mel_frames(talk.samples)[: 10 * len(times)].unflatten(0, (-1, 10)).mean(1))
        speech = [(turn.start_seconds, turn.end_seconds) for turn in talk.turns]
        labels.append(torch.stack([within(times, speech), within(times, talk.music_spans)], 1))
    return [torch.cat(parts).unflatten(0, (-1, FRAMES)) for parts in (frames, labels)]


def within(times: Tensor, spans: Iterable[tuple[float, float]]) -> Tensor:
    """Return 1 for each time that lies in one of the spans, and 0 for the others."""
    return torch.stack([(start <= times) & (times < end) for start, end in spans]).any(0).float()


class Labeller(nn.Module):
    """Says two numbers of each frame: above 0, there is speech; above 0, there is music."""

    def __init__(self, way: str) -> None:
        """Make a net whose frames look at what `way` says."""
        super().__init__()
        self.way = way
        self.inner, self.outer = nn.Linear(BANDS, WIDTH), nn.Linear(WIDTH, 2)
        self.attend = SelfAttention(WIDTH, WIDTH, num_heads=HEADS)
        waves = torch.arange(FRAMES)[:, None] / 100 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        self.places = torch.cat([waves.sin(), waves.cos()], 1)

    def forward(self, frames: Tensor) -> tuple[Tensor, AttentionMap | None]:
        """Return the numbers, and what looked at what."""
        x, weights = relu(self.inner(frames)) + self.places, None
        if self.way == ATTENTION:
            taken, weights = self.attend(x)
        else:  # What attention would take if all weight went to the frame itself, or evenly.
            near = avg_pool1d(x.mT, 11, 1, 5, count_include_pad=False).mT
            taken = self.attend.w_v(near if self.way == NEAR else x)
        return self.outer(relu(x + taken)), weights


def teach(net: Labeller, frames: Tensor, labels: Tensor, steps: int) -> None:
    """Let a net learn from sixteen sounds at a time."""
    optimizer = torch.optim.AdamW(net.parameters(), 2e-3)
    for _ in bar(steps, net.way):
        some = torch.randint(len(frames), (16,))
        loss = binary_cross_entropy_with_logits(net(frames[some])[0], labels[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def score(net: Labeller, frames: Tensor, labels: Tensor) -> dict[str, float]:
    """Return F1 of speech, of music and of both at once, and the share of frames that are right."""
    said, true = net(frames)[0] > 0, labels > 0
    kinds = [
        (said[..., 0], true[..., 0]),
        (said[..., 1], true[..., 1]),
        (said.all(-1), true.all(-1)),
    ]
    f1 = [2 * (one & other).sum() / (one.sum() + other.sum()) for one, other in kinds]
    found = [*f1, (said == true).all(-1).float().mean()]
    return dict(zip(("speech", "music", "both", "right"), map(float, found), strict=True))


def draw(nets: list[Labeller], frames: Tensor, labels: Tensor, picture: Path) -> None:
    """Draw what each head looks at, before and after, below strips of speech and of music."""
    axis = Axis.of_seconds((i / 10, (i + 1) / 10) for i in range(FRAMES))
    figure = Figure((13, 6.4), layout="constrained")
    for number, when in enumerate(("before", "after")):
        for head, weights in enumerate(nets[number](frames[None])[1][0]):
            axes = figure.add_subplot(2, HEADS, number * HEADS + head + 1)
            title = f"{when}, head {head}"
            plot_heatmap(weights, query_axis=axis, key_axis=axis, log=True, title=title, ax=axes)
            for top, where, colour in ((-13, labels[:, 0], "C0"), (-7, labels[:, 1], "C1")):
                axes.fill_between(range(FRAMES), top, top + 4, where=where > 0, color=colour)
            axes.set_ylim(FRAMES - 0.5, -14)
    save_figure(figure, picture)


def main(
    picture: Path = Path("frame_labels.png"), *, minutes: int = 30, steps: int = 600, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Return the scores on sounds that were held out, having printed and drawn what was learned."""
    torch.manual_seed(seed)
    music = packaged_music(print)
    frames, labels = make_sounds(LEARNED, music[:3], minutes, seed=1000 * seed)
    others, truth = make_sounds(HELD_OUT, music[3:], max(3, minutes // 3), seed=1000 * seed + 500)
    mean, deviation = frames.mean((0, 1)), frames.std((0, 1))
    frames, others = (frames - mean) / deviation, (others - mean) / deviation
    scores = {}
    for way in (ALONE, NEAR, ATTENTION):
        net = Labeller(way)
        before = deepcopy(net)
        teach(net, frames, labels, steps)
        with torch.no_grad():
            scores[way] = score(net, others, truth)
    for way, found in scores.items():
        print(f"{way:22}" + "".join(f"{name:>8} {x:.3f}" for name, x in found.items()))
    with torch.no_grad():
        pauses = truth[..., 0] == 0
        shares = (net(others)[1] * pauses[:, None, None]).sum(-1).mean((0, 2))
        print("of its weight, each head gives frames without speech", end=" ")
        print(*[f"{x:.0%}" for x in shares], f"(they are {pauses.float().mean():.0%} of all)")
        mixed = (truth.mean(1) - 0.5).square().sum(-1).argmin()
        draw([before, net], others[mixed], truth[mixed], picture)
    print(f"what the heads look at: {picture}")
    return scores


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    main()
