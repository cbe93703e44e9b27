"""What an audit could not read, and through whom."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rl_bench.audit.rules import MAX_EVIDENCE, RULES_VERSION, Rule, clip
from rl_bench.events import Evidence, FindingMade


@dataclass(slots=True)
class Problems:
    """Collects reasons, in words.

    Attributes:
        own: Of the runner and of whoever audits: data that are not there, a lost snapshot.
        agents: Of what the agent left, or a part of the audit that tripped over it: something may
            hide there.
    """

    own: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)

    def findings(self) -> list[FindingMade]:
        """None, or one: a warning where the agent caused a part of it."""
        different = list(dict.fromkeys([*self.agents, *self.own]))
        if not different:
            return []
        return [
            FindingMade(
                rule=Rule.NOT_CHECKED,
                severity="warning" if self.agents else "info",
                rules_version=RULES_VERSION,
                summary=clip("; ".join(different), 600),
                evidence=tuple(_evidence(different)),
            )
        ]


def _evidence(reasons: Iterable[str]) -> list[Evidence]:
    return [Evidence(source="log", quote=clip(reason)) for reason in reasons][:MAX_EVIDENCE]
