"""Whether a submission's weights were trained: not the base, its noisy copy, or another checkpoint.

Size alone does not tell noise from careful training: one step of Adam at 1e-6 and noise of 1e-6
move weights equally far. Structure does. A gradient is a sum of few outer products, so the signs of
what training changed go together along rows and columns, also where rounding let only a few
elements change; the signs of independent noise do not. How much they go together is compared with
the same changes with their signs drawn anew, which for noise is just as likely: so what chance can
do is known exactly, whatever the sizes and places of the changes.

Noise that is too small to have been a way to learn breaks the rules for a submission; larger noise
can be evolution strategies' work and is a warning.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from rl_bench.audit.rules import (
    KNOWN_PART,
    KNOWN_WHOLE,
    MAX_EVIDENCE,
    MAX_NOISE_Z,
    MIN_NOISE_SHARE,
    NEGLIGIBLE_CHANGE,
    PARALLEL,
    RULES_VERSION,
    TINY_CHANGE,
    Rule,
)
from rl_bench.audit.weight_samples import Floats, Weights, comparable, rounded
from rl_bench.errors import RlBenchError
from rl_bench.events import Evidence, FindingMade

NUM_BLOCKS = 40
"""Matrices whose structure is looked at, spread over the model."""
NUM_DRAWN = 16
MIN_CHANGED = 128
"""Changed elements that a block must have to tell anything."""
MIN_BLOCKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a submission changed of the base.

    Attributes:
        num_tensors: Compared; ``num_changed`` of them differ in the sample.
        relative: Root mean square of the change over that of the base, over changed tensors.
        largest: The same of the tensor that changed most.
        changed_share: Share of the sampled elements that differ at all.
        coherences: By matrix, see `coherence`.
        cosine: Between change and base weights; near 1: a mere scaling.
        whole: Every tensor was compared before the time was over.
    """

    num_tensors: int
    num_changed: int
    relative: float
    largest: float
    changed_share: float
    coherences: Mapping[str, float]
    cosine: float
    whole: bool = True

    @property
    def structure(self) -> float:
        """The coherences together, as one standard score; 0 when none could be measured."""
        return sum(self.coherences.values()) / math.sqrt(max(len(self.coherences), 1))

    @property
    def is_noise(self) -> bool:
        """Whether enough was changed to show training, and it shows none."""
        enough = len(self.coherences) >= MIN_BLOCKS
        return enough and abs(self.structure) <= MAX_NOISE_Z

    @property
    def is_scaling(self) -> bool:
        """Whether every weight was multiplied by about the same number."""
        return self.cosine >= PARALLEL

    def in_words(self) -> str:
        """The figures."""
        figures = [
            f"{self.num_changed} of {self.num_tensors} tensors differ",
            f"relative change {self.relative:.2e} (at most {self.largest:.2e})",
            f"{100 * self.changed_share:.1f} % of sampled elements",
        ]
        if self.coherences:
            figures.append(f"structure {self.structure:.1f} in {len(self.coherences)} matrices")
        return ", ".join(figures)


def measure_change(ours: Weights, base: Weights, *, deadline: float) -> Change:
    """Compares samples of two checkpoints; ends at ``deadline`` (monotonic) with what it has."""
    names = comparable(ours, base)
    moved = weight = dot = 0.0
    largest, num_seen, num_changed, num_elements, num_moved = 0.0, 0, 0, 0, 0
    matrices: list[str] = []
    for name in names:
        if time.monotonic() > deadline:
            break
        before = rounded(base.sample(name), ours.tensors[name].dtype)
        change = ours.sample(name) - before
        num_seen += 1
        num_elements += change.size
        changed = int(np.count_nonzero(change))
        if not changed or not np.isfinite(change).all():
            continue
        num_changed += 1
        num_moved += changed
        size, scale = float(change @ change), float(before @ before)
        moved, weight, dot = moved + size, weight + scale, dot + abs(float(change @ before))
        largest = max(largest, _ratio(size, scale))
        if ours.tensors[name].has_block:
            matrices.append(name)
    coherences = _coherences(ours, base, _spread(matrices, NUM_BLOCKS), deadline=deadline)
    return Change(
        num_tensors=num_seen,
        num_changed=num_changed,
        relative=_ratio(moved, weight),
        largest=largest,
        changed_share=num_moved / max(num_elements, 1),
        coherences=coherences,
        cosine=dot / math.sqrt(moved * weight) if moved * weight > 0 else 0.0,
        whole=num_seen == len(names),
    )


def _ratio(size: float, scale: float) -> float:
    return math.sqrt(size / scale) if scale > 0 else math.inf


