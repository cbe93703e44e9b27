"""Every error of the project, one flat child for each boundary that can fail.

    RlBenchError
    ├── ConfigError        a config value, an override or a name that does not exist  (exit 2)
    ├── PreflightError     the machine lacks what the plan needs: data, model, disk   (exit 2)
    │   └── MissingDataError   of it, files of a data set are not where a task looks
    ├── DataError          a data set could not be fetched, or is damaged             (exit 1)
    ├── InstallError       an agent's CLI could not be installed                      (exit 1)
    ├── SweepConflictError the sweep name is in use, or fixed to another config       (exit 2)
    ├── WorkspaceError     the run's folder could not be made or read
    ├── SandboxError       the sandbox that was asked for does not work here
    ├── SubmissionError    a checkpoint that cannot be graded: the agent's fault, a 4xx
    ├── GraderError        the engine or its pool failed: infrastructure, never a score
    ├── EnvironmentFailure an episode's environment broke or timed out
    ├── EndpointError      a language model behind an API gave no usable answer
    ├── DriverError        the agent's language model could not be reached
    ├── LedgerError        a ledger that cannot be written or read
    └── SinkError          Parquet or W&B could not take a record

Exceptions take their message first and everything else by keyword with a default, so that they
survive pickling between processes.
"""

import traceback


class RlBenchError(Exception):
    """Base of every error that this project raises on purpose.

    Args:
        message: What is wrong and with which thing.
        cure: What the user can do about it.

    Attributes:
        others: What else was found to be wrong at the same time, see `rl_bench.checks.check_all`.
    """

    def __init__(self, message: str, *, cure: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure
        self.others: tuple[RlBenchError, ...] = ()

    def __str__(self) -> str:
        first = f"{self.message}. {self.cure}" if self.cure else self.message
        return "\n".join([first, *map(str, self.others)])

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.__dict__)


def _rebuild(cls: type[RlBenchError], message: str, state: dict[str, object]) -> RlBenchError:
    error = cls(message)
    error.__dict__.update(state)
    return error


def fault_of(error: Exception) -> str:
    """What broke somebody's code, and where, in one line: ``KeyError: 'x' at task.py:44``."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}{where}"


class ConfigError(RlBenchError):
    """A config value is missing, unknown or out of range."""


class PreflightError(RlBenchError):
    """The machine lacks something that the plan needs."""


class MissingDataError(PreflightError):
    """A task's data are not there, or not all of them; getting them is the cure."""


class DataError(RlBenchError):
    """A file of a data set could not be had from its source, or is not what it must be."""


class InstallError(RlBenchError):
    """An agent's published CLI could not be had from its registry, or does not run."""


class SweepConflictError(RlBenchError):
    """The sweep's name is taken, by a running sweep or by another config."""


class WorkspaceError(RlBenchError):
    """A run's workspace could not be prepared or read."""


class SandboxError(RlBenchError):
    """The sandbox that was asked for does not work here, or broke."""


class SubmissionError(RlBenchError):
    """A submitted checkpoint cannot be graded, through its own fault.

    Args:
        reason: A short machine-readable class, e.g. ``adapter_only`` or ``missing_shard``.
        file: The file at fault, relative to the submitted folder.
        status: The HTTP status that answers it.
    """

    def __init__(
        self,
        message: str,
        *,
        cure: str = "",
        reason: str = "invalid",
        file: str = "",
        status: int = 422,
    ) -> None:
        super().__init__(message, cure=cure)
        self.reason = reason
        self.file = file
        self.status = status


class GraderError(RlBenchError):
    """The engine or the pool failed; the submission has no score because of it."""


class EnvironmentFailure(RlBenchError):  # noqa: N818  "EnvironmentError" is a builtin
    """An environment raised, hung or found no games."""


class EndpointError(RlBenchError):
    """A language model behind an API, a judge or a served model, gave no usable answer."""


class DriverError(RlBenchError):
    """The agent's language model could not be reached."""


class LedgerError(RlBenchError):
    """A ledger could not be written or read."""


class SinkError(RlBenchError):
    """A result sink could not open or take a record."""
