"""What a run is confined to: its sandbox and its budget."""

from typing import Literal

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
)

from rl_bench.config.base import MAX_SECONDS, Frozen


class SandboxConfig(Frozen):
    """How the agent is isolated.

    Attributes:
        name: ``bwrap`` is bubblewrap; ``none`` protects nothing and says so; ``auto`` takes
            ``bwrap`` where it works and says which it took.
        max_processes: Processes of a run at one time; more end the run.
        max_memory_gib: Resident memory of a run's processes together, GiB; ``null``: no limit.
    """

    name: Literal["auto", "bwrap", "none"]
    max_processes: PositiveInt = 4096
    max_memory_gib: PositiveFloat | None = None


class BudgetConfig(Frozen):
    """What a run may use.

    Attributes:
        wall_clock_s: Seconds from the agent's start to the deadline.
        max_submissions: Submissions that are graded; ``null``: no limit.
        credit_queue_wait: Time a blocking submission waited in the grader's queue is given back.
        max_queue_credit_s: The most that is given back.
        kill_grace_s: From SIGTERM at the deadline to SIGKILL.
        max_driver_usd: What the driver's calls may cost, by its prices; ``null``: no limit.
        max_driver_calls: Calls of the driver that are let through; ``null``: no limit.
    """

    name: str
    wall_clock_s: PositiveFloat = Field(le=MAX_SECONDS)
    max_submissions: PositiveInt | None = None
    max_driver_usd: PositiveFloat | None = None
    max_driver_calls: PositiveInt | None = None
    credit_queue_wait: bool = True
    max_queue_credit_s: float = Field(default=3600.0, ge=0, le=MAX_SECONDS)
    kill_grace_s: float = Field(default=5.0, ge=0, le=MAX_SECONDS)
