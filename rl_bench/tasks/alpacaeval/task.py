"""AlpacaEval 2.0: open instructions, answered once, compared with reference outputs by a judge.

The model answers greedily; for each instruction a judge sees its output and the reference's in an
order drawn by seed, and prefers one. The score is the length-controlled win rate, or the plain one.
Prompts and the reading of verdicts are `annotators`', statistics `winrate`'s.

As in the published evaluation outputs are stripped, equal ones are a draw, and win rates are over
judged items. Otherwise than there, an empty output loses unasked, since a judge with a taste for
the first place could let it win; ``settings.empty_output=judge`` asks. Unjudged items void the
result above the task's limit. Source: https://github.com/tatsu-lab/alpaca_eval.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from envs.protocol import ChatMessage
from rl_bench.checks import check_all
from rl_bench.config import TaskConfig
from rl_bench.counts import plural
from rl_bench.engine.base import Completion, GenerationRequest, Sampling
from rl_bench.errors import PreflightError
from rl_bench.judges.base import Judged, JudgeUsage
from rl_bench.tasks.alpacaeval.annotators import load_annotator, model_comes_first
from rl_bench.tasks.alpacaeval.data import (
    Instruction,
    TrainRow,
    builtin_instructions,
    builtin_train,
    read_instructions,
    read_length_model,
    read_train,
)
from rl_bench.tasks.alpacaeval.pairs import Pair, Ruling, Verdict, comparisons, figures
from rl_bench.tasks.alpacaeval.settings import (
    AlpacaEvalSettings,
    EmptyOutput,
    PromptStyle,
    ScoreKind,
)
from rl_bench.tasks.alpacaeval.winrate import (
    MIN_ITEMS,
    LengthControl,
    length_controlled_win_rate,
)
from rl_bench.tasks.base import EvalContext, EvalResult, aggregate
from rl_bench.tasks.checks import check_count, completion_endings

TRAIN_FILE = "train.jsonl"
PROMPT_FILE = "prompt.txt"
_TEMPLATES = {
    PromptStyle.CHAT: "{question}",
    PromptStyle.BASE: "### Instruction:\n{question}\n\n### Response:\n",
}
_BASE_STOP = ("\n### Instruction:",)


class AlpacaEvalTask:
    """AlpacaEval 2.0 with the judge of ``config.judge``; see `AlpacaEvalSettings`."""

    def __init__(self, config: TaskConfig, *, cache: Path | None = None) -> None:
        """``cache`` is unused: rows are read within a second.

        Raises:
            ConfigError: No judge or data folder, or a setting outside its choices.
        """
        self.name = config.name
        self._config = config
        self._settings = AlpacaEvalSettings.from_config(config)
        self._template = _TEMPLATES[self._settings.style]
        self.evaluator_version = self._settings.evaluator_version

    def description(self) -> str:
        """Markdown for the agent: goal, data, judge, metric."""
        settings = self._settings
        generators = sorted({row.generator for row in self.eval_rows})
        train = f"`{TRAIN_FILE}`, one JSON object a line with `question` and `answer`"
        empty = "loses" if settings.empty_output is EmptyOutput.LOSE else "is judged like any other"
        return (
            f"# {self.name}: instructions, compared by a judge\n\n"
            "Train the model to answer open instructions well.\n\n"
            f"- Train data: {train if settings.train_file else 'none are given'}.\n"
            f"- Evaluation: {len(self.eval_rows)} other instructions, one {settings.style.value} "
            f"prompt each, made from `{PROMPT_FILE}`; greedy decoding, at most "
            f"{self._config.max_tokens} tokens. A judge ({settings.judge.model_id}) compares each "
            f"answer with that of {', '.join(generators)}, in random order.\n"
            f"- Score: {_score_in_words(settings)}. An empty answer {empty}.\n"
        )

    def write_train_data(self, folder: Path) -> None:
        """Writes ``train.jsonl`` if there are train rows, the prompt template and a README."""
        folder.mkdir(parents=True, exist_ok=True)
        if self._settings.train_file:
            with (folder / TRAIN_FILE).open("w", encoding="utf-8") as out:
                for row in self._train_rows():
                    line = {"question": row.question, "answer": row.output}
                    out.write(json.dumps(line, ensure_ascii=False) + "\n")
        (folder / PROMPT_FILE).write_text(self._template, encoding="utf-8")
        (folder / "README.md").write_text(self.description(), encoding="utf-8")

    def check_data(self) -> None:
        """Raises `PreflightError` unless rows, tables and the judge's prompts can be read."""
        check_all(
            lambda: load_annotator(self._settings.annotator),
            lambda: self._check_count("eval", len(self.eval_rows), self._config.num_eval),
            self._check_train_rows,
            self._check_length_control,
        )

    def _check_train_rows(self) -> None:
        if self._settings.train_file:
            self._check_count("train", len(self._train_rows()), self._config.num_train)

    def _check_count(self, split: str, found: int, wanted: int | None) -> None:
        check_count(self.name, split=split, found=found, wanted=wanted, cure="Complete the data")

    def _check_length_control(self) -> None:
        model = read_length_model(self._settings.folder, self._settings.length_control)
        if self._settings.score is not ScoreKind.LC_WIN_RATE:
            return
        unknown = [row.item for row in self.eval_rows if row.item not in model.difficulty]
        if unknown and model.method is not LengthControl.LENGTH_ONLY:
            raise PreflightError(
                f"task {self.name}: length control '{model.method.value}' knows no difficulty of "
                f"{plural(len(unknown), 'instruction')}, among them number {unknown[0]}"
            )
        if len(self.eval_rows) < MIN_ITEMS:
            raise PreflightError(
                f"task {self.name}: a length-controlled win rate needs {MIN_ITEMS} instructions, "
                f"not {len(self.eval_rows)}",
                cure="Raise task.num_eval, or set task.settings.score=win_rate",
            )

    @cached_property
    def eval_rows(self) -> Sequence[Instruction]:
        """The evaluation set, in its fixed order."""
        folder = self._settings.folder
        rows = builtin_instructions() if folder is None else read_instructions(folder)
        return tuple(rows[: self._config.num_eval])

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        """Pairs of an item's id and one of its texts; see `Task.evaluation_texts`."""
        for row in self.eval_rows:
            yield self._id(row), row.text
            yield self._id(row), row.reference

    def _train_rows(self) -> list[TrainRow]:
        folder = self._settings.folder
        rows = builtin_train() if folder is None else read_train(folder, self._settings.train_file)
        return rows[: self._config.num_train]

    async def evaluate(self, context: EvalContext) -> EvalResult:
        """Asks every instruction once, greedily, and the judge about every answer."""
        started = time.monotonic()
        rows = self.eval_rows
        completions = await context.generate([self._request(row) for row in rows])
        pairs = [
            self._pair(row, completion, repeat=context.repeat)
            for row, completion in zip(rows, completions, strict=True)
        ]
        verdicts, usage = await self._judged(pairs, context)
        seconds = time.monotonic() - started
        return await asyncio.to_thread(self._result, verdicts, usage, seconds)

    def _request(self, row: Instruction) -> GenerationRequest:
        prompt = self._template.replace("{question}", row.text)
        sampling = Sampling(max_tokens=self._config.max_tokens, temperature=0.0)
        if self._settings.style is PromptStyle.BASE:
            return GenerationRequest(text=prompt, sampling=replace(sampling, stop=_BASE_STOP))
        message = ChatMessage(role="user", content=prompt)
        return GenerationRequest(messages=(message,), sampling=sampling)

    def _pair(self, row: Instruction, completion: Completion, *, repeat: int) -> Pair:
        answer = completion.text.strip()
        if answer == row.reference:
            ruling = Ruling.IDENTICAL
        elif not answer and self._settings.empty_output is EmptyOutput.LOSE:
            ruling = Ruling.EMPTY
        else:
            ruling = Ruling.JUDGE
        first = model_comes_first(row.text, seed=self._settings.order_seed, repeat=repeat)
        return Pair(row=row, completion=completion, model_first=first, ruling=ruling)

    async def _judged(
        self, pairs: Sequence[Pair], context: EvalContext
    ) -> tuple[list[Verdict], JudgeUsage]:
        annotator = load_annotator(self._settings.annotator)
        requests = [
            annotator.request(
                self._item_id(pair), instruction=pair.row.text, first=first, second=second
            )
            for pair in pairs
            if pair.ruling is Ruling.JUDGE
            for first, second in [pair.outputs]
        ]
        judged: Judged[float] = Judged(votes=())
        if requests:
            judge = context.judge(self._settings.judge)
            judged = await judge.ask(requests, parse=annotator.parse, repeat=context.repeat)
        votes = iter(judged.votes)
        verdicts = [
            Verdict.of(pair, next(votes) if pair.ruling is Ruling.JUDGE else None) for pair in pairs
        ]
        return verdicts, judged.usage

    def _item_id(self, pair: Pair) -> str:
        return self._id(pair.row)

    def _id(self, row: Instruction) -> str:
        return f"{self.name}-{row.item:04d}"

    def _result(self, verdicts: Sequence[Verdict], usage: JudgeUsage, seconds: float) -> EvalResult:
        """The score is over judged items; it is void if there are too few of them to fit."""
        metrics, why_none = figures(verdicts), "no answer was judged"
        items = [v.outcome(self._item_id(v.pair), duration_s=seconds) for v in verdicts]
        try:
            metrics |= self._length_controlled(verdicts)
        except ValueError as error:
            why_none = str(error)
        score = metrics.get(self._settings.score.value)
        result = aggregate(
            self.name,
            items,
            evaluator_version=self.evaluator_version,
            max_error_fraction=self._config.max_error_fraction,
            metrics={**metrics, **completion_endings(items), **usage.metrics()},
            duration_s=seconds,
            score=score,
        )
        if score is None:
            return replace(result, score=None, failure=result.failure or why_none)
        return result

    def _length_controlled(self, verdicts: Sequence[Verdict]) -> dict[str, float]:
        model = read_length_model(self._settings.folder, self._settings.length_control)
        rate = length_controlled_win_rate(comparisons(verdicts), model=model)
        return {
            "lc_win_rate": rate.win_rate,
            "lc_win_rate_se": rate.standard_error,
            "lc_win_rate_jackknife_se": rate.jackknife_error,
        }


def _score_in_words(settings: AlpacaEvalSettings) -> str:
    if settings.score is ScoreKind.WIN_RATE:
        return "win rate in percent"
    return (
        "length-controlled win rate in percent, which is what the win rate would be if answers "
        "were as long as those they are compared with "
        f"(method: {settings.length_control.value})"
    )
