"""How a question to a language model behind an API can fail, and what follows from it."""

from enum import StrEnum

from rl_bench.errors import EndpointError

MAX_REASON_CHARS = 300


class FailureKind(StrEnum):
    """What a failure means for this question and for all others."""

    UNANSWERED = "unanswered"
    """A time-out, a dead connection, a 429, a 5xx, a body that is none: worth another try later."""
    UNREADABLE = "unreadable"
    """An answer without what was asked for in it: worth another try at once."""
    REFUSED = "refused"
    """The endpoint does not take this question, and will not take it later."""
    CLOSED = "closed"
    """It would answer nobody: a wrong key, no such model, no credit, an outage, a spent budget."""


class AskError(EndpointError):
    """A question that got no answer that could be used.

    Args:
        message: The reason, as a user should read it.
        kind: What follows from it.
        retry_after_s: When the endpoint wants to be asked again; ``None``: it does not say.
        status: Of the response, where one came.
        code: The endpoint's own name of the error; empty: it has none.
        param: The parameter that it found fault with; empty: it names none.
        said: The endpoint's own words, whole; empty: it said nothing.
    """

    def __init__(
        self,
        message: str,
        *,
        cure: str = "",
        kind: FailureKind = FailureKind.UNANSWERED,
        retry_after_s: float | None = None,
        status: int | None = None,
        code: str = "",
        param: str = "",
        said: str = "",
    ) -> None:
        super().__init__(_shortened(message), cure=cure)
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.status = status
        self.code = code
        self.param = param
        self.said = said


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= MAX_REASON_CHARS else words[: MAX_REASON_CHARS - 1] + "…"
