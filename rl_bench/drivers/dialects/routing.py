"""Which request a path means, API by API; and the lists of models."""

from collections.abc import Mapping
from dataclasses import dataclass

from rl_bench.config import Api
from rl_bench.drivers.dialects import anthropic, gemini
from rl_bench.drivers.dialects.anthropic import Messages
from rl_bench.drivers.dialects.base import Exchange, Json, Stamp
from rl_bench.drivers.dialects.chat import ChatCompletion
from rl_bench.drivers.dialects.gemini import GenerateContent, StreamForm
from rl_bench.drivers.dialects.responses import ResponsesCall

_RELEASED = "2026-01-01T00:00:00Z"
_RELEASED_S = 1_767_225_600
_CONTEXT_TOKENS = 200_000
_MAX_OUTPUT_TOKENS = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request that may be answered.

    Attributes:
        method: ``GET`` or ``POST``.
        path: Below the API's base, without a slash at its beginning.
        query: Its query.
        body: Its body; empty for ``GET``.
        stamp: Marks the answer.
        model_id: The model that lists name.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: Mapping[str, object]
    stamp: Stamp
    model_id: str


def route(api: Api, wanted: Wanted) -> Exchange | Json | None:
    """What a request asks for.

    Returns:
        A request to the model; or the answer of any other; or None, where there is nothing.

    Raises:
        MalformedError: It is not one of this API.
    """
    match api:
        case Api.ANTHROPIC:
            return _anthropic(wanted)
        case Api.OPENAI:
            return _openai(wanted)
        case Api.GOOGLE:
            return _google(wanted)


def _anthropic(wanted: Wanted) -> Exchange | Json | None:
    match wanted.method, wanted.path:
        case "POST", "v1/messages":
            return Messages(wanted.body, wanted.stamp)
        case "POST", "v1/messages/count_tokens":
            return anthropic.count_body(wanted.body)
    name = wanted.model_id
    model: Json = {"type": "model", "id": name, "display_name": name, "created_at": _RELEASED}
    ends: Json = {"has_more": False, "first_id": name, "last_id": name}
    return _listed(wanted, "v1/models", model, listing={"data": [model], **ends})


def _openai(wanted: Wanted) -> Exchange | Json | None:
    match wanted.method, wanted.path:
        case "POST", "responses":
            return ResponsesCall(wanted.body, wanted.stamp)
        case "POST", "chat/completions":
            return ChatCompletion(wanted.body, wanted.stamp)
    model: Json = {"id": wanted.model_id, "object": "model", "created": _RELEASED_S}
    model["owned_by"] = "rl_bench"
    return _listed(wanted, "models", model, listing={"object": "list", "data": [model]})


def _google(wanted: Wanted) -> Exchange | Json | None:
    version, _, path = wanted.path.partition("/")
    name, _, method = path.removeprefix("models/").partition(":")
    if wanted.method == "POST" and path.startswith("models/") and name:
        match method:
            case "generateContent":
                return GenerateContent(wanted.body, wanted.stamp, model=name)
            case "streamGenerateContent":
                form = StreamForm.SSE if wanted.query.get("alt") == "sse" else StreamForm.ARRAY
                return GenerateContent(wanted.body, wanted.stamp, model=name, streams_as=form)
            case "countTokens":
                return gemini.count_body(wanted.body)
    model: Json = {
        "name": f"models/{wanted.model_id}",
        "version": "1",
        "displayName": wanted.model_id,
        "inputTokenLimit": _CONTEXT_TOKENS,
        "outputTokenLimit": _MAX_OUTPUT_TOKENS,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    return _listed(wanted, f"{version}/models", model, listing={"models": [model]})


def _listed(wanted: Wanted, path: str, model: Json, *, listing: Json) -> Json | None:
    """The list of models, or the one model in it."""
    if wanted.method not in ("GET", "HEAD"):
        return None
    if wanted.path == path:
        return listing
    return model if wanted.path == f"{path}/{wanted.model_id}" else None
