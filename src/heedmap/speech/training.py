"""Learned projections for the attention that links voices: how they are trained.

Conversations are made of single voices, heard as any recording is, and kept as embeddings with the
truth of whose they are. Of every step's conversations each voice looks at those with which it has
no sound in common, and what it looks at votes for a speaker: the loss is −log of the share of the
weights that is its own speaker's. Only voices of one speaker are asked, but all vote, those too in
which the segmentation took two people for one. Voices that are held out tell when to stop; where
nothing that was learned helps them, the projections stay the identity.
"""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.attention import attention
from heedmap.errors import ArgumentError, InputError
from heedmap.models.packages import Progress
from heedmap.speech.examples import Example, Voiced, joined, make_example, others
from heedmap.speech.files import write_at_once
from heedmap.speech.linking import LEAST_CLEAN_SECONDS, TEMPERATURE
from heedmap.speech.projections import Projections, write_atomically

STEPS = 500
CONVERSATIONS = 60
HELD_OUT_CONVERSATIONS = 20
HELD_OUT_SHARE = 0.3
"""How many of the voices are never trained on."""

JOINED = 3
"""Of so many conversations each step is made, so that a voice meets itself in another room."""

ONE_SPEAKER = 0.85
"""A voice of which a larger share is one speaker's is said to be of one speaker."""

EVERY_STEPS = 20
"""How often the held-out voices are asked, a line is logged and a checkpoint written."""

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-2
FORM = "heedmap hear training 1"
EXAMPLE_FORM = "heedmap hear conversation 1"

RESULT, LOG, CHECKPOINT = "projections.pt", "log.jsonl", "checkpoint.pt"
RECIPE, HEARD = "recipe.json", "conversations"


@dataclass(frozen=True)
class Trained:
    """What came of a training.

    Attributes:
        path: The file of the projections.
        steps: After how many steps they were best on the voices that were held out; 0 if nothing
            that was learned was better than the identity.
        identity_loss: What the identity costs on these voices.
        learned_loss: What the projections cost there.
        held_out: The names of these voices.
    """

    path: Path
    steps: int
    identity_loss: float
    learned_loss: float
    held_out: tuple[str, ...]


