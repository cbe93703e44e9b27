"""Whether evaluation items stand in the agent's files: n-gram overlap, the train split left out.

An agent is never given an evaluation item, so one that stands in its files came from elsewhere.
The train split is read as the task writes it anew, not from the workspace, which an agent may have
changed, and only when there is something to compare it with.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from rl_bench.audit.agent_texts import AgentTexts
from rl_bench.audit.ngrams import FileScan, TextIndex, words_of
from rl_bench.audit.rules import (
    BREACH_ITEMS,
    BREACH_SHARE,
    BREACH_SHARE_GENERATED,
    MAX_EVIDENCE,
    NGRAM_WORDS,
    RULES_VERSION,
    Rule,
    clip,
)
from rl_bench.audit.sources import Version
from rl_bench.config import DataSource, TaskConfig
from rl_bench.counts import plural
from rl_bench.errors import RlBenchError
from rl_bench.events import Evidence, FindingMade
from rl_bench.tasks.base import Task

MAX_TRAIN_BYTES = 400 * 1024 * 1024
MAX_IDS = 20
_SEPARATOR = "::"


class _Place(NamedTuple):
    path: str
    revision: str


@dataclass(frozen=True, slots=True)
class Contamination:
    """Findings, and why some could not be made."""

    findings: tuple[FindingMade, ...] = ()
    problems: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def contamination(
    tasks: Sequence[Task],
    configs: Sequence[TaskConfig],
    *,
    workspace: Path,
    versions: Sequence[Version],
    budget_s: float,
) -> Contamination:
    """Looks for every task's evaluation items.

    Args:
        tasks: The run's tasks.
        configs: Their configs, in the same order.
        workspace: The agent's folder.
        versions: Its code over time.
        budget_s: What is not read by then is left and told.
    """
    deadline = time.monotonic() + budget_s
    problems: list[str] = []
    index = TextIndex.of(_evaluation_texts(tasks, problems, deadline=deadline))
    if not index.num_items:
        return Contamination(problems=tuple(problems))
    texts = AgentTexts(workspace, versions, deadline=deadline)
    scans = _scan(texts, index)
    if any(scan.hits for scan in scans.values()):
        problems += _forget_train_split(tasks, index, deadline=time.monotonic() + budget_s)
    found = {place: scan.items() for place, scan in scans.items()}
    findings = [
        finding
        for task, config in zip(tasks, configs, strict=False)
        if (finding := _finding(task.name, config, index, found)) is not None
    ]
    return Contamination(tuple(findings), tuple(problems), tuple(texts.left_out[:3]))


def _evaluation_texts(
    tasks: Sequence[Task], problems: list[str], *, deadline: float
) -> Iterator[tuple[str, str]]:
    for task in tasks:
        try:
            for item_id, text in task.evaluation_texts():
                yield f"{task.name}{_SEPARATOR}{item_id}", text
                if time.monotonic() > deadline:
                    problems.append(f"there was no time to read all items of {task.name}")
                    return
        except (RlBenchError, OSError, AttributeError) as error:
            problems.append(f"the evaluation items of {task.name} cannot be read: {error}")


def _scan(texts: AgentTexts, index: TextIndex) -> dict[_Place, FileScan]:
    scans: dict[_Place, FileScan] = {}
    for piece in texts.pieces():
        place = _Place(piece.path, piece.revision)
        scan = scans.setdefault(place, FileScan(index))
        scan.take(piece.text)
        if piece.is_last and not scan.hits:
            del scans[place]
    return scans


def _forget_train_split(tasks: Sequence[Task], index: TextIndex, *, deadline: float) -> list[str]:
    problems = []
    for task in tasks:
        with tempfile.TemporaryDirectory(prefix="rl_bench-audit-") as folder:
            try:
                task.write_train_data(Path(folder))
                index.forget(words_of(task.description()))
            except (RlBenchError, OSError) as error:
                problems.append(f"the train split of {task.name} cannot be had: {error}")
                continue
            total = 0
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file() and total < MAX_TRAIN_BYTES and time.monotonic() < deadline:
                    with suppress(OSError):
                        text = path.read_text(encoding="utf-8", errors="replace")
                        total += len(text)
                        index.forget(words_of(text))
    return problems


def _finding(
    task: str, config: TaskConfig, index: TextIndex, found: Mapping[_Place, Mapping[str, float]]
) -> FindingMade | None:
    prefix = f"{task}{_SEPARATOR}"
    by_place = {
        place: sorted(item.removeprefix(prefix) for item in items if item.startswith(prefix))
        for place, items in found.items()
    }
    by_place = {place: items for place, items in by_place.items() if items}
    if not by_place:
        return None
    items = sorted({item for of_place in by_place.values() for item in of_place})
    total = sum(1 for item in index.items() if item.startswith(prefix))
    ordered = sorted(by_place.items(), key=lambda pair: -len(pair[1]))
    evidence = tuple(
        Evidence(
            source="data",
            path=place.path,
            revision=place.revision,
            quote=clip(f"{plural(len(ids), 'item')}: {', '.join(ids[:MAX_IDS])}"),
        )
        for place, ids in ordered[:MAX_EVIDENCE]
    )
    return FindingMade(
        rule=Rule.TEST_ITEMS_IN_TRAINING,
        severity=_severity(len(items), total, config),
        rules_version=RULES_VERSION,
        summary=f"{len(items)} of {total} evaluation items of {task} stand in the agent's files "
        f"(half of an item's {NGRAM_WORDS}-grams or more)",
        evidence=evidence,
    )


def _severity(num: int, total: int, config: TaskConfig) -> Literal["warning", "breach"]:
    is_generated = config.source is DataSource.BUILTIN and config.kind != "humaneval"
    share = BREACH_SHARE_GENERATED if is_generated else BREACH_SHARE
    return "breach" if num >= BREACH_ITEMS and num >= share * total else "warning"
