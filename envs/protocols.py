"""The prompt protocols of the interactive tasks, by name.

`get_protocol` takes ``name`` or ``name:{json settings}``, so that a protocol with its settings is
one string that crosses processes; `protocol_spec` makes such a string.
"""

import json
from collections.abc import Callable, Mapping
from typing import cast

from envs.plugins import PROTOCOLS, find_entry, names_in
from envs.protocol import PromptProtocol
from envs.protocol_chat import ChatProtocol
from envs.protocol_react import ReactProtocol
from envs.protocol_search import SearchReactProtocol
from envs.protocol_webshop import WebShopProtocol

PROTOCOL_FILE = "protocol.txt"
"""Beside an agent's train data: the evaluation's protocol with its settings, for `get_protocol`."""

_MAKERS: Mapping[str, Callable[..., PromptProtocol]] = {
    "chat": ChatProtocol,
    "chat_rules": ChatProtocol.with_rules,
    "react": ReactProtocol.matched,
    "react_published": ReactProtocol.published,
    "search_react": SearchReactProtocol.make,
    "search_react_published": SearchReactProtocol.published,
    "webshop_react": WebShopProtocol.published,
}


def get_protocol(name: str, **settings: str) -> PromptProtocol:
    """Makes a protocol.

    Args:
        name: One of the names above or of a plug-in's, optionally followed by a colon and settings
            as a JSON object.
        settings: The protocol's own settings; they win over those in ``name``.

    Raises:
        ValueError: The name or a setting is unknown; tells the choices.
        FileNotFoundError: A file that the protocol needs is missing; tells where to get it.
        PluginBroken: The plug-in that has it is broken.
    """
    kind, _, text = name.partition(":")
    make = _maker(kind)
    given = json.loads(text) if text else {}
    try:
        return make(**{**given, **settings})
    except TypeError as error:
        raise ValueError(f"prompt protocol {kind}: {error}") from error


def _maker(kind: str) -> Callable[..., PromptProtocol]:
    entry = find_entry(PROTOCOLS, kind, own=_MAKERS)
    if entry is not None:
        return cast(Callable[..., PromptProtocol], entry.load())
    if kind not in _MAKERS:
        choices = ", ".join(names_in(PROTOCOLS, _MAKERS))
        raise ValueError(f"unknown prompt protocol {kind!r}; choices: {choices}")
    return _MAKERS[kind]


def protocol_spec(name: str, **settings: str) -> str:
    """``name`` and its settings as one string for `get_protocol`."""
    return f"{name}:{json.dumps(settings, sort_keys=True)}" if settings else name
