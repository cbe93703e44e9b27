"""ALFWorld: household tasks in text, played step by step in the real engine.

The evaluation plays every game of the evaluation split once, greedily, and scores the share that
is won within the step limit. Published setting (Agent² RL-Bench): the 134 ``valid_unseen`` games,
50 steps, 100 tokens a step, the ReAct few-shot prompt (``conf/task/alfworld.yaml``). Sources:
Shridhar et al. 2021 (ALFWorld), Yao et al. 2023 (ReAct).

Dialect: current games know ``move X to Y`` where the published few-shot prompt says ``put X in/on
Y``. Protocol ``react_published`` keeps the published text, ``react`` speaks the games' own dialect,
which is read from the games (`envs.alfworld_dialect`). Both stand in the evaluator's version.
"""

import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envs.alfworld_dialect import USAGE
from envs.alfworld_games import GENERATOR_VERSION, ROOT, TRAJ_FILE, load_game
from envs.errors import EnvironmentBroken
from envs.protocol_react import PROMPTS_FILE, prompts_path
from envs.protocols import PROTOCOL_FILE, protocol_spec
from rl_bench.checks import check_all
from rl_bench.config import DataSource, TaskConfig
from rl_bench.errors import PreflightError
from rl_bench.tasks.alfworld.data import TRAIN_SPLIT, AlfworldGames
from rl_bench.tasks.alfworld.demos import TRAIN_FILE, make_demonstrations, place_of
from rl_bench.tasks.base import (
    Episode,
    EvalContext,
    EvalResult,
    ItemOutcome,
    aggregate,
)
from rl_bench.tasks.checks import check_protocol, episode_endings, mean_steps

ENV_ID = "rl_bench/ALFWorld-v0"
PROTOCOLS = ("chat", "chat_rules", "react", "react_published")
_DESCRIPTION = """\
# {name}: household tasks in text

Train the model to solve household tasks by typing commands: find things, carry them, clean, heat or
cool them, look at them under a lamp.

- Train games: {num_train}, as `{root}/{split}/<task>/<trial>/game.tw-pddl`. They run in the
  environment `{env_id}`: `gymnasium.make("envs:{env_id}", max_steps={max_steps})` finds
  them through `$DATA_PATH`. A reset draws one by its seed, `options={{"episode": index}}` takes the
  one at that place in sorted order, `options={{"game": path}}` that file. `info` holds
  `available_actions`, `won`, `dialect`, `task_type` and `goal`; the reward is 1 on the step that
  wins. Reuse one environment.
- Demonstrations: `{train_file}`, one JSON object a line with `game`, `task_type`, `goal` and
  `turns`, a list of `observation` and `action`. Every one of them wins.
- Evaluation: {num_eval} other games in other rooms, each played once, greedily, at most
  {max_steps} steps, at most {max_tokens} tokens a step.
- Prompt: protocol `{protocol}`. `envs.protocols.get_protocol({spec!r})` renders it,
  given the turns so far, the observation and `info`; `{protocol_file}` holds its argument.
- Commands: an object is put down by `{usage}`, and by no other wording. An unknown command is
  answered "Nothing happens.", one that begins with `think:` is answered "OK."; both cost a step.
- Score: percentage of games won.
"""


