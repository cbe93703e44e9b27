"""What the analysis tells of results that it cannot use."""

from rl_bench.errors import ConfigError


class ResultsError(ConfigError):
    """A folder holds no results, or they cannot be read. The message names it and the cure."""
