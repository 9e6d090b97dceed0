"""Which of the voices that windows hold are one person: self-attention over their embeddings.

The voices of all windows are one sequence. Each looks at all, weights = softmax(Q·Kᵀ / temperature
+ log seconds), Q, K and V being the unit embeddings, or a learned projection of them: a voice that
was heard for longer counts for more. What a voice gathers, weights · V, is an average of the voices
that are like it, with less of the chance in each; that is what clusters are made of. Then every
voice goes to the nearest speaker, no two of one window to the same while there are enough.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from heedmap.attention import attention
from heedmap.attention_map import AttentionMap
from heedmap.errors import ArgumentError
from heedmap.speech.clusters import NOBODY, SpeakerCount, clusters_of, require_scipy
from heedmap.speech.projections import Projections
from heedmap.speech.voices import Voices

TEMPERATURE = 0.07
THRESHOLD = 0.36
"""Chosen by 93 conversations of 40 s to 120 s of voices to choose settings by, not by recordings
or voices that figures are reported on. From 0.28 to 0.44 the error lies within a point of its best;
by 67 of the conversations no temperature from 0.04 to 0.12 has a wider range. Below, one person
becomes several; above, several become one."""

LEARNED_THRESHOLD = 0.44
"""The same for learned projections, which put voices of different people further apart: 0.40 is
best for some that were learned from none of these voices, 0.48 for some learned from half of
them."""

LEAST_CLEAN_SECONDS = 1.0
"""Voices heard alone for a shorter time make no clusters, but are assigned to them. By the same
conversations 0.5 s and 1.5 s are as good, 3 s is worse."""

LEAST_CLUSTER_SHARE = 0.04
LEAST_CLUSTER_SECONDS, ENOUGH_CLUSTER_SECONDS = 2.0, 5.0
"""A cluster is a speaker if it has this share of all that voices say, but at least the shorter time
and no more than the longer. By the same conversations that is a point better than the shorter time
alone."""

WINDOWS_OF_A_MOMENT = 4
"""In so many windows a moment is heard, and counted, in all but the shortest recordings."""

MOST_CLUSTERED = 2000
"""Of how many voices at most the tree is made: 32 MB of distances. Windows are left out evenly,
and overlap so far that none of their sound is lost."""


@dataclass(frozen=True, eq=False)
class Linked:
    """Which voice is whose, and the map that says why.

    Attributes:
        map: How much each voice looks at each, ``[voices, voices]``.
        cluster: The speaker of each voice, counted from 0. Voices of one window have different
            ones, as far as there are so many.
        similarity: The cosine of each voice and each speaker.
        notes: What people should know about it.
    """

    map: AttentionMap
    cluster: Int[Tensor, " voices"]
    similarity: Float[Tensor, "voices speakers"]
    notes: tuple[str, ...] = ()

    @property
    def speakers(self) -> int:
        """How many speakers there are."""
        return self.similarity.shape[1]


@torch.no_grad()
def link(
    voices: Voices,
    *,
    projections: Projections | None = None,
    temperature: float = TEMPERATURE,
    threshold: float | None = None,
    speakers: int | None = None,
    min_speakers: int | None = None,
    max_speakers: int | None = None,
) -> Linked:
    """Return which voices are one person, and the map of who looks at whom.

    Args:
        voices: The voices of all windows.
        projections: Learned ones; the embeddings themselves are query, key and value without.
        temperature: What the cosines are divided by before the softmax: the smaller, the fewer
            voices each looks at.
        threshold: The cosine distance, from 0 to 2, above which gathered voices are not joined;
            what was chosen for learned projections, or for none, unless given.
        speakers: Exactly so many speakers.
        min_speakers: At least so many.
        max_speakers: At most so many.

    Returns:
        The speaker of each voice. Two voices of one window have the same only where it holds more
        voices than there are speakers. There are fewer speakers than asked for only where there are
        fewer voices. A note says so.

    Raises:
        ArgumentError: for numbers that make no sense.
        MissingExtraError: if scipy is not installed.

    Cost: O(voices²) time, a second for an hour; memory O(voices), and 100 MB for the tree.
    """
    count = SpeakerCount.of(speakers, min_speakers, max_speakers)
    if not temperature > 0:
        raise ArgumentError(f"temperature must be above 0; got {temperature}.")
    if threshold is None:
        threshold = THRESHOLD if projections is None else LEARNED_THRESHOLD
    if not 0 <= threshold <= 2:
        raise ArgumentError(
            f"threshold must be a cosine distance, from 0 to 2; got {threshold}. Smaller ones make "
            "more speakers."
        )
    units = voices.embeddings if projections is None else projections(voices.embeddings)
    gathered, weights = attention(
        units, units, units, scale=1 / temperature, bias=voices.seconds.log()[None]
    )
    gathered = normalize(gathered, dim=-1)
    chosen, step = _chosen(voices, count)
    own = torch.full((len(units),), NOBODY, dtype=torch.long)
    own[chosen] = clusters_of(
        gathered[chosen],
        voices.window[chosen],
        voices.seconds[chosen] * step,
        threshold=threshold,
        count=count,
        least_seconds=_least_seconds(voices),
    )
    centroids = _centroids(gathered, own, voices.seconds)
    similarity = units @ centroids.T
    cluster = _assigned(voices, similarity, _anchors(own, similarity))
    return Linked(
        weights, cluster, similarity, _notes(voices.window, cluster, similarity.shape[1], count)
    )


def _chosen(voices: Voices, count: SpeakerCount) -> tuple[Int[Tensor, " chosen"], int]:
    """Return the voices that the tree is made of, and for how many windows one stands."""
    wanted = min(max(count.least, 1), len(voices.seconds))
    least = min(LEAST_CLEAN_SECONDS, float(voices.seconds.topk(wanted).values[-1])) if wanted else 0
    chosen = (voices.seconds >= least).nonzero()[:, 0]
    step = max(1, -(-len(chosen) // MOST_CLUSTERED))
    return chosen[voices.window[chosen] % step == 0], step


def _least_seconds(voices: Voices) -> float:
    """Return for how long the voices of a speaker are heard together, at least."""
    windows = int(voices.window.max()) + 1 if len(voices.window) else 0
    counted = min(windows, WINDOWS_OF_A_MOMENT)
    share = LEAST_CLUSTER_SHARE * float(voices.seconds.sum())
    return min(max(share, counted * LEAST_CLUSTER_SECONDS), counted * ENOUGH_CLUSTER_SECONDS)


def _centroids(
    gathered: Float[Tensor, "voices features"],
    own: Int[Tensor, " voices"],
    seconds: Float[Tensor, " voices"],
) -> Float[Tensor, "speakers features"]:
    """Return the direction of each cluster, of length 1."""
    speakers = int(own.max()) + 1 if len(own) else 0
    sums = gathered.new_zeros(speakers, gathered.shape[1])
    members = own != NOBODY
    sums.index_add_(0, own[members], (gathered * seconds[:, None])[members])
    return normalize(sums, dim=-1)


def _anchors(
    own: Int[Tensor, " voices"], similarity: Float[Tensor, "voices speakers"]
) -> Int[Tensor, " speakers"]:
    """Return for each cluster the voice in it that is most like it, which stays there."""
    speakers = similarity.shape[1]
    inside = own[:, None] == torch.arange(speakers)
    return similarity.masked_fill(~inside, -torch.inf).argmax(0) if speakers else own[:0]


def _assigned(
    voices: Voices,
    similarity: Float[Tensor, "voices speakers"],
    anchors: Int[Tensor, " speakers"],
) -> Int[Tensor, " voices"]:
    """Return the speaker of each voice: the nearest, no two of one window having the same.

    Where two voices of a window want the same, the sum of their similarities decides, each for as
    long as it was heard. Where a window has more voices than there are speakers, those that this
    leaves over go to the nearest speaker all the same.
    """
    benefit = (similarity + 1) * voices.seconds[:, None]
    benefit[anchors, torch.arange(len(anchors))] = 1e6
    cluster = torch.full((len(benefit),), NOBODY, dtype=torch.long)
    match = require_scipy().optimize.linear_sum_assignment
    numbers, sizes = voices.window.unique_consecutive(return_counts=True)
    del numbers
    for rows in torch.arange(len(benefit)).split(sizes.tolist()):
        taken, speaker = match(benefit[rows].numpy(), maximize=True)
        cluster[rows[taken]] = torch.from_numpy(speaker)
    left = cluster == NOBODY
    if left.any():
        cluster[left] = similarity[left].argmax(1)
    return cluster


def _notes(
    window: Int[Tensor, " voices"],
    cluster: Int[Tensor, " voices"],
    speakers: int,
    count: SpeakerCount,
) -> tuple[str, ...]:
    notes = []
    if speakers < count.least:
        notes.append(
            f"speakers asked for: {count.least}; told apart: {speakers}, as there are no more "
            "voices."
        )
    shared = len(cluster) - len(set(zip(window.tolist(), cluster.tolist(), strict=True)))
    if shared:
        notes.append(
            f"{shared} of {len(cluster)} voices share a speaker with another of their window: more "
            f"people seem to speak within ten seconds than the {speakers} of the whole recording."
        )
    return tuple(notes)