def train_hear(
    output: Path,
    pools: Sequence[Voiced],
    *,
    seed: int = 0,
    steps: int = STEPS,
    conversations: int = CONVERSATIONS,
    resume: bool = False,
    progress: Progress = lambda _: None,
) -> Trained:
    """Return what came of a training; the same seed, voices and steps give the same projections.

    Into the folder come ``projections.pt``, ``log.jsonl`` with a line every 20 steps,
    ``checkpoint.pt``, and ``conversations`` with the embeddings. Whatever is interrupted goes on
    with `resume`, and ends bit for bit as it would have.

    Args:
        output: The folder; it is made if it is not there.
        pools: Clips of each speaker, of at least five in each pool. Three in ten are held out.
        seed: Chooses all that is drawn.
        steps: How many steps to train.
        conversations: How many to train on; a third as many are made of the voices held out.
        resume: Whether to go on with what the folder holds.
        progress: Called with one line of text before something slow begins, and meanwhile.

    Raises:
        ArgumentError: for numbers that make no sense, too few voices, or a folder that holds
            another training.
        InputError: if the folder cannot be written.
        FetchError, ModelError: if the models cannot be had.
        MissingExtraError: if an optional package is not installed.

    Cost: on one thread, whatever there are, 3 s for each conversation and 0.02 s for each step: 5
        minutes; 700 MB.
    """
    for name, number in (("steps", steps), ("conversations", conversations)):
        if number < 1:
            raise ArgumentError(f"{name} must be 1 or more for a training; got {number}.")
    learning, held_out = split_voices(pools, seed)
    names = [sorted(pool) for pool in pools]
    recipe = {
        "form": FORM,
        "seed": seed,
        "conversations": conversations,
        "temperature": TEMPERATURE,
        "voices": names,
    }
    _open_folder(output, recipe, resume)
    parts = (("learning", learning, conversations), ("held-out", held_out, -(-conversations // 3)))
    with _one_thread():
        examples = [
            [
                _kept_example(output / HEARD / f"{part}-{number:03d}.pt", chosen, seed, progress)
                for number in range(count)
            ]
            for part, chosen, count in parts
        ]
        run = _Run(output, examples[0], examples[1], seed)
        run.go(steps, progress)
    return run.finish(tuple(sorted(name for pool in held_out for name in pool)))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread within the block: sums by several are rounded in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def split_voices(pools: Sequence[Voiced], seed: int) -> tuple[list[Voiced], list[Voiced]]:
    """Return the voices to learn from, and those that are held out, pool by pool.

    Raises:
        ArgumentError: for fewer than five in a pool.
    """
    learning, held_out = [], []
    drawn = random.Random(f"{seed} held out")
    for pool in pools:
        if len(pool) < 5:
            raise ArgumentError(
                f"voices must be five or more, so that some can be held out; got {len(pool)}."
            )
        names = drawn.sample(sorted(pool), round(HELD_OUT_SHARE * len(pool)))
        learning.append({name: clips for name, clips in pool.items() if name not in names})
        held_out.append({name: pool[name] for name in names})
    return learning, held_out


class Loss(NamedTuple):
    """What projections cost on an example.

    Attributes:
        total: The mean over the voices that are asked; 0 where none is.
        right: The share of them for which their own speaker has most votes.
        asked: How many there are.
    """

    total: Float[Tensor, ""]
    right: float
    asked: float


def loss_of(projections: Projections, example: Example) -> Loss:
    """Return what the projections cost on an example; see the module's own words.

    Cost: O(voices²).
    """
    units = projections(example.embeddings)
    visible = others(example)
    votes, _ = attention(
        units,
        units,
        example.truth,
        mask=visible[None],
        scale=1 / TEMPERATURE,
        bias=example.seconds.log()[None],
    )
    one = (example.truth.amax(1) > ONE_SPEAKER) & (example.seconds > LEAST_CLEAN_SECONDS)
    # A speaker whom a voice cannot see elsewhere cannot be voted for.
    possible = (visible.float() @ example.truth) > 0
    truth = example.truth * (one[:, None] & possible)
    asked = float(truth.sum())
    total = -(truth * votes.clamp(min=1e-6).log()).sum() / max(asked, 1e-6)
    right = float(truth.gather(1, votes.argmax(1, keepdim=True)).sum()) / max(asked, 1e-6)
    return Loss(total, right, asked)


class _Run:
    """A training between two checkpoints."""

    def __init__(
        self,
        folder: Path,
        learning: Sequence[Example],
        held_out: Sequence[Example],
        seed: int,
    ) -> None:
        self._folder, self._seed = folder, seed
        self._learning, self._held_out = learning, held_out
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._projections = Projections(learning[0].embeddings.shape[1])
        self._optimizer = torch.optim.AdamW(
            self._projections.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        self._step = 0
        self._losses: list[float] = []
        self._history: list[dict[str, Any]] = []
        self._best_step, self._best = 0, {}

    def go(self, steps: int, progress: Progress) -> None:
        """Train up to so many steps, from the last checkpoint on where there is one."""
        if (self._folder / CHECKPOINT).exists():
            self._restore()
            progress(f"Goes on after step {self._step} …")
        else:
            self._ask(progress)
        while self._step < steps:
            self._learn()
            if self._step % EVERY_STEPS == 0 or self._step == steps:
                self._ask(progress)
        self._write_log()

    def finish(self, held_out: tuple[str, ...]) -> Trained:
        """Write what was best on the held-out voices."""
        self._projections.load_state_dict(self._best)
        path = self._folder / RESULT
        self._projections.save(path)
        losses = {line["step"]: line["held_out_loss"] for line in self._history}
        return Trained(path, self._best_step, losses[0], losses[self._best_step], held_out)

    def _learn(self) -> None:
        # Drawn anew in each step, so that no state but the step's number has to be kept.
        drawn = random.Random(f"{self._seed} step {self._step}")
        pool = drawn.choice(self._learning).pool
        alike = [example for example in self._learning if example.pool == pool]
        example = joined(drawn.sample(alike, min(JOINED, len(alike))))
        self._optimizer.zero_grad()
        loss = loss_of(self._projections, example).total
        loss.backward()
        self._optimizer.step()
        self._losses.append(float(loss.detach()))
        self._step += 1

    @torch.no_grad()
    def _ask(self, progress: Progress) -> None:
        """Ask the held-out voices, log, and write a checkpoint."""
        found = [loss_of(self._projections, example) for example in self._held_out]
        asked = max(sum(loss.asked for loss in found), 1e-6)
        learned = self._losses
        line = {
            "step": self._step,
            "learning_loss": sum(learned) / len(learned) if learned else None,
            "held_out_loss": sum(float(loss.total) * loss.asked for loss in found) / asked,
            "held_out_right": sum(loss.right * loss.asked for loss in found) / asked,
        }
        if not self._history or line["held_out_loss"] < min(
            before["held_out_loss"] for before in self._history
        ):
            self._best_step = self._step
            state = self._projections.state_dict()
            self._best = {name: part.clone() for name, part in state.items()}
        self._history.append(line)
        self._losses = []
        held = {
            "form": FORM,
            "step": self._step,
            "projections": self._projections.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "best_step": self._best_step,
            "best": self._best,
            "history": self._history,
        }
        write_atomically(held, self._folder / CHECKPOINT)
        self._write_log()
        progress(
            f"Step {self._step}: held-out loss {line['held_out_loss']:.4f}, "
            f"{line['held_out_right']:.1%} of the votes right …"
        )

    def _restore(self) -> None:
        held = _loaded(self._folder / CHECKPOINT, FORM)
        self._step = held["step"]
        self._projections.load_state_dict(held["projections"])
        self._optimizer.load_state_dict(held["optimizer"])
        self._best_step, self._best = held["best_step"], held["best"]
        self._history = held["history"]

    def _write_log(self) -> None:
        lines = "".join(json.dumps(line) + "\n" for line in self._history)
        write_at_once(self._folder / LOG, lines)


def _open_folder(folder: Path, recipe: dict[str, Any], resume: bool) -> None:
    """Make the folder and write down what is trained, or see that it is the same."""
    text = json.dumps(recipe, ensure_ascii=False, indent=2) + "\n"
    path = folder / RECIPE
    try:
        if resume and path.exists():
            if path.read_text(encoding="utf-8") != text:
                raise ArgumentError(
                    "output must hold a training with the same seed, voices and conversations to "
                    f"be resumed; got {folder}, which holds another one."
                )
            # What a kill left half written.
            for part in folder.rglob(".heedmap-*"):
                part.unlink()
            return
        if folder.exists() and any(folder.iterdir()):
            raise ArgumentError(
                f"output must be an empty folder for a new training; got {folder}. Go on with what "
                "it holds by resume, or choose another."
            )
        (folder / HEARD).mkdir(parents=True)
    except OSError as error:
        raise InputError(
            f"output must be where a training can be kept; got {folder} ({error.strerror}). Choose "
            "another."
        ) from error
    write_at_once(path, text)


def _kept_example(path: Path, pools: Sequence[Voiced], seed: int, progress: Progress) -> Example:
    """Return the example of a conversation, made unless it is there."""
    if path.exists():
        held = _loaded(path, EXAMPLE_FORM)
        return Example(**held["example"])
    progress(f"Makes and hears conversation {path.stem} …")
    example = make_example(pools, f"{seed} {path.stem}", progress)
    write_atomically({"form": EXAMPLE_FORM, "example": vars(example)}, path)
    return example


def _loaded(path: Path, form: str) -> dict[str, Any]:
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    # What torch raises for a damaged file has no class in common.
    except Exception as error:
        raise _damaged(path) from error
    if not isinstance(held, dict) or held.get("form") != form:
        raise _damaged(path)
    return held


def _damaged(path: Path) -> InputError:
    return InputError(
        f"{path} must be a file that heedmap train hear wrote, of this version; it is none. Delete "
        "it, and what it held is made again."
    )
