"""What tables and plots share: names of tasks, notes, and the usual columns."""

from collections.abc import Sequence
from typing import Literal

import polars as pl

from analysis.tables import NOISE, Column

TASK_ORDER = ("gsm8k", "humaneval", "alpacaeval", "alfworld", "webshop", "deepsearchqa")
TASK_TITLES = {
    "gsm8k": "GSM8K",
    "humaneval": "HumanEval",
    "alpacaeval": "AlpacaEval",
    "alfworld": "ALFWorld",
    "webshop": "WebShop",
    "deepsearchqa": "DeepSearchQA",
}
NOISE_NOTE = f"{NOISE}: within the evaluation's noise, measured or else as published."
N_NOTE = (
    "n: scored runs (seeds). Runs without a score, invalid ones and those that infrastructure "
    "ended are counted beside and are in no mean."
)
BEST_NOTE = (
    "A run's score is its best submission's, chosen on the evaluation's own items: higher than a "
    "fresh evaluation would be."
)
CONTRAST_NOTE = (
    "Difference: B less A. Interval and p by sign flips over the pairs; none for a single pair. "
    "Holm within model and mode."
)


def task_title(task: str) -> str:
    """A task's name as people write it."""
    return TASK_TITLES.get(task, task)


def task_sort(tasks: Sequence[str]) -> list[str]:
    """Tasks in the study's order, others after them by name."""
    rank = {task: place for place, task in enumerate(TASK_ORDER)}
    return sorted(tasks, key=lambda task: (rank.get(task, len(rank)), task))


def titled(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with tasks' names as people write them."""
    return frame.with_columns(pl.col("task").replace(TASK_TITLES))


def of_group(frame: pl.DataFrame, model: str, mode: str) -> pl.DataFrame:
    """The rows of a model and mode."""
    return frame.filter((pl.col("model") == model) & (pl.col("mode") == mode))


def slug(*parts: str) -> str:
    """A name for files and anchors."""
    text = "-".join(parts).lower()
    return "".join(letter if letter.isalnum() else "-" for letter in text)


def where(*keys: str) -> list[Column]:
    """Text columns by their keys."""
    return [Column(key=key, header=key.capitalize()) for key in keys]


def count(key: str, header: str) -> Column:
    """A column of numbers of things."""
    return Column(key=key, header=header, kind="count")


def paper(key: str, header: str, *, signed: bool = False) -> Column:
    """A column of the study's figures."""
    kind: Literal["number", "signed"] = "signed" if signed else "number"
    return Column(key=key, header=header, kind=kind, digits=2, is_published=True)


def contrast_columns(num: str, header: str) -> list[Column]:
    """Columns of `analysis.comparisons.factors.contrast`."""
    return [
        Column(key="a", header="A"),
        Column(key="b", header="B"),
        count(num, header),
        Column(key="gain_a", header="Gain A", unit="points", kind="signed", digits=2),
        Column(key="gain_b", header="Gain B", unit="points", kind="signed", digits=2),
        Column(key="difference", header="Difference", unit="points", kind="signed", digits=2),
        Column(key="low", header="95% low", kind="signed"),
        Column(key="high", header="95% high", kind="signed"),
        Column(key="p_value", header="p", kind="p_value"),
        Column(key="p_holm", header="p (Holm)", kind="p_value"),
    ]
