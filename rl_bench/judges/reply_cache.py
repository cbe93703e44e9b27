"""Replies that held a vote, kept: the same question to the same judge is paid for once.

A key covers everything that decides an answer. The vote's number and the repetition are part of it,
so that a judge's noise is measured on answers of its own and not on copies.
"""

import logging
from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from envs.text_store import TextStore, key_of
from rl_bench.judges.base import JudgeReply

LOG = logging.getLogger(__name__)

VERSION = 1
"""Of what is kept."""
_REPLIES: TypeAdapter[JudgeReply] = TypeAdapter(JudgeReply)


class ReplyCache:
    """Replies by what was asked of whom; shared by the processes of a machine."""

    def __init__(self, store: TextStore) -> None:
        self._store = store

    def get(self, key: str) -> JudgeReply | None:
        """The reply under ``key``, if there is a good one."""
        text = self._store.get(key)
        if text is None:
            return None
        try:
            return _REPLIES.validate_json(text)
        except ValidationError as error:
            LOG.warning("%s: the reply %s is not readable: %s", self._store.path, key, error)
            return None

    def put(self, key: str, reply: JudgeReply) -> None:
        """Keeps ``reply`` under ``key``."""
        self._store.put(key, _REPLIES.dump_json(reply).decode())

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        self._store.close()


def reply_key(body: Mapping[str, object], *, identity: str, vote: int, repeat: int) -> str:
    """The key of a reply.

    Args:
        body: The whole request, model and sampling parameters included.
        identity: Of the endpoint.
        vote: 0 for the first vote on an item.
        repeat: 0 for a checkpoint's first grading.
    """
    return key_of(
        {
            "version": VERSION,
            "endpoint": identity,
            "body": body,
            "vote": vote,
            "repeat": repeat,
        }
    )
