"""The two AlpacaEval judges: what is asked about a pair of outputs, and how an answer is read.

Prompts, function, token limit and temperature are those of the installed package ``alpaca-eval``,
read from its files and never imported: an import reads ``.env`` into the environment, and needs
parts that setuptools has dropped. Filling in, reading answers and the order are ours, by the
package's rules, with two exceptions: a template is cut into messages *before* it is filled, so
that an output cannot open a message of its own, and a ranking that contradicts itself is no vote.

The judge sees two outputs, ``m`` first and ``M`` second, and a vote is the probability that the
first is better. `model_comes_first` draws which of the two is the model's.
"""

import json
import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from envs.protocol import ChatMessage
from rl_bench import plugins
from rl_bench.errors import PreflightError
from rl_bench.judges.base import FunctionSpec, JudgeReply, JudgeRequest

_PACKAGE = "alpaca_eval"
_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)
_SLOT = re.compile(r"\{(instruction|output_1|output_2)\}")


class AnnotatorKind(StrEnum):
    """The names that a judge's config uses for this project's own."""

    WEIGHTED_LOGPROBS = "weighted_logprobs"
    """AlpacaEval 2.0's own: one token, and the probabilities of both candidates for it."""
    FUNCTION_CALL = "function_call"
    """The ranking function that Agent2 RL-Bench has gpt-5.2 call."""


