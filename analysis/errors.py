"""What the analysis tells of results that it cannot use, and of its own processes."""

from rl_bench.errors import ConfigError, RlBenchError


class ResultsError(ConfigError):
    """A folder holds no results, or they cannot be read. The message names it and the cure."""


class WorkerError(RlBenchError):
    """A process that made a part of a report ended too early. The message names the part."""
