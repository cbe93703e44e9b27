"""One attempt at one question: asks it in the endpoint's dialect, and reads the reply.

Attempts are repeated by `rl_bench.judges.pool`.
"""

from collections.abc import Mapping
from typing import Any

from rl_bench.config import JudgeConfig
from rl_bench.endpoint.client import ApiClient
from rl_bench.endpoint.dialect import Dialect
from rl_bench.endpoint.failures import AskError, FailureKind
from rl_bench.judges.account import Account
from rl_bench.judges.base import JudgeReply, JudgeRequest
from rl_bench.judges.endpoint import Endpoint
from rl_bench.judges.wire import count_tokens, read_reply, read_response, request_body

SUBSTITUTES: Mapping[str, str | None] = {
    "max_tokens": "max_completion_tokens",
    "temperature": None,
    "seed": None,
    "response_format": None,
}
"""Parameters that verdicts can do without, and what says the same."""


class ChatClient:
    """Asks one model at one endpoint; safe for concurrent use within one event loop."""

    def __init__(self, config: JudgeConfig, endpoint: Endpoint) -> None:
        self._config = config
        self._endpoint = endpoint
        self._dialect = Dialect(f"judge {config.name}", substitutes=SUBSTITUTES)
        self._client = ApiClient(timeout_s=config.timeout_s)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was changed to suit the endpoint."""
        return self._dialect.notes

    def body(self, request: JudgeRequest, *, seed: int) -> dict[str, Any]:
        """The JSON body that asks ``request``, before the endpoint's dialect."""
        config = self._config
        return request_body(
            request,
            model=config.model_id,
            max_tokens=config.max_tokens or request.max_tokens,
            temperature=request.temperature if config.temperature is None else config.temperature,
            # Other endpoints do not promise much for a seed, and newer ones refuse it.
            seed=seed if config.kind == "vllm" else None,
        )

    async def ask(self, request: JudgeRequest, *, seed: int, account: Account) -> JudgeReply:
        """The reply to ``request``, within the config's ``timeout_s``; the server's start apart.

        Raises:
            AskError: There is none, or not of the kind that was asked for.
        """
        address = await self._endpoint.address()
        body = self.body(request, seed=seed)
        content = await self._client.converse(
            address,
            "/chat/completions",
            body,
            dialect=self._dialect,
            on_request=account.count_request,
        )
        try:
            return _read(content, request, body, account)
        except AskError:
            raise
        except Exception as error:  # a boundary: no answer may end an evaluation
            why = f"the answer cannot be read: {type(error).__name__}: {error}"
            raise AskError(why, kind=FailureKind.UNREADABLE) from error

    async def close(self) -> None:
        """Ends the connections; safe to call twice."""
        await self._client.close()


def _read(
    content: bytes, request: JudgeRequest, body: Mapping[str, Any], account: Account
) -> JudgeReply:
    response = read_response(content)
    num_prompt_tokens, num_tokens = count_tokens(response, body)
    account.add(num_prompt_tokens, num_tokens)
    return read_reply(response, request, num_prompt_tokens=num_prompt_tokens, num_tokens=num_tokens)
