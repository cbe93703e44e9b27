"""A model that is served already, behind any OpenAI-compatible API, as an engine.

Nothing is loaded: `load` makes sure that the endpoint lists the configured model, and refuses
whatever claims to be a checkpoint. What did not come through is asked again with growing waits, for
as long as the config has patience; what then has no answer is a `GraderError`, never a score.

One instance belongs to one event loop.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rl_bench.config import EndpointConfig, GraderConfig
from rl_bench.endpoint.client import FIRST_WAIT_S, Address, ApiClient
from rl_bench.endpoint.dialect import Dialect
from rl_bench.endpoint.failures import AskError
from rl_bench.endpoint.gate import Gate
from rl_bench.endpoint.persist import persist
from rl_bench.endpoint.served import ServedModel, address_of, cure_for, find_served, identity
from rl_bench.engine.base import (
    Completion,
    GenerationRequest,
    LoadKind,
    LoadReport,
    OnCompletion,
    ignore_completion,
)
from rl_bench.engine.context_overflow import read_answer_limit, read_overflow
from rl_bench.engine.openai_wire import (
    SUBSTITUTES,
    path_of,
    read_completion,
    request_body,
    too_long,
)
from rl_bench.errors import GraderError, PreflightError

LOG = logging.getLogger(__name__)


class OpenaiEngine:
    """`rl_bench.engine.base.Engine` over a served model.

    Args:
        config: Which, and how patiently it is asked.
        max_concurrency: Requests in flight.
        first_wait_s: Before the second attempt at a request.
    """

    def __init__(
        self, config: EndpointConfig, *, max_concurrency: int, first_wait_s: float = FIRST_WAIT_S
    ) -> None:
        self._config = config
        self._first_wait_s = first_wait_s
        self._name = f"served model {config.model_id}"
        self._client = ApiClient(timeout_s=config.timeout_s)
        self._dialect = Dialect(self._name, substitutes=SUBSTITUTES)
        self._gate = Gate(self._name)
        self._slots = asyncio.Semaphore(max_concurrency)
        self._served: ServedModel | None = None
        self._address: Address | None = None

    @classmethod
    def from_config(cls, grader: GraderConfig) -> Self:
        """The engine of a pool with ``engine=openai``."""
        assert grader.endpoint is not None
        return cls(grader.endpoint, max_concurrency=grader.max_num_seqs)

    def __repr__(self) -> str:
        return f"OpenaiEngine({self._config.model_id} at {self._config.base_url})"

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        """Makes sure that the model is served; see `Engine.load`.

        Args:
            snapshot: Not looked at.
            content_hash: `rl_bench.endpoint.served.identity` of the model.

        Raises:
            GraderError: Another model is asked for, or the endpoint does not serve this one.
        """
        started = time.monotonic()
        if content_hash != identity(self._config):
            raise GraderError(
                f"{snapshot} cannot be graded: a served model takes no checkpoint",
                cure="Grade checkpoints with grader.engine=vllm",
            )
        self._gate = Gate(self._name)
        try:
            address = address_of(self._config)
            self._served = await persist(
                lambda _number: find_served(self._config, client=self._client, address=address),
                gate=self._gate,
                num_retries=self._config.num_retries,
                first_wait_s=self._first_wait_s,
            )
        except PreflightError as error:
            raise GraderError(error.message, cure=error.cure) from error
        except AskError as error:
            raise self._explained(error) from error
        self._address = address
        return LoadReport(kind=LoadKind.RESIDENT, seconds=time.monotonic() - started)

    async def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        """Answers ``requests`` concurrently; see `Engine.generate`.

        Raises:
            GraderError: Nothing is loaded, or a request has no answer; the others are given up.
        """
        if self._served is None or self._address is None:
            raise GraderError("no model is loaded", cure="load one before generating")
        served, address = self._served, self._address

        async def answer(index: int, request: GenerationRequest) -> Completion:
            async with self._slots:
                completion = await self._answer(request, served, address)
            on_completion(index, completion)
            return completion

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(answer(index, request))
                    for index, request in enumerate(requests)
                ]
        except* AskError as failures:
            first = next(each for each in failures.exceptions if isinstance(each, AskError))
            failure = self._explained(first)
        else:
            return [task.result() for task in tasks]
        raise failure

    async def close(self) -> None:
        """Ends the connections; safe to call twice."""
        self._served = self._address = None
        await self._client.close()

    async def _answer(
        self, request: GenerationRequest, served: ServedModel, address: Address
    ) -> Completion:
        """One completion; what a server does not take as it is asked for is asked for smaller."""
        max_tokens = request.sampling.max_tokens
        if served.max_model_len is not None:
            max_tokens = min(max_tokens, served.max_model_len)
        while True:
            try:
                return await self._ask(request, max_tokens, served, address)
            except AskError as error:
                overflow = read_overflow(error)
                fits = read_answer_limit(error) if overflow is None else overflow.room
                # Where prompt and answer together are too long, as a local engine would do.
                if fits and fits < max_tokens:
                    max_tokens = fits
                elif overflow is not None and not fits:
                    limit = overflow.limit or served.max_model_len or 0
                    return too_long(overflow.num_prompt_tokens, limit=limit)
                else:
                    raise

    async def _ask(
        self, request: GenerationRequest, max_tokens: int, served: ServedModel, address: Address
    ) -> Completion:
        body = request_body(
            request,
            model_id=served.model_id,
            max_tokens=max_tokens,
            owned_by=served.owned_by,
        )

        async def attempt(_number: int) -> Completion:
            content = await self._client.converse(
                address, path_of(request), body, dialect=self._dialect
            )
            self._gate.answered()
            return read_completion(
                content, request, max_tokens=max_tokens, max_model_len=served.max_model_len
            )

        return await persist(
            attempt,
            gate=self._gate,
            num_retries=self._config.num_retries,
            first_wait_s=self._first_wait_s,
        )

    def _explained(self, error: AskError) -> GraderError:
        return GraderError(
            f"{self._name} at {self._config.base_url}: {error.message}",
            cure=cure_for(error, self._config),
        )
