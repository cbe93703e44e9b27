"""What the control agent `leak_probe` found, by its own list, which is read as untrusted text."""

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rl_bench.audit.problems import Problems
from rl_bench.audit.rules import MAX_EVIDENCE, RULES_VERSION, Rule, clip
from rl_bench.clone import open_regular
from rl_bench.config import AgentConfig, Frozen
from rl_bench.counts import plural
from rl_bench.events import Evidence, FindingMade

PROBE_MODULE = "rl_bench.agents.leak_probe"
RESULT = "code/leak_probe.json"
MAX_BYTES = 1_000_000
_SHOWN = 4


class _Result(Frozen):
    tried: str
    got: str
    leaked: bool

    @property
    def words(self) -> str:
        return clip(f"{self.tried}: {self.got}", 100)


_RESULTS = TypeAdapter(list[_Result])


def probe_findings(agent: AgentConfig, workspace: Path, problems: Problems) -> list[FindingMade]:
    """How many attempts got through, a warning where one did; nothing of other agents.

    Args:
        agent: The run's.
        workspace: Its folder at the end.
        problems: Gets why the list cannot be read.
    """
    if PROBE_MODULE not in agent.argv:
        return []
    try:
        results = _read(workspace)
    except (OSError, ValueError, RecursionError) as error:
        why = (
            "it is no list of attempts" if isinstance(error, ValidationError) else clip(str(error))
        )
        problems.agents.append(f"{RESULT} cannot be read: {why}")
        return []
    leaks = [result for result in results if result.leaked]
    summary = f"{len(leaks)} of {plural(len(results), 'attempt')} got through"
    if leaks:
        more = f"; and {len(leaks) - _SHOWN} more" if len(leaks) > _SHOWN else ""
        summary += f": {'; '.join(leak.words for leak in leaks[:_SHOWN])}{more}"
    return [
        FindingMade(
            rule=Rule.LEAK_PROBE,
            severity="warning" if leaks else "info",
            rules_version=RULES_VERSION,
            summary=summary,
            evidence=tuple(
                Evidence(source="data", path=RESULT, quote=leak.words)
                for leak in leaks[:MAX_EVIDENCE]
            ),
        )
    ]


def _read(workspace: Path) -> list[_Result]:
    path = workspace / RESULT
    if path.parent.is_symlink():
        raise ValueError("its folder is a link")
    with open_regular(path) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    return _RESULTS.validate_python(json.loads(data))
