"""A synthetic sweep on disk with its truths."""

from functools import cached_property
from pathlib import Path

from analysis.results import Results, load
from analysis.synthetic.sweep import Truth


class SyntheticSweep:
    """The folder, what was planted in it, and its results."""

    def __init__(self, folder: Path, truth: Truth) -> None:
        self.folder = folder
        self.truth = truth

    @cached_property
    def results(self) -> Results:
        return load([self.folder])

    def with_fate(self, fate: str) -> str:
        """The id of a run that ended so."""
        return next(name for name, run in self.truth["runs"].items() if run["fate"] == fate)
