"""The real CLIs, each from its package, played by the scripted driver through the gateway."""

from pathlib import Path

import pytest

from rl_bench.drivers.session import Fault, load_session
from rl_bench.events import AgentEvent, DriverFailure, SubmissionGraded
from tests.rl_bench.agents.cli_scene import Played, installed, play

ALL = ("claude_code", "codex", "gemini_cli", "opencode", "openhands")
NAMES = [
    *("claude_code", "codex"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemini_cli", "opencode")),
    pytest.param("openhands", marks=pytest.mark.slow),
]


def kinds(played: Played) -> list[str]:
    return [event.kind for event in played.events]


def of_kind(played: Played, kind: str) -> list[AgentEvent]:
    return [event for event in played.events if event.kind == kind]


@pytest.mark.parametrize("name", NAMES)
def test_a_session_is_played_submitted_and_read(name: str, tmp_path: Path) -> None:
    played = play(tmp_path, installed(name))

    assert played.exit_.exit_code == 0, played.stderr
    assert not played.exit_.killed
    graded = played.scene.events(SubmissionGraded)
    assert len(graded) == 2, played.stdout.decode(errors="replace")
    commands = [event.text for event in of_kind(played, "tool_call")]
    assert sum("/submit" in command for command in commands) == 2
    answers = [event for event in played.events if event.kind in {"tool_result", "result"}]
    assert {event.call_id for event in of_kind(played, "tool_call")} <= {
        event.call_id for event in answers
    }
    assert any("total_submissions" in event.text for event in answers)
    assert kinds(played)[-1] == "result"
    assert not played.events[-1].is_error
    times = [event.budget_used_s for event in played.events]
    assert times == sorted(times)
    # Claude Code looks whether the host is there, by a route that the gateway does not forward.
    asked = [call for call in played.calls if call.route != "/"]
    assert all(call.status == 200 for call in asked), asked
    assert len(asked) >= 7


@pytest.mark.parametrize("name", NAMES)
def test_a_session_goes_on(name: str, tmp_path: Path) -> None:
    played = play(tmp_path, installed(name), again="The background work has ended.")

    assert played.exit_.exit_code == 0, played.stderr
    assert [event.kind for event in played.events].count("result") == 2
    assert kinds(played)[-1] == "result"
    # The conversation was taken along: no step was played twice.
    assert len(played.scene.events(SubmissionGraded)) == 2


@pytest.mark.parametrize(
    "name",
    ["codex", *(pytest.param(name, marks=pytest.mark.slow) for name in ALL if name != "codex")],
)
def test_a_refused_key_is_told(name: str, tmp_path: Path) -> None:
    refused = Fault(before_step=1, kind="status", status=401, times=None)
    session = load_session("smoke").model_copy(update={"faults": (refused,)})

    agent = installed(name)
    # Claude Code would ask ten times, for three minutes.
    sooner = {**agent.env, "CLAUDE_CODE_MAX_RETRIES": "1"}
    played = play(tmp_path, agent.model_copy(update={"env": sooner}), session=session)

    assert any(event.is_error for event in played.events)
    assert {call.failure for call in played.calls if call.route != "/"} == {DriverFailure.AUTH}
    # OpenHands ends as if nothing had happened.
    assert (played.exit_.exit_code == 0) is (name == "openhands")
