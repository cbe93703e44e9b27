"""Errors of the gateway's own, written as each provider writes its.

**A reached cap is a 400**, whatever the API. Tried with Claude Code 2.1.197, Codex 0.171.0, Gemini
CLI 0.61.0, OpenCode 1.18.33 and OpenHands 1.16.0: after a 400 each asks no more; after a 402 or 403
Codex asks five times more; after a 429 Gemini CLI and OpenCode ask on for over a minute. The words
keep clear of those by which clients know a full context, for they would shorten it and ask again.
``x-should-retry: false`` says the same to the providers' own libraries.
"""

import json
from enum import Enum

from rl_bench.config import Api
from rl_bench.gateway.routes import Headers


class Refusal(Enum):
    """Why the gateway answers itself: status, type for Anthropic, OpenAI, and status for Google."""

    NOT_FOUND = (404, "not_found_error", "invalid_request_error", "NOT_FOUND")
    TOO_LARGE = (413, "request_too_large", "invalid_request_error", "INVALID_ARGUMENT")
    OTHER_MODEL = (403, "permission_error", "invalid_request_error", "PERMISSION_DENIED")
    CAPPED = (400, "invalid_request_error", "invalid_request_error", "FAILED_PRECONDITION")
    BAD_GATEWAY = (502, "api_error", "server_error", "UNAVAILABLE")
    TIMEOUT = (504, "timeout_error", "server_error", "DEADLINE_EXCEEDED")

    def __init__(self, status: int, anthropic: str, openai: str, google: str) -> None:
        self.status = status
        self._anthropic = anthropic
        self._openai = openai
        self._google = google

    @property
    def is_final(self) -> bool:
        """The same request would be refused again."""
        return self.status < 500

    def body(self, api: Api, message: str) -> bytes:
        """The answer's JSON."""
        if api is Api.ANTHROPIC:
            error: dict[str, object] = {"type": self._anthropic, "message": message}
            return _json({"type": "error", "error": error})
        if api is Api.OPENAI:
            error = {"message": message, "type": self._openai, "param": None}
            return _json({"error": {**error, "code": f"gateway_{self.name.lower()}"}})
        error = {"code": self.status, "message": message, "status": self._google}
        return _json({"error": error})

    def headers(self, body: bytes) -> Headers:
        """The answer's headers."""
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        return [*headers, (b"x-should-retry", b"false")] if self.is_final else headers


def _json(content: dict[str, object]) -> bytes:
    return json.dumps(content).encode()
