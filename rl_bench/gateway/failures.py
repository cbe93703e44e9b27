"""Which kind of failure an answer is.

Statuses alone do not tell: a key without credit is a 429 at OpenAI and a 400 at Anthropic, a wrong
key is a 400 at Google, and an error inside a stream comes with a 200.
"""

from http import HTTPStatus

from rl_bench.events import DriverFailure
from rl_bench.gateway.dialects import Problem

_BILLING = (
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit",
    "billing_not_active",
    "credit balance is too low",
    "insufficient credits",
    "insufficient balance",
    "insufficient_balance",
    "requires more credits",
    "requires billing",
    "enable billing",
    "billing to be enabled",
    "prepayment credits",
)
_AUTH = ("api_key_invalid", "invalid_api_key", "api key not valid", "authentication_error")
_BY_KIND = {
    "permission": DriverFailure.AUTH,
    "rate_limit": DriverFailure.RATE_LIMITED,
    "resource_exhausted": DriverFailure.RATE_LIMITED,
    "overloaded": DriverFailure.SERVER_ERROR,
    "timeout_error": DriverFailure.TIMEOUT,
    "server_error": DriverFailure.SERVER_ERROR,
    "api_error": DriverFailure.SERVER_ERROR,
    "invalid": DriverFailure.BAD_REQUEST,
    "not_found": DriverFailure.BAD_REQUEST,
    "too_large": DriverFailure.BAD_REQUEST,
    "context_length": DriverFailure.BAD_REQUEST,
}


def classify(status: int, problem: Problem | None) -> DriverFailure:
    """The kind of an answer with an error status, or with an error in its stream.

    Args:
        status: Of the answer; below 300: the problem alone tells.
        problem: What the answer's JSON says.
    """
    kind, message, inner = problem or Problem("", "")
    words = f"{kind} {message}".lower()
    if status < HTTPStatus.MULTIPLE_CHOICES:
        status = inner or 0
    # Overload is worded in many ways, credit in none of them.
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        if status == HTTPStatus.PAYMENT_REQUIRED or any(mark in words for mark in _BILLING):
            return DriverFailure.BILLING
        if any(mark in words for mark in _AUTH):
            return DriverFailure.AUTH
    return _of_status(status) if status else _of_kind(kind.lower())


def _of_status(status: int) -> DriverFailure:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return DriverFailure.SERVER_ERROR
    if status < HTTPStatus.BAD_REQUEST:
        return DriverFailure.UNREACHABLE
    return {
        401: DriverFailure.AUTH,
        403: DriverFailure.AUTH,
        408: DriverFailure.TIMEOUT,
        429: DriverFailure.RATE_LIMITED,
    }.get(status, DriverFailure.BAD_REQUEST)


def _of_kind(kind: str) -> DriverFailure:
    found = (failure for mark, failure in _BY_KIND.items() if mark in kind)
    return next(found, DriverFailure.SERVER_ERROR)