class AlfworldTask:
    """The task; see the module. Constructing it reads nothing.

    Args:
        config: Of kind ``alfworld``; ``settings`` as in `AlfworldSettings`.
        cache: Folder for generated games, unpacked archives, translations and demonstrations.

    Raises:
        ConfigError: A setting or the protocol's name is wrong.
    """

    def __init__(self, config: TaskConfig, *, cache: Path) -> None:
        self.name = config.name
        self._config = config
        self._cache = cache.expanduser() / "alfworld"
        self._games = AlfworldGames(config, cache=cache)

    @property
    def evaluator_version(self) -> str:
        """Names the protocol, the games' dialect and, of generated games, the generator.

        Raises:
            PreflightError: Data are missing.
        """
        generator = f" generator-{GENERATOR_VERSION}" if self._is_builtin else ""
        dialects = "+".join(self._games.dialects())
        return f"alfworld-2 {self._config.protocol} dialect-{dialects}{generator}"

    @property
    def protocol(self) -> str:
        """The protocol and its settings, as `envs.protocols.get_protocol` takes them."""
        name, settings = self._config.protocol, self._games.settings
        if not _is_react(name):
            return name
        given = {"prompts": self._prompts, "header": settings.react_header}
        return protocol_spec(name, **{k: v for k, v in given.items() if v})

    @property
    def _prompts(self) -> str:
        """The few-shot file that is set, or lies where `rl_bench.prepare` puts it; else empty."""
        if self._games.settings.react_prompts:
            return self._games.settings.react_prompts
        data = self._config.data_path
        path = None if data is None else data.expanduser().parent / PROMPTS_FILE
        return str(path) if path is not None and path.is_file() else ""

    @property
    def _agents_protocol(self) -> str:
        """The same for an agent, who finds the examples in its own data folder."""
        header = self._games.settings.react_header
        name = self._config.protocol
        return protocol_spec(name, header=header) if _is_react(name) and header else name

    def description(self) -> str:
        """Markdown for the agent's ``description.md``."""
        config = self._config
        return _DESCRIPTION.format(
            name=self.name,
            num_eval=len(self._games.evaluation()),
            num_train=self._games.count_train(),
            max_steps=config.max_steps,
            max_tokens=config.max_tokens,
            protocol=config.protocol,
            spec=self._agents_protocol,
            usage="`, or by `".join(USAGE[dialect] for dialect in self._games.dialects()),
            env_id=ENV_ID,
            root=ROOT,
            split=TRAIN_SPLIT,
            train_file=TRAIN_FILE,
            protocol_file=PROTOCOL_FILE,
        )

    def write_train_data(self, folder: Path) -> None:
        """Writes train games, demonstrations, protocol, few-shot examples if used, and a README.

        The games keep the public layout below ``folder/json_2.1.1/train``. A line of
        ``train.jsonl`` has ``game`` (path below ``folder``), ``task_type``, ``goal`` and ``turns``,
        a list of ``{"observation", "action"}``.

        Raises:
            PreflightError: Data are missing.
        """
        folder.mkdir(parents=True, exist_ok=True)
        games = self._games.train()
        for game in games:
            trial = folder / place_of(game).parent
            trial.mkdir(parents=True, exist_ok=True)
            for name in (game.name, TRAJ_FILE):
                if (game.parent / name).is_file():
                    shutil.copyfile(game.parent / name, trial / name)
        demonstrations = make_demonstrations(
            games,
            settings=self._games.settings,
            max_steps=self._config.max_steps,
            cache=self._cache,
        )
        shutil.copyfile(demonstrations, folder / TRAIN_FILE)
        if _is_react(self._config.protocol):
            examples = folder / PROMPTS_FILE
            examples.parent.mkdir(exist_ok=True)
            shutil.copyfile(prompts_path(self._prompts), examples)
        (folder / PROTOCOL_FILE).write_text(self._agents_protocol, encoding="utf-8")
        (folder / "README.md").write_text(self.description(), encoding="utf-8")

    def check_data(self) -> None:
        """Counts the games, reads the prompts, and plays one game's own solution to the end.

        Raises:
            PreflightError: Something is missing or does not work; names what, where and the cure.
        """
        games: list[Path] = []
        check_all(
            lambda: check_protocol(self._config, self.protocol, choices=PROTOCOLS),
            lambda: games.extend(self._games.evaluation()),
            self._games.count_train,
        )
        self._self_test(games[0])

    async def evaluate(self, context: EvalContext) -> EvalResult:
        """Plays the evaluation games and aggregates.

        Raises:
            PreflightError: Data are missing.
        """
        started = time.monotonic()
        items = await context.play(self.episodes(), protocol=self.protocol)
        return aggregate(
            self.name,
            items,
            evaluator_version=self.evaluator_version,
            max_error_fraction=self._config.max_error_fraction,
            metrics=_metrics(items),
            duration_s=time.monotonic() - started,
        )

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        """Pairs of a game's id and a text: what a player reads first, and the room as data.

        Raises:
            PreflightError: Games are missing or broken.
        """
        from envs.alfworld import ALFWorldEnv

        env = ALFWorldEnv(max_steps=1, cache_dir=str(self._games.translations))
        try:
            for game in self._games.evaluation():
                observation, _ = env.reset(options={"game": str(game)})
                yield _game_id(game), observation
                yield _game_id(game), load_game(game)["pddl_problem"]
        except EnvironmentBroken as error:
            raise PreflightError(f"task {self.name}: {error}") from error
        finally:
            env.close()

    def episodes(self) -> list[Episode]:
        """The evaluation set as episodes, in its fixed order."""
        return [
            Episode(
                episode_id=_game_id(game),
                env_id=ENV_ID,
                env_kwargs=self._env_kwargs(),
                options={"game": str(game)},
                seed=index,
            )
            for index, game in enumerate(self._games.evaluation())
        ]

    @property
    def _is_builtin(self) -> bool:
        return self._config.source is DataSource.BUILTIN

    def _env_kwargs(self) -> dict[str, object]:
        return {
            "max_steps": self._config.max_steps,
            "cache_dir": str(self._games.translations),
        }

    def _self_test(self, game: Path) -> None:
        """The engine, its version and the games fit together when a known plan wins."""
        from envs.alfworld import ALFWorldEnv
        from envs.alfworld_expert import expert_trajectory

        try:
            env = ALFWorldEnv(max_steps=100, cache_dir=str(self._games.translations))
            try:
                expert_trajectory(env, game, expert="walkthrough")
            finally:
                env.close()
        except EnvironmentBroken as error:
            raise PreflightError(
                f"task {self.name}: self-test failed: {error}",
                cure="Install the pinned alfworld and textworld, and use games of an ALFWorld "
                "release (2.1.1 and 2.1.2 are known)",
            ) from error


def _game_id(game: Path) -> str:
    return "/".join(game.parts[-4:-1])


def _is_react(protocol: str) -> bool:
    return protocol.startswith("react")


def _metrics(items: Sequence[ItemOutcome]) -> Mapping[str, float]:
    """Success in percent for each task type, how many did not fit the context, and mean steps."""
    by_type: defaultdict[str, list[float]] = defaultdict(list)
    for item in items:
        task_type = item.item_id.split("/")[1].partition("-")[0]
        by_type[task_type].append(item.score or 0.0)
    metrics = {f"success/{t}": 100.0 * sum(v) / len(v) for t, v in sorted(by_type.items())}
    return metrics | episode_endings(items) | mean_steps(items)