_PACKAGED: Mapping[AnnotatorKind, str] = {
    AnnotatorKind.WEIGHTED_LOGPROBS: "weighted_alpaca_eval_gpt4_turbo",
    # Agent2 RL-Bench's annotators_gpt52_fn is this one with another model.
    AnnotatorKind.FUNCTION_CALL: "alpaca_eval_gpt4_turbo_fn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """One way to ask about a pair.

    Attributes:
        turns: The prompt's messages, with slots for the instruction and both outputs.
        parse: The vote in an answer, in [0, 1]: how sure it is that the first output is better.
            Raises `ValueError` if there is none.
    """

    turns: tuple[ChatMessage, ...]
    max_tokens: int
    temperature: float
    parse: Callable[[JudgeReply], float]
    top_logprobs: int = 0
    function: FunctionSpec | None = None

    def request(self, item_id: str, *, instruction: str, first: str, second: str) -> JudgeRequest:
        """Asks which of two outputs is better."""
        values = {"instruction": instruction, "output_1": first, "output_2": second}
        messages = tuple(
            ChatMessage(role=turn["role"], content=_filled(turn["content"], values))
            for turn in self.turns
        )
        return JudgeRequest(
            item_id=item_id,
            messages=messages,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_logprobs=self.top_logprobs,
            function=self.function,
        )


def _filled(template: str, values: Mapping[str, str]) -> str:
    """In one pass: a value that looks like a slot stays as it is."""
    return _SLOT.sub(lambda slot: values[slot.group(1)], template)


def annotator_name(name: str) -> str:
    """The same name, if it is one of an annotator.

    Raises:
        ConfigError: There is none, which tells the choices; or the plug-in that has it is broken.
    """
    plugins.load_annotator("alpacaeval", name, own=tuple(AnnotatorKind))
    return name


def load_annotator(name: str) -> Annotator:
    """An annotator: of a plug-in, or read from the installed package's files.

    Raises:
        ConfigError: There is none, which tells the choices; or the plug-in that has it is broken.
        PreflightError: The package is missing, or its files are not as this version knows them.
    """
    make = plugins.load_annotator("alpacaeval", name, own=tuple(AnnotatorKind))
    return _read_annotator(AnnotatorKind(name)) if make is None else cast(Annotator, make())


def _read_annotator(kind: AnnotatorKind) -> Annotator:
    folder = _package_folder() / "evaluators_configs"
    name = _PACKAGED[kind]
    try:
        config = _read_config(folder / name / "configs.yaml")[name]
        template = (folder / config["prompt_template"]).read_text(encoding="utf-8")
        make = _weighted_logprobs if kind is AnnotatorKind.WEIGHTED_LOGPROBS else _function_call
        return make(config, _turns(template))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise PreflightError(
            f"annotator {name} of the package alpaca-eval in {folder} cannot be read ({error!r})",
            cure="Install the version that the lock file names",
        ) from error


def model_comes_first(instruction: str, *, seed: int, repeat: int) -> bool:
    """Whether the judge sees the model's output before the reference's, drawn by the instruction.

    With ``repeat`` 0 it is the package's own draw for this seed; its annotators use seed 0.
    """
    suffix = f"/{repeat}" if repeat else ""
    draw = random.Random(f"is_switched_outputs{instruction}{seed}{suffix}")  # noqa: S311  its own
    return draw.choices([False, True])[0]


def _package_folder() -> Path:
    spec = find_spec(_PACKAGE)  # finds a package without running it
    if spec is None or not spec.submodule_search_locations:
        raise PreflightError(
            "the package alpaca-eval, which holds the judge's prompts, is not installed",
            cure="pip install --no-deps alpaca-eval==0.6.6",
        )
    return Path(spec.submodule_search_locations[0])


def _read_config(path: Path) -> Any:  # noqa: ANN401  checked by the use of it
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _turns(template: str) -> tuple[ChatMessage, ...]:
    turns = tuple(
        ChatMessage(role=role, content=content.strip()) for role, content in _TURN.findall(template)
    )
    slots = [slot for turn in turns for slot in _SLOT.findall(turn["content"])]
    if sorted(slots) != ["instruction", "output_1", "output_2"]:
        raise ValueError(f"the prompt's slots are {slots}")
    return turns


def _weighted_logprobs(config: Mapping[str, Any], turns: tuple[ChatMessage, ...]) -> Annotator:
    given, parsing = config["completions_kwargs"], config["completion_parser_kwargs"]
    first = str(parsing["numerator_token"])
    [second] = [str(token) for token in parsing["denominator_tokens"] if token != first]
    return Annotator(
        turns=turns,
        max_tokens=int(given["max_tokens"]),
        temperature=float(given["temperature"]),
        top_logprobs=int(given["top_logprobs"]),
        parse=lambda reply: _first_share(reply, first=first, second=second),
    )


def _first_share(reply: JudgeReply, *, first: str, second: str) -> float:
    """P(first) / (P(first) + P(second)) for the answer's first token."""
    if not reply.top_logprobs:
        raise ValueError("the judge's endpoint returned no log-probabilities")
    known = reply.top_logprobs[0]
    if first not in known and second not in known:
        raise ValueError(f"neither {first} nor {second} among the likely tokens {sorted(known)}")
    gap = known.get(second, -math.inf) - known.get(first, -math.inf)
    if math.isnan(gap) or math.inf in (known.get(first), known.get(second)):
        raise ValueError(f"the log-probabilities of {first} and {second} compare as nothing")
    return 0.0 if gap > 700.0 else 1.0 / (1.0 + math.exp(gap))


def _function_call(config: Mapping[str, Any], turns: tuple[ChatMessage, ...]) -> Annotator:
    given = config["completions_kwargs"]
    [tool] = given["tools"]
    parsers = config["completion_parser_kwargs"]["parsers_to_kwargs"]
    key = str(parsers["json_parser"]["annotation_key"])
    first = str(parsers["ranking_parser"]["model_1_name"])
    return Annotator(
        turns=turns,
        max_tokens=int(given["max_tokens"]),
        temperature=float(given["temperature"]),
        function=FunctionSpec(
            name=str(tool["function"]["name"]),
            description=str(tool["function"]["description"]),
            parameters=tool["function"]["parameters"],
        ),
        parse=lambda reply: _first_rank(reply, key=key, first=first),
    )


def _first_rank(reply: JudgeReply, *, key: str, first: str) -> float:
    """1 if the first output is ranked first, 0 if second."""
    if reply.arguments is None:
        raise ValueError("the judge did not call the function")
    try:
        ranks = {str(row["model"]): row["rank"] for row in json.loads(reply.arguments)[key]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no ranking in {reply.arguments[:200]!r}") from error
    own = ranks.pop(first, None)
    if not isinstance(own, int | float) or own not in {1, 2} or own in ranks.values():
        raise ValueError(f"no clear rank of {first} in {reply.arguments[:200]!r}")
    return float(own == 1)
