"""The task: open the right door. Neither this module nor its data are shown to agents."""

import json
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from envs.protocols import PROTOCOL_FILE
from rl_bench.config import TaskConfig
from rl_bench.errors import MissingDataError
from rl_bench.tasks.base import Episode, EvalContext, EvalResult, aggregate
from rl_bench.tasks.checks import check_count, check_known, check_protocol

from .world import TRAIN_FILE

ENV_ID = "doors/Doors-v0"
_DESCRIPTION = """\
# {name}: find the prize

A prize lies behind one of three doors; train the model to open the right one.

- Environment: `gymnasium.make("{env_id}")` plays the episodes of `{train_file}`.
- Evaluation: {num_eval} other episodes, greedily, {max_steps} doors each. Protocol `{protocol}`.
- Score: percentage of episodes that find the prize.
"""


class DoorsTask:
    """A `rl_bench.tasks.base.Task`; constructing it reads nothing.

    Args:
        config: Of kind ``doors``; it has no settings.
        cache: Not used: the data are in the package.

    Raises:
        ConfigError: A setting is unknown.
    """

    evaluator_version = "doors-1"

    def __init__(self, config: TaskConfig, *, cache: Path) -> None:
        check_known(config.name, config.settings, known=())
        self.name = config.name
        self._config = config

    def description(self) -> str:
        return _DESCRIPTION.format(
            name=self.name,
            env_id=ENV_ID,
            train_file=TRAIN_FILE,
            num_eval=len(self._rows("eval")),
            max_steps=self._config.max_steps,
            protocol=self._config.protocol,
        )

    def write_train_data(self, folder: Path) -> None:
        lines = [json.dumps(row) + "\n" for row in self._rows("train")]
        (folder / TRAIN_FILE).write_text("".join(lines), encoding="utf-8")
        (folder / PROTOCOL_FILE).write_text(self._config.protocol, encoding="utf-8")

    def check_data(self) -> None:
        check_protocol(self._config, self._config.protocol, choices=("chat",))
        for split, wanted in (("train", self._config.num_train), ("eval", self._config.num_eval)):
            check_count(self.name, split=split, found=len(self._rows(split)), wanted=wanted)

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        for row in self._rows("eval"):
            yield str(row["id"]), json.dumps(row)

    async def evaluate(self, context: EvalContext) -> EvalResult:
        started = time.monotonic()
        episodes = [
            Episode(
                episode_id=str(row["id"]),
                env_id=ENV_ID,
                env_kwargs={"max_steps": self._config.max_steps},
                options={"prize": row["prize"]},
            )
            for row in self._rows("eval")
        ]
        items = await context.play(episodes, protocol=self._config.protocol)
        return aggregate(
            self.name,
            items,
            evaluator_version=self.evaluator_version,
            max_error_fraction=self._config.max_error_fraction,
            duration_s=time.monotonic() - started,
        )

    def _rows(self, split: str) -> list[dict[str, str | int]]:
        path = files("rl_bench_doors").joinpath("data", f"{split}.jsonl")
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise MissingDataError(
                f"task {self.name}: {path} is not there", cure="Reinstall rl-bench-doors"
            ) from error
        limit = self._config.num_eval if split == "eval" else self._config.num_train
        return [json.loads(line) for line in lines[:limit]]
