"""Errors as each provider words them.

Sources: https://docs.anthropic.com/en/api/errors,
https://platform.openai.com/docs/guides/error-codes, https://ai.google.dev/gemini-api/docs/troubleshooting
and https://cloud.google.com/apis/design/errors. A status that a provider does not use gets the
words of the nearest one that it does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rl_bench.config import Api
from rl_bench.drivers.dialects.base import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Kinds and message of one status, for all providers."""

    anthropic: str
    openai: str
    code: str | None
    google: str
    message: str


_WORDS: Mapping[int, _Words] = {
    400: _Words(
        anthropic="invalid_request_error",
        openai="invalid_request_error",
        code=None,
        google="INVALID_ARGUMENT",
        message="The request is malformed.",
    ),
    401: _Words(
        anthropic="authentication_error",
        openai="invalid_request_error",
        code="invalid_api_key",
        google="UNAUTHENTICATED",
        message="The API key is not valid.",
    ),
    402: _Words(
        anthropic="billing_error",
        openai="insufficient_quota",
        code="billing_not_active",
        google="FAILED_PRECONDITION",
        message="The credit balance is too low.",
    ),
    403: _Words(
        anthropic="permission_error",
        openai="invalid_request_error",
        code="unsupported_country_region_territory",
        google="PERMISSION_DENIED",
        message="The API key may not do this.",
    ),
    404: _Words(
        anthropic="not_found_error",
        openai="invalid_request_error",
        code="model_not_found",
        google="NOT_FOUND",
        message="There is nothing here.",
    ),
    413: _Words(
        anthropic="request_too_large",
        openai="invalid_request_error",
        code=None,
        google="INVALID_ARGUMENT",
        message="The request is too large.",
    ),
    429: _Words(
        anthropic="rate_limit_error",
        openai="rate_limit_error",
        code="rate_limit_exceeded",
        google="RESOURCE_EXHAUSTED",
        message="The rate limit is exceeded.",
    ),
    500: _Words(
        anthropic="api_error",
        openai="server_error",
        code=None,
        google="INTERNAL",
        message="The server had an error.",
    ),
    503: _Words(
        anthropic="overloaded_error",
        openai="server_error",
        code=None,
        google="UNAVAILABLE",
        message="The server is overloaded.",
    ),
}


@dataclass(frozen=True, slots=True)
class ProviderError:
    """An answer that is an error."""

    status: int
    body: Json
    headers: Mapping[str, str]


def provider_error(
    api: Api,
    status: int,
    *,
    message: str = "",
    retry_after_s: float | None = None,
    request_id: str = "",
) -> ProviderError:
    """The error of ``status`` in an API's shape.

    Args:
        api: Whose.
        status: From 400 to 599.
        message: The words; by default the status's own.
        retry_after_s: Sent as ``Retry-After``, in whole seconds, and where the API has a place.
        request_id: Names the request in Anthropic's shape.
    """
    words = _WORDS.get(status) or _WORDS[400 if status < 500 else 500 if status < 503 else 503]
    said = message or words.message
    headers = {} if retry_after_s is None else {"retry-after": str(math.ceil(retry_after_s))}
    match api:
        case Api.ANTHROPIC:
            error: Json = {"type": words.anthropic, "message": said}
            body: Json = {"type": "error", "error": error, "request_id": request_id}
            headers["request-id"] = request_id
        case Api.OPENAI:
            error = {"message": said, "type": words.openai, "param": None, "code": words.code}
            body = {"error": error}
            headers["x-request-id"] = request_id
        case Api.GOOGLE:
            error = {"code": status, "message": said, "status": words.google}
            if retry_after_s is not None:
                delay = f"{retry_after_s:g}s"
                kind = "type.googleapis.com/google.rpc.RetryInfo"
                error["details"] = [{"@type": kind, "retryDelay": delay}]
            body = {"error": error}
    return ProviderError(status, body, headers)
