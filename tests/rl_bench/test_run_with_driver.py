"""Whole runs of an agent that a language model drives: gateway, stream, history, sandbox, end.

The agent is `mini_cli`, a stranger to the project that is described by config alone; its driver is
the scripted one; only the grader is not an engine.
"""

from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from rl_bench.agents.replay.report import ReplayReport
from rl_bench.config import (
    AgentConfig,
    Api,
    BudgetConfig,
    DriverConfig,
    RunSpec,
    SandboxConfig,
    StreamRule,
)
from rl_bench.events import (
    AgentEvent,
    AgentExited,
    AgentStarted,
    CodeChanged,
    DriverCall,
    DriverFailure,
    Event,
    ModeAudited,
    ProcessSeen,
    RunEnd,
    RunFinished,
    SandboxReady,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.sandbox.choose import find_bubblewrap
from tests.needs import needs
from tests.rl_bench.grading_scene import ScriptedGrade, make_spec
from tests.rl_bench.run_scene import make_run

E = TypeVar("E", bound=Event)
CLI = Path(__file__).with_name("mini_cli.py")
STREAM = (
    StreamRule(
        kind="tool_call", when={"type": "call"}, name="tool", text=("command",), call_id="id"
    ),
    StreamRule(
        kind="tool_result", when={"type": "output"}, text=("text",), call_id="id", is_error="failed"
    ),
    StreamRule(kind="usage", when={"type": "usage"}, tokens={"input_tokens": "tokens"}),
    StreamRule(kind="error", when={"type": "error"}, name="status"),
    StreamRule(kind="result", when={"type": "done"}, text=("text",)),
)
SUBMIT = """
  - run: >-
      mkdir -p output/v1 && cp -RL "$MODEL_PATH"/. output/v1/ && chmod -R u+w output/v1 &&
      echo 'print("training")' > code/train.py && python code/train.py &&
      python -c "import numpy as np, safetensors.numpy as s;
      f = 'output/v1/model.safetensors'; w = s.load_file(f);
      w['model.embed_tokens.weight'] = np.full((4, 2), 42.0, dtype=np.float32); s.save_file(w, f)"
  - run: >-
      curl -sS "$GRADING_SERVER_URL/submit" -H 'Content-Type: application/json'
      -d '{"model_path": "output/v1"}'
"""


class Laboratory:
    """One run of the mini CLI on a session, and what its ledger tells."""

    def __init__(
        self,
        root: Path,
        session: str,
        *,
        sandbox: str = "none",
        wall_clock_s: float = 60.0,
        max_calls: int | None = None,
        env: dict[str, str] | None = None,
        on_live_children: str = "kill",
        linger_s: float = 60.0,
    ) -> None:
        file = root / "session.yaml"
        file.write_text(session)
        agent = AgentConfig.model_validate(
            {
                "name": "mini",
                "argv": ("{python}", str(CLI), "{driver_url}", "{prompt}"),
                "resume_argv": ("{python}", str(CLI), "{driver_url}", "{prompt}", "--resume"),
                "apis": (Api.OPENAI,),
                "env": {"MINI_MODEL": "{driver_model}", **(env or {})},
                "stream": STREAM,
                "on_live_children": on_live_children,
                "linger_s": linger_s,
            }
        )
        budget = BudgetConfig(
            name="test", wall_clock_s=wall_clock_s, kill_grace_s=0.5, max_driver_calls=max_calls
        )
        spec = make_spec("gsm8k_mini", budget=budget, agent=agent)
        task = spec.tasks[0].model_copy(update={"kind": "gsm8k", "num_eval": 3, "num_train": 3})
        driver = DriverConfig(
            name="scripted",
            kind="scripted",
            model_id="scripted-1",
            session=str(file),
            usd_per_million_input=1.0,
            usd_per_million_output=1.0,
        )
        spec = spec.model_copy(
            update={
                "tasks": (task,),
                "driver": driver,
                "sandbox": SandboxConfig.model_validate({"name": sandbox}),
            }
        )
        self._root = root
        self._open("sweep", spec)

    def _open(self, sweep: str, spec: RunSpec) -> None:
        self.root = SweepPaths(self._root / sweep).run("r").root
        self.run = make_run(
            spec, self._root, sweep=sweep, keep_models="best_and_last", grade=ScriptedGrade()
        )

    def replay(self) -> None:
        """From now on it is the run that replays this one."""
        agent = AgentConfig(
            name="replay",
            argv=("{python}", "-m", "rl_bench.agents.replay"),
            settings={"run": str(self.root)},
            read_only=(self.root / "recording.json", self.root / "code.git"),
        )
        driver = DriverConfig(name="none")
        self._open("again", self.run.spec.model_copy(update={"agent": agent, "driver": driver}))

    def execute(self, *, is_last: bool = True) -> RunEnd:
        return self.run.execute(attempt=0, is_last=is_last)

    def events(self, kind: type[E]) -> list[E]:
        entries = read_ledger(self.root / "ledger.jsonl")
        return [entry.event for entry in entries if isinstance(entry.event, kind)]

    @property
    def detail(self) -> str:
        return self.events(RunFinished)[-1].detail


QUICK = """
  - run: mkdir -p output/v1 && cp -RL "$MODEL_PATH"/. output/v1/ && chmod -R u+w output/v1
  - run: >-
      curl -sS "$GRADING_SERVER_URL/submit" -H 'Content-Type: application/json'
      -d '{"model_path": "output/v1"}'
  - write: {code/shrink.py: "print('a little smaller')"}
    run: python code/shrink.py
  - run: >-
      cp -R output/v1 output/v2 && echo '{}' > output/v2/generation_config.json &&
      curl -sS "$GRADING_SERVER_URL/submit" -H 'Content-Type: application/json'
      -d '{"model_path": "output/v2"}'
"""


def test_commands_stand_before_the_submissions_they_made_and_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing but a submission, and the end, has the agent's output read.
    monkeypatch.setattr("rl_bench.agents.stream_watch.POLL_S", 600.0)
    lab = Laboratory(tmp_path, f"steps:{QUICK}last: Done.\n")
    assert lab.execute() is RunEnd.COMPLETED, lab.detail
    told = [
        event.text.split()[0] if isinstance(event, AgentEvent) else f"#{event.submission_id}"
        for event in (entry.event for entry in read_ledger(lab.root / "ledger.jsonl"))
        if isinstance(event, SubmissionAccepted)
        or (isinstance(event, AgentEvent) and event.kind == "tool_call")
    ]
    assert told == ["mkdir", "curl", "#1", "mkdir", "cp", "#2"]
    first = lab.events(SubmissionAccepted)

    lab.replay()
    assert lab.execute() is RunEnd.COMPLETED, lab.detail
    again = lab.events(SubmissionAccepted)
    assert [sub.content_hash for sub in again] == [sub.content_hash for sub in first]
    report = ReplayReport.model_validate_json(
        (lab.root / "workspace" / "output" / "replay.json").read_bytes()
    )
    assert report.is_complete
    assert [sub.by for sub in report.submissions] == ["command", "command"]
    assert {command.exit_code for command in report.commands} == {0}


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_a_driven_run_from_prompt_to_score(tmp_path: Path, sandbox: str) -> None:
    if sandbox == "bwrap":
        needs("bwrap", is_there=not isinstance(find_bubblewrap(), str))
    lab = Laboratory(tmp_path, f"steps:{SUBMIT}last: Done.\n", sandbox=sandbox)
    assert lab.execute() is RunEnd.COMPLETED, lab.detail

    assert [event.kind for event in lab.events(SandboxReady)] == [sandbox]
    calls = lab.events(DriverCall)
    assert [call.status for call in calls] == [200, 200, 200]
    assert all(call.cost_usd and call.input_tokens for call in calls)
    kinds = [event.kind for event in lab.events(AgentEvent)]
    assert kinds.count("tool_call") == kinds.count("tool_result") == 2
    assert kinds[-1] == "result"
    [graded] = lab.events(SubmissionGraded)
    assert graded.evaluations[0].score == 42.0
    [accepted] = lab.events(SubmissionAccepted)
    revisions = {event.revision: event.changed for event in lab.events(CodeChanged)}
    assert revisions[accepted.code_revision] == ("train.py",)
    assert [event.final_event for event in lab.events(AgentExited)] == [True]
    assert len(lab.events(ModeAudited)) == 1


def test_the_key_is_nowhere_and_the_prompt_is_one_word(tmp_path: Path) -> None:
    lab = Laboratory(tmp_path, "steps:\n  - run: env; cat /proc/self/environ\nlast: Done.\n")
    lab.execute()
    written = b"".join(p.read_bytes() for p in lab.root.rglob("*") if p.is_file())
    assert b"sk-scripted" not in written
    argv = lab.events(AgentStarted)[0].argv
    assert "gsm8k_mini" in argv[3]
    assert "# Instructions" in argv[3]


def test_a_refused_key_is_the_drivers_failure_although_the_cli_exits_with_0(tmp_path: Path) -> None:
    faults = "faults:\n  - {before_step: 2, kind: status, status: 401, times: null}\n"
    lab = Laboratory(tmp_path, f"steps:{SUBMIT}last: Done.\n{faults}")
    assert lab.execute() is RunEnd.DRIVER_ERROR
    assert lab.detail.startswith("auth")
    assert lab.events(DriverCall)[-1].failure is DriverFailure.AUTH


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "auth"), (402, "billing"), (429, "rate_limited"), (500, "server_error")],
)
def test_other_failures_of_the_driver(tmp_path: Path, status: int, kind: str) -> None:
    faults = f"faults:\n  - {{before_step: 1, kind: status, status: {status}, times: null}}\n"
    lab = Laboratory(
        tmp_path, f"steps:\n  - run: ls\nlast: Done.\n{faults}", env={"MINI_EXIT": "1"}
    )
    assert lab.execute(is_last=False) is RunEnd.DRIVER_ERROR
    assert lab.detail.startswith(kind)
    # An account is mended by people: not now, and so the attempt is final.
    is_hopeless = kind in {"auth", "billing"}
    assert lab.run.is_final is is_hopeless
    assert lab.events(RunFinished)[-1].final is is_hopeless


