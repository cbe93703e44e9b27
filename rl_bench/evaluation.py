"""What an evaluation without an agent consists of, and what is kept of it.

`plan_evaluation` reads the words of `rl_bench.evaluate`: each task is composed as a sweep composes
it, so that a checkpoint is graded exactly as a sweep grades a baseline. `EvaluationRecord` is what
a verdict leaves on disk. Grading itself is `actors.evaluation_driver`.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rl_bench.checkpoint import inspect
from rl_bench.compose import Composed, compose
from rl_bench.compose_errors import key_in_a_group
from rl_bench.config import (
    NAME_PATTERN,
    EndpointConfig,
    Experiment,
    Frozen,
    GraderConfig,
    ModelConfig,
    RunSpec,
    TaskConfig,
)
from rl_bench.endpoint.served import ServedModel
from rl_bench.errors import ConfigError, SinkError, SubmissionError
from rl_bench.events import Evaluation
from rl_bench.nearest import did_you_mean
from rl_bench.option_files import groups
from rl_bench.paths import EvaluationPaths
from rl_bench.plan import expand
from rl_bench.preflight import Check, Verdict
from rl_bench.record_schema import Place
from rl_bench.records import BASELINE_ID, ITEMS
from rl_bench.run_records import item_batch

FOLDER = "evaluations"
"""Below the results' folder."""
KEYS = ("task", "model", "checkpoint", "name", "grader", "cluster", "paths", "options", "dry_run")
_TASK_OPTION = "options.task."
MAX_NAME_PART = 32
"""Of a made name, from a served model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """One checkpoint and the tasks that it is to be graded on.

    Attributes:
        specs: One a task: the run whose baseline this is.
        checkpoint: The folder to grade; ``None``: the base model itself, or a served one.
        names_model: Whether ``model=`` was given; if not, nothing is known of a served model's.
        experiment: What the tasks share: graders, cluster, folders.
    """

    name: str
    specs: tuple[RunSpec, ...]
    checkpoint: Path | None
    experiment: Experiment
    dry_run: bool
    names_model: bool

    @property
    def tasks(self) -> tuple[TaskConfig, ...]:
        """The tasks, in the order that they were named in."""
        return tuple(spec.tasks[0] for spec in self.specs)

    @property
    def model(self) -> ModelConfig:
        """The base model."""
        return self.specs[0].model

    @property
    def endpoint(self) -> EndpointConfig | None:
        """Where the model to grade is served; ``None``: it is loaded."""
        return self.experiment.grader.endpoint

    @property
    def subject(self) -> str:
        """What is graded, in words."""
        if self.endpoint is not None:
            return f"{self.endpoint.model_id} as served at {self.endpoint.base_url}"
        return str(self.checkpoint or self.model.name)

    @property
    def paths(self) -> EvaluationPaths:
        """Where it is kept."""
        return EvaluationPaths(self.experiment.paths.results / FOLDER / self.name)


class EvaluationRecord(Frozen):
    """A line of ``evaluations.jsonl``: a verdict and all that fixes it.

    Attributes:
        model: The base model; of a served one, what ``model=`` claimed, if it was given.
        checkpoint: The graded folder; empty for a served model.
        content_hash: Of the checkpoint; empty for a served model, whose content nobody has seen.
        served: The served model, as its endpoint lists it.
        evaluation: Less its items, which are in their table.
    """

    name: str
    time_utc: str
    model: ModelConfig | None
    checkpoint: str
    content_hash: str
    served: ServedModel | None = None
    task: TaskConfig
    grader: GraderConfig
    evaluation: Evaluation


def plan_evaluation(words: Sequence[str], *, config_dirs: Sequence[Path] = ()) -> EvaluationPlan:
    """Reads a command line.

    Args:
        words: ``task=NAME`` or ``task=[A,B]``, and overrides. ``task.KEY=VALUE`` holds for every
            task, ``options.task.NAME.KEY=VALUE`` for one.
        config_dirs: More folders with config groups.

    Raises:
        ConfigError: With the word, the choices and the cure.
    """
    given = [_pair(word) for word in words]
    names = _task_names(given, config_dirs=config_dirs)
    own = {key: value for key, value in given if key in {"checkpoint", "name"}}
    shared = [(k, v) for k, v in given if k not in {"task", "checkpoint", "name"}]
    composed = [_composed(name, shared, config_dirs=config_dirs) for name in names]
    specs = tuple(spec for each in composed for spec in expand(each.experiment))
    endpoint = composed[0].experiment.grader.endpoint
    if endpoint is not None and "checkpoint" in own:
        raise ConfigError(
            f"checkpoint={own['checkpoint']} cannot be loaded where {endpoint.model_id} is served",
            cure="Leave it out, or choose grader=cpu or grader=gpu",
        )
    return EvaluationPlan(
        name=_name(own.get("name"), specs, endpoint),
        specs=specs,
        checkpoint=_folder(own["checkpoint"]) if "checkpoint" in own else None,
        experiment=_for_grading(composed[0].experiment, num_tasks=len(specs)),
        dry_run=composed[0].dry_run,
        names_model=any(key.partition(".")[0] == "model" for key, _ in shared),
    )


def own_checks(plan: EvaluationPlan) -> list[Check]:
    """Checks ``name=`` and, as far as its files tell without the base model, ``checkpoint=``."""
    return [_name_check(plan), *([_checkpoint_check(plan.checkpoint)] if plan.checkpoint else [])]


def _checkpoint_check(folder: Path) -> Check:
    try:
        inspect(folder)
    except SubmissionError as error:
        return Check(
            name="checkpoint",
            verdict=Verdict.FAILED,
            detail=f"{folder} cannot be graded: {error.message}",
            cure=error.cure,
        )
    return Check(name="checkpoint", verdict=Verdict.OK, detail=str(folder))


def _name_check(plan: EvaluationPlan) -> Check:
    """Whether the evaluation's folder is new: nothing is ever written over."""
    root = plan.paths.root
    if root.exists():
        return Check(
            name=f"name {plan.name}",
            verdict=Verdict.FAILED,
            detail=f"{root} exists",
            cure="Choose another name=",
        )
    return Check(name=f"name {plan.name}", verdict=Verdict.OK, detail="new")


