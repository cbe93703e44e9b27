"""How a question to a judge can fail, and what follows from it."""

from enum import StrEnum

from rl_bench.errors import JudgeError

MAX_REASON_CHARS = 300


class FailureKind(StrEnum):
    """What a failure means for this question and for all others."""

    UNANSWERED = "unanswered"
    """A time-out, a dead connection, a 429, a 5xx, a body that is none: worth another try later."""
    UNREADABLE = "unreadable"
    """An answer without a vote in it: worth another try at once."""
    REFUSED = "refused"
    """The endpoint does not take this question, and will not take it later."""
    CLOSED = "closed"
    """It would answer nobody: a wrong key, no such model, no credit, an outage, a spent budget."""


class AskError(JudgeError):
    """A question that got no vote.

    Args:
        message: The reason, as a user should read it.
        kind: What follows from it.
        retry_after_s: When the endpoint wants to be asked again; ``None``: it does not say.
    """

    def __init__(
        self,
        message: str,
        *,
        cure: str = "",
        kind: FailureKind = FailureKind.UNANSWERED,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(_shortened(message), cure=cure)
        self.kind = kind
        self.retry_after_s = retry_after_s


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= MAX_REASON_CHARS else words[: MAX_REASON_CHARS - 1] + "…"