def test_submissions_before_a_drivers_failure_are_kept(tmp_path: Path) -> None:
    faults = "faults:\n  - {before_step: 3, kind: status, status: 402, times: null}\n"
    lab = Laboratory(tmp_path, f"steps:{SUBMIT}last: Done.\n{faults}", env={"MINI_EXIT": "1"})
    assert lab.execute() is RunEnd.DRIVER_ERROR
    assert lab.events(SubmissionGraded)[0].evaluations[0].score == 42.0


def test_the_cap_of_calls_is_a_used_budget(tmp_path: Path) -> None:
    steps = "".join("  - run: 'true'\n" for _ in range(5))
    lab = Laboratory(tmp_path, f"steps:\n{steps}last: Done.\n", max_calls=2)
    assert lab.execute() is RunEnd.TIMED_OUT
    assert "2" in lab.detail
    failures = [call.failure for call in lab.events(DriverCall)]
    assert failures == [None, None, DriverFailure.CAPPED]


def test_work_left_in_the_background_is_waited_for_and_told(tmp_path: Path) -> None:
    session = """
steps:
  - run: (sleep 2; echo 'x = 1' > code/later.py) > /dev/null 2>&1 & echo started
  - say: It runs in the background.
  - run: cat code/later.py
last: It has ended.
"""
    lab = Laboratory(tmp_path, session, on_live_children="resume")
    assert lab.execute() is RunEnd.COMPLETED, lab.detail
    assert [event.session for event in lab.events(AgentStarted)] == [0, 1]
    first, second = lab.events(AgentExited)
    assert first.num_live_children > 0
    assert first.children_wait_s > 0.5
    assert second.num_live_children == 0
    results = [e.text for e in lab.events(AgentEvent) if e.kind == "tool_result"]
    assert results[-1].strip() == "x = 1"
    assert any("sleep" in " ".join(seen.argv) for seen in lab.events(ProcessSeen))


