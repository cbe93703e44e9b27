"""A recorded agent's events, and the agent that does them again."""

from pathlib import Path

from rl_bench.config import AgentConfig, Api
from rl_bench.events import AgentEvent

CLI = AgentConfig(name="claude_code", argv=("claude",), apis=(Api.ANTHROPIC,), binary="claude")


def call(text: str, at_s: float, *, name: str = "Bash", call_id: str = "") -> AgentEvent:
    return AgentEvent(
        kind="tool_call", name=name, text=text, budget_used_s=at_s, call_id=call_id or text
    )


def result(call_id: str, at_s: float, *, text: str = "") -> AgentEvent:
    return AgentEvent(kind="tool_result", call_id=call_id, budget_used_s=at_s, text=text)


def replay_agent(run: object) -> AgentConfig:
    known = isinstance(run, str)
    return AgentConfig(
        name="again",
        argv=("{python}", "-m", "rl_bench.agents.replay"),
        settings={"run": str(run)} if known else {},
        read_only=(Path(f"{run}/recording.json"), Path(f"{run}/code.git")) if known else (),
    )