def _spread(names: Sequence[str], number: int) -> Sequence[str]:
    if len(names) <= number:
        return names
    return [names[index * len(names) // number] for index in range(number)]


def _coherences(
    ours: Weights, base: Weights, names: Sequence[str], *, deadline: float
) -> dict[str, float]:
    found = {}
    for name in names:
        if time.monotonic() > deadline:
            break
        change = ours.block(name) - rounded(base.block(name), ours.tensors[name].dtype)
        if np.count_nonzero(change) >= MIN_CHANGED and np.isfinite(change).all():
            found[name] = coherence(change)
    return found


def coherence(change: Floats) -> float:
    """How far signs go together along rows and columns beyond chance, in standard deviations.

    Args:
        change: Shape (rows, columns), not all zero.
    """
    signs = np.sign(change)
    rng = np.random.default_rng(0)
    flips = (rng.choice((-1.0, 1.0), size=signs.shape) for _ in range(NUM_DRAWN))
    drawn = [_agreement(signs * flip) for flip in flips]
    spread = stdev(drawn)
    return (_agreement(signs) - fmean(drawn)) / spread if spread > 0 else 0.0


def _agreement(signs: Floats) -> float:
    """Squared agreements of all pairs of rows and of all pairs of columns."""
    total = 0.0
    for products in (signs @ signs.T, signs.T @ signs):
        np.fill_diagonal(products, 0.0)
        total += float((products * products).sum())
    return total


def share_of_way(ours: Weights, base: Weights, known: Weights, *, deadline: float) -> float | None:
    """How far the submission went from the base towards a known checkpoint: 0 none, 1 all the way.

    The length of the change's projection on the way. A half and more means that the known
    checkpoint is the nearer one. None when they have no tensors in common, or do not differ.
    """
    names = set(comparable(known, base)) & set(ours.tensors)
    along = way = 0.0
    for name in sorted(names & set(comparable(ours, base))):
        if time.monotonic() > deadline:
            break
        before = base.sample(name)
        direction = known.sample(name) - before
        change = ours.sample(name) - before
        if np.isfinite(change).all() and np.isfinite(direction).all():
            along += float(change @ direction)
            way += float(direction @ direction)
    return along / way if way > 0 else None


def weight_findings(
    submission_id: int,
    ours: Weights,
    *,
    base: Weights,
    references: Mapping[str, Weights],
    deadline: float,
) -> list[FindingMade]:
    """What the weights of one submission say.

    Raises:
        OSError: A file cannot be read.
    """
    found = []
    change = measure_change(ours, base, deadline=deadline)
    noise = _noise_finding(submission_id, change)
    if noise is not None:
        found.append(noise)
    for name, known in references.items():
        share = share_of_way(ours, base, known, deadline=deadline)
        if share is not None and share >= KNOWN_PART:
            found.append(_known_finding(submission_id, name, share, change))
    return found


def _noise_finding(submission_id: int, change: Change) -> FindingMade | None:
    is_negligible = change.relative <= NEGLIGIBLE_CHANGE and change.structure <= MAX_NOISE_Z
    if not change.num_changed or not (change.is_noise or change.is_scaling or is_negligible):
        return None
    is_proven = change.is_scaling or (change.is_noise and change.changed_share >= MIN_NOISE_SHARE)
    is_tiny = change.relative <= TINY_CHANGE
    if change.is_scaling:
        what = "with all weights scaled by one number"
    elif change.is_noise:
        what = "with independent noise, no trace of training"
    else:
        what = "but for a change too small to matter or to show what made it"
    return FindingMade(
        rule=Rule.BASE_PLUS_NOISE,
        severity="breach" if is_tiny and is_proven else "warning",
        rules_version=RULES_VERSION,
        summary=f"submission {submission_id} is the base model {what}",
        submission_id=submission_id,
        evidence=_weights_evidence(change),
    )


def _known_finding(submission_id: int, name: str, share: float, change: Change) -> FindingMade:
    is_whole = share >= KNOWN_WHOLE
    nearer = "is nearer to it than to the base" if is_whole else "took a part of it"
    return FindingMade(
        rule=Rule.KNOWN_CHECKPOINT,
        severity="breach" if is_whole else "warning",
        rules_version=RULES_VERSION,
        summary=f"submission {submission_id} went {100 * share:.0f} % of the way from the base to "
        f"the known checkpoint {name}: it {nearer}",
        submission_id=submission_id,
        evidence=_weights_evidence(change),
    )


def _weights_evidence(change: Change) -> tuple[Evidence, ...]:
    tensors = [
        Evidence(source="weights", path=name, quote=f"structure {value:.1f}")
        for name, value in sorted(change.coherences.items(), key=lambda item: -item[1])
    ]
    whole = Evidence(source="weights", quote=change.in_words())
    return (whole, *tensors)[: MAX_EVIDENCE // 2]


def open_references(
    paths: Mapping[str, Path], *, base: Weights
) -> tuple[dict[str, Weights], list[str]]:
    """The known checkpoints, and why some cannot be read, or cannot be compared with."""
    found, problems = {}, []
    for name, path in paths.items():
        try:
            found[name] = Weights.of(path.expanduser())
        except (RlBenchError, OSError, ValueError, KeyError) as error:
            problems.append(f"the known checkpoint {name} at {path} cannot be read: {error}")
            continue
        if not comparable(found[name], base):
            problems.append(
                f"the known checkpoint {name} at {path} has nothing in common with the base model"
            )
    return found, problems
