"""What every config class shares: immutability, limits of numbers, and forms of names."""

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

MAX_SECONDS = 1e8
"""Three years: beyond it, and at infinity, arithmetic on dates and timers fails."""
MAX_SEED = 2**32 - 1
"""The largest that every library takes."""
MAX_ITEMS = 100_000
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
OptionName = Annotated[str, Field(pattern=NAME_PATTERN)]
"""A name that may become a part of a path."""
Setting = str | int | float | bool | None
KeepModels = Literal["all", "best_and_last", "none"]


class Frozen(BaseModel):
    """Base of every config class: immutable, and an unknown key is an error."""

    # A NaN written as null would not be read back as a number.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
