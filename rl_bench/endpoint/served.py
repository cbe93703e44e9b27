"""A model that somebody serves: where it is, whether it is listed there, and what is said of it."""

import asyncio
import os
from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from rl_bench.config import EndpointConfig, Frozen
from rl_bench.endpoint.client import NO_KEY, Address, ApiClient
from rl_bench.endpoint.failures import AskError, FailureKind
from rl_bench.errors import DriverError, PreflightError
from rl_bench.gateway.routes import check_base_url
from rl_bench.key_variable import not_set, read_key

ASK_LIMIT_S = 15.0
"""For an endpoint's list of models, before a start."""
MAX_LISTED = 8
"""Models that an error names."""
_WHERE = "grader.endpoint"
_ENDPOINTS = ("/chat/completions", "/completions", "/models")


class ServedModel(Frozen):
    """What an endpoint says of a model that it serves; nobody has seen its weights.

    Attributes:
        base_url: The endpoint.
        model_id: The model's name there.
        owned_by: The server's own name, e.g. ``vllm``, or the provider's.
        root: The checkpoint that the server says it loaded; empty: it does not say.
        max_model_len: Its context length, in tokens; ``None``: it does not say.
    """

    base_url: str
    model_id: str
    owned_by: str = ""
    root: str = ""
    max_model_len: int | None = None


class _Card(BaseModel):
    id: str
    owned_by: object = None
    root: object = None
    max_model_len: object = None


class _Listing(BaseModel):
    data: list[_Card]


def identity(config: EndpointConfig) -> str:
    """Stands where a checkpoint's digest stands otherwise: of a served one none can be made."""
    return f"served:{config.model_id}@{config.base_url.rstrip('/')}"


def address_of(config: EndpointConfig, environ: Mapping[str, str] = os.environ) -> Address:
    """Where to ask, with the key.

    Raises:
        PreflightError: The address or the key cannot be one, with the cure.
    """
    _check_url(config.base_url)
    variable = config.key_variable
    if not variable:
        return Address(base_url=config.base_url)
    key = read_key(variable, where=f"{_WHERE}.key_variable", environ=environ)
    if key == NO_KEY:
        raise not_set(variable, where=f"{_WHERE}.key_variable")
    return Address(base_url=config.base_url, key=key)


async def find_served(
    config: EndpointConfig, *, client: ApiClient, address: Address
) -> ServedModel:
    """Asks the endpoint for its models, and finds the configured one among them.

    Raises:
        AskError: It is not listed, or there is no list.
    """
    content = await client.send(address, "/models", method="GET")
    try:
        cards = _Listing.model_validate_json(content).data
    except ValidationError as error:
        raise AskError(f"{config.base_url}/models lists no models") from error
    for card in cards:
        if card.id == config.model_id:
            return _served(config, card)
    others = [card.id for card in cards]
    shown = ", ".join(others[:MAX_LISTED]) + (", …" if len(others) > MAX_LISTED else "")
    raise AskError(
        f"{config.base_url} serves no model '{config.model_id}'",
        cure=f"Set {_WHERE}.model_id to one of: {shown}" if others else "Serve it there",
        kind=FailureKind.CLOSED,
    )


def ask_served(config: EndpointConfig, *, limit_s: float = ASK_LIMIT_S) -> ServedModel:
    """Finds the model before anything starts; asks once.

    Raises:
        PreflightError: It is not served there, with the cure.
    """

    async def ask() -> ServedModel:
        client = ApiClient(timeout_s=min(limit_s, config.timeout_s))
        try:
            return await find_served(config, client=client, address=address_of(config))
        finally:
            await client.close()

    try:
        return asyncio.run(ask())
    except AskError as error:
        raise PreflightError(
            f"{config.model_id} cannot be graded at {config.base_url}: {error.message}",
            cure=cure_for(error, config),
        ) from error


def cure_for(error: AskError, config: EndpointConfig) -> str:
    """What a user can do about a failure."""
    if error.cure:
        return error.cure
    if error.status in (401, 403):
        variable = config.key_variable
        return (
            f"Export a key that {config.base_url} takes as {variable}"
            if variable
            else f"Name the environment variable that holds its key with {_WHERE}.key_variable="
        )
    if error.status == 404:
        return (
            f"Correct {_WHERE}.base_url (it stands before /chat/completions, and often ends with "
            f"/v1) or {_WHERE}.model_id"
        )
    if error.kind is FailureKind.UNANSWERED:
        return (
            f"Look at the server of {config.base_url}; {_WHERE}.timeout_s and {_WHERE}.num_retries "
            "are the patience with it, grader.max_num_seqs the requests in flight"
        )
    return ""


def _served(config: EndpointConfig, card: _Card) -> ServedModel:
    length = card.max_model_len
    return ServedModel(
        base_url=config.base_url,
        model_id=card.id,
        owned_by=card.owned_by if isinstance(card.owned_by, str) else "",
        root=card.root if isinstance(card.root, str) else "",
        max_model_len=length if isinstance(length, int) and length > 0 else None,
    )


def _check_url(base_url: str) -> None:
    try:
        check_base_url(base_url)
    except DriverError as error:
        raise PreflightError(error.message, cure=error.cure.replace("driver.", f"{_WHERE}.")) from (
            None
        )
    for ending in _ENDPOINTS:
        if base_url.rstrip("/").endswith(ending):
            base = base_url.rstrip("/").removesuffix(ending)
            raise PreflightError(
                f"base_url '{base_url}' is one endpoint of an API, not its base",
                cure=f"Set {_WHERE}.base_url={base}",
            )