def test_an_agent_that_hangs_after_its_last_word_is_ended(tmp_path: Path) -> None:
    lab = Laboratory(
        tmp_path,
        f"steps:{SUBMIT}last: Done.\n",
        env={"MINI_HANG": "600"},
        linger_s=1.0,
    )
    assert lab.execute() is RunEnd.HUNG_AFTER_RESULT
    [exited] = lab.events(AgentExited)
    assert exited.killed
    assert exited.final_event
    assert lab.events(SubmissionGraded)[0].evaluations[0].score == 42.0


def test_a_daemonised_busy_loop_ends_with_the_budget(tmp_path: Path) -> None:
    needs("bwrap", is_there=not isinstance(find_bubblewrap(), str))
    session = """
steps:
  - run: (setsid nohup bash -c 'while :; do :; done' > /dev/null 2>&1 &) & echo started
  - run: sleep 600
last: Done.
"""
    lab = Laboratory(tmp_path, session, sandbox="bwrap", wall_clock_s=6.0)
    assert lab.execute() is RunEnd.TIMED_OUT
    [exited] = lab.events(AgentExited)
    assert exited.num_survivors_killed >= 2
    assert exited.budget_used_s < 6.0 + 0.5 + 30.0
    commands = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if "while :; do :; done" in command]
