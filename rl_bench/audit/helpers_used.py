"""Models other than the driver and the base: at the gateway, on this machine, behind an API."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from rl_bench.audit.executions import Seen
from rl_bench.audit.facts import ModuleFacts
from rl_bench.audit.rules import MAX_EVIDENCE, RULES_VERSION, Rule, clip
from rl_bench.audit.sources import Version
from rl_bench.config import DriverConfig
from rl_bench.counts import plural
from rl_bench.events import DriverCall, DriverFailure, Entry, Evidence, FindingMade

_CLIENTS = frozenset(
    {"openai.OpenAI", "openai.AsyncOpenAI", "openai.ChatCompletion.create", "anthropic.Anthropic"}
    | {"anthropic.AsyncAnthropic", "google.generativeai.GenerativeModel", "google.genai.Client"}
    | {"litellm.completion", "litellm.acompletion", "cohere.Client", "mistralai.Mistral"}
    | {"together.Together", "groq.Groq", "huggingface_hub.InferenceClient", "ollama.chat"}
    | {"ollama.generate", "openai.AzureOpenAI"}
)
_LOADERS = ("from_pretrained", "LLM", "pipeline", "Llama", "AutoTokenizer")
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*[bB](?![a-zA-Z])")
_SERVERS = frozenset({"ollama", "vllm", "llama-server", "sglang", "text-generation-launcher"})


def other_models(entries: Sequence[Entry], driver: DriverConfig) -> list[FindingMade]:
    """Calls at the gateway that asked for another model than the driver."""
    if not driver.model_id:
        return []
    answered: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for entry in entries:
        event = entry.event
        if isinstance(event, DriverCall) and event.model and not _same(event.model, driver):
            let_through = event.failure is not DriverFailure.REFUSED
            (answered if let_through else refused)[event.model] += 1
    found = []
    for counted, verb in ((answered, "let through"), (refused, "refused")):
        if counted:
            calls = plural(counted.total(), "call")
            models = ", ".join(f"{name} ({num})" for name, num in counted.most_common(6))
            found.append(
                FindingMade(
                    rule=Rule.OTHER_MODEL,
                    severity="warning" if counted is answered else "info",
                    rules_version=RULES_VERSION,
                    summary=f"{calls} for another model than {driver.model_id} {verb}: {models}",
                    evidence=tuple(
                        Evidence(source="request", quote=clip(f"{name}: {plural(num, 'call')}"))
                        for name, num in counted.most_common(MAX_EVIDENCE)
                    ),
                )
            )
    return found


def _same(model: str, driver: DriverConfig) -> bool:
    """The provider's name of the same model may have a folder before it and a date after it."""
    asked, wanted = (name.rpartition("/")[2].lower() for name in (model, driver.model_id))
    rest = asked.removeprefix(wanted)
    dated = bool(re.fullmatch(r"[-@]?(\d{4}-?\d{2}-?\d{2}|latest|\d{3})?", rest))
    return asked == wanted or (asked.startswith(wanted) and dated)


def teachers(
    seen: Seen,
    versions: Sequence[Version],
    facts: Mapping[str, ModuleFacts],
    *,
    own_names: Sequence[str],
) -> list[FindingMade]:
    """Traces of other models: clients of APIs, and checkpoints that are not the base model.

    Args:
        seen: What ran.
        versions: The agent's code.
        facts: What was read of it, by text.
        own_names: Names of the base model and its folder.
    """
    evidence = [
        *_in_commands(seen, own_names),
        *(piece for v in versions for piece in _in_code(v, facts.get(v.text), own_names)),
    ]
    different = {(piece.path, piece.quote): piece for piece in evidence}
    if not different:
        return []
    quotes = list(dict.fromkeys(piece.quote for piece in different.values()))
    return [
        FindingMade(
            rule=Rule.TEACHER_OR_API,
            severity="warning",
            rules_version=RULES_VERSION,
            summary=f"other models may have made data: {clip('; '.join(quotes[:3]), 200)}",
            evidence=tuple(different.values())[:MAX_EVIDENCE],
        )
    ]


def _in_commands(seen: Seen, own_names: Sequence[str]) -> Iterator[Evidence]:
    for execution in seen.executions:
        program = execution.program
        name = program.target.rpartition("/")[2]
        is_server = (program.kind == "other" and name in _SERVERS) or (
            program.kind == "module" and program.target.startswith(("vllm.", "sglang."))
        )
        if is_server:
            for word in program.args:
                if _is_other_checkpoint(word.partition("=")[2] or word, own_names):
                    quote = clip(" ".join(program.words))
                    yield Evidence(source=execution.source, quote=quote)


def _in_code(
    version: Version, facts: ModuleFacts | None, own_names: Sequence[str]
) -> Iterator[Evidence]:
    if facts is None:
        return
    for name, line in facts.calls:
        if name in _CLIENTS:
            yield _evidence(version, line, f"{name}(…)")
    for text in facts.texts:
        call = text.call.rpartition(".")[2]
        if call in _LOADERS and _is_other_checkpoint(text.value, own_names):
            yield _evidence(version, text.line, f"{call}({text.value!r})")


def _is_other_checkpoint(name: str, own_names: Sequence[str]) -> bool:
    """A name that tells a model's size in billions, and is neither the base's nor the agent's."""
    if not _SIZE.search(name) or len(name) > 200 or any(own in name for own in own_names if own):
        return False
    parts = PurePosixPath(name).parts
    return not {"output", "checkpoints", "data", "code"} & set(parts)


def _evidence(version: Version, line: int, quote: str) -> Evidence:
    return Evidence(
        source="code", path=version.path, revision=version.revision, line=line, quote=clip(quote)
    )