def save_record(paths: EvaluationPaths, record: EvaluationRecord) -> None:
    """Writes the items' table and then, when it is whole, the record's line.

    Raises:
        SinkError: The disk refused.
    """
    evaluation = record.evaluation
    place = Place(run_id=record.name, sweep=FOLDER, attempt=0)
    table = pa.Table.from_batches([item_batch(place, BASELINE_ID, evaluation)], schema=ITEMS)
    path = paths.items(evaluation.task)
    line = record.model_dump_json(exclude={"evaluation": {"items"}}) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, compression="zstd")
        with paths.evaluations.open("a", encoding="utf-8") as out:
            out.write(line)
            out.flush()
            os.fsync(out.fileno())
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"the evaluation of {evaluation.task} cannot be kept: {error}") from error


def _pair(word: str) -> tuple[str, str]:
    key, mark, value = word.partition("=")
    key = key.lstrip("+")
    if not mark:
        raise ConfigError(f"'{word}' has no value", cure=f"Write task={word}, or KEY=VALUE")
    if key.partition(".")[0] not in KEYS or (
        key.startswith("options") and not key.startswith(_TASK_OPTION)
    ):
        meant = key_in_a_group(key)
        is_here = meant is not None and meant.partition(".")[0] in KEYS
        raise ConfigError(
            f"'{key}' is no part of an evaluation",
            cure=did_you_mean(key.partition(".")[0], KEYS, meant=meant if is_here else None),
        )
    return key, value


def _folder(value: str) -> Path:
    folder = Path(value).expanduser().absolute()
    if not value or not folder.is_dir():
        raise ConfigError(
            f"checkpoint={value}: no such folder", cure="Name the folder of a whole checkpoint"
        )
    return folder


def _task_names(
    given: Sequence[tuple[str, str]], *, config_dirs: Sequence[Path]
) -> tuple[str, ...]:
    listed = [value.strip().strip("[]").split(",") for key, value in given if key == "task"]
    names = dict.fromkeys(name.strip(" '\"") for name in (listed[-1] if listed else ()))
    names.pop("", None)
    if not names:
        options = groups(config_dirs=config_dirs)["task"]
        raise ConfigError(
            "no task is named", cure=f"Write task=NAME or task=[A,B]: {', '.join(options)}"
        )
    for key, _ in given:
        name = key.removeprefix(_TASK_OPTION).partition(".")[0]
        if key.startswith(_TASK_OPTION) and name not in names:
            raise ConfigError(
                f"override '{key}' changes task '{name}', which is not evaluated",
                cure=f"Tasks: {', '.join(names)}",
            )
    return tuple(names)


def _composed(
    task: str, shared: Sequence[tuple[str, str]], *, config_dirs: Sequence[Path]
) -> Composed:
    """The experiment of one task; its own overrides come after those of all tasks."""
    mine = f"{_TASK_OPTION}{task}."
    general = [f"{key}={value}" for key, value in shared if not key.startswith(_TASK_OPTION)]
    own = [
        f"task.{key.removeprefix(mine)}={value}" for key, value in shared if key.startswith(mine)
    ]
    words = ["agent=noop", "driver=none", f"task={task}", *general, *own]
    return compose(words, config_dirs=config_dirs)


def _for_grading(experiment: Experiment, *, num_tasks: int) -> Experiment:
    """No agent takes resources, and no grader waits idle on GPUs."""
    grader, cluster = experiment.grader, experiment.cluster
    num_graders = min(grader.num_graders, num_tasks)
    return experiment.model_copy(
        update={
            "grader": grader.model_copy(update={"num_graders": num_graders}),
            "cluster": cluster.model_copy(update={"gpus_per_run": 0.0}),
        }
    )


def _name(given: str | None, specs: Sequence[RunSpec], endpoint: EndpointConfig | None) -> str:
    if given is None:
        tasks = specs[0].tasks[0].name if len(specs) == 1 else f"{len(specs)}tasks"
        model = specs[0].model.name if endpoint is None else _as_name(endpoint.model_id)
        return f"{model}-{tasks}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if not re.fullmatch(NAME_PATTERN, given):
        raise ConfigError(
            f"name '{given}' cannot be a folder's", cure="Use letters, digits, '_', '.' and '-'"
        )
    return given


def _as_name(model_id: str) -> str:
    """The last part of a served model's name, which may be a path, as a part of a folder's."""
    last = model_id.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", last).strip("_.-")[:MAX_NAME_PART] or "served"
