"""What a replay is told of a run, and what is said before one that cannot be done."""

from pathlib import Path

import pytest

from rl_bench.agents.launch import is_replay
from rl_bench.agents.replay.recording import (
    Command,
    Recording,
    read_recording,
)
from rl_bench.compose import compose
from rl_bench.config import AgentConfig
from rl_bench.errors import PreflightError
from rl_bench.events import (
    AgentEvent,
    CodeChanged,
    Event,
    ProcessSeen,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import Ledger
from rl_bench.lineage.code_history import CodeHistory
from rl_bench.lineage.recording import (
    check_recording,
    make_recording,
    recorded_run,
    write_recording,
)
from tests.rl_bench.conftest import make_evaluation
from tests.rl_bench.grading_scene import make_spec
from tests.rl_bench.replay_scene import CLI, call, replay_agent, result


def change(revision: str, at_s: float) -> CodeChanged:
    return CodeChanged(
        revision=revision,
        cause="change",
        changed=(),
        num_changed=0,
        num_files=0,
        budget_used_s=at_s,
    )


def accept(number: int, at_s: float, *, path: str = "output/v1", unchanged: bool = False) -> Event:
    return SubmissionAccepted(
        submission_id=number,
        model_path=path,
        content_hash=f"h{number}",
        tasks=("alfworld",),
        budget_used_s=at_s,
        code_revision="ffff",
        unchanged=unchanged,
    )


def process(pid: int, parent: int, *argv: str, began_s: float = 1.0) -> ProcessSeen:
    return ProcessSeen(
        pid=pid, parent_pid=parent, argv=argv, began_s=began_s, duration_s=5.0, cpu_s=1.0
    )


def write_ledger(folder: Path, *events: Event, agent: AgentConfig = CLI) -> Path:
    spec = make_spec(agent=agent)
    with Ledger(folder / "ledger.jsonl") as ledger:
        ledger.append(RunStarted(run_id="r", sweep="s", attempt=0, spec=spec))
        for event in events:
            ledger.append(event)
    return folder


def told(recording: Recording) -> list[str]:
    """The steps as short words: commands with their revision, submissions by number."""
    return [
        f"{step.text or ' '.join(step.argv)}@{step.revision}"
        if isinstance(step, Command)
        else f"#{step.submission_id}"
        for step in recording.steps
    ]


def test_commands_and_submissions_come_in_the_ledgers_order(tmp_path: Path) -> None:
    graded = SubmissionGraded(submission_id=1, evaluations=(make_evaluation(40.0),))
    run = write_ledger(
        tmp_path,
        AgentEvent(kind="message", text="I begin", budget_used_s=0.5),
        call("ls", 1.0),
        result("ls", 1.5),
        call('{"file_path": "code/train.py"}', 2.0, name="Write"),
        result('{"file_path": "code/train.py"}', 2.1),
        change("aaaa", 2.3),
        call("python code/train.py", 10.0),
        accept(1, 15.0),
        graded,
        result("python code/train.py", 70.0),
        call("nohup python x.py &", 71.0, call_id="unanswered"),
        accept(2, 80.0),
    )
    recording = make_recording(run)
    assert told(recording) == [
        "ls@",
        "python code/train.py@aaaa",
        "#1",
        "nohup python x.py &@aaaa",
        "#2",
    ]
    assert [command.duration_s for command in recording.commands] == [0.5, 60.0, None]
    assert [sub.scores for sub in recording.submissions] == [{"alfworld": 40.0}, {"alfworld": None}]
    assert all(command.keeps_folder for command in recording.commands)
    assert (recording.run_id, recording.agent, recording.seed) == ("r", "claude_code", 0)
    assert "item_id" not in recording.model_dump_json()
    assert "game0" not in write_recording(run).read_text()
    assert read_recording(run) == recording


def test_a_revision_stored_just_after_a_commands_start_is_its_own(tmp_path: Path) -> None:
    run = write_ledger(
        tmp_path,
        change("old", 1.0),
        call("train a", 10.0),
        change("settled", 12.0),
        change("later", 13.5),
        result("train a", 60.0),
        call("train b", 61.0),
        call("edit", 61.5, name="Edit"),
        change("edited", 62.0),
        call("train c", 63.0),
        change("too late", 67.0),
        accept(1, 70.0),
    )
    assert told(make_recording(run)) == ["train a@settled", "train b@later", "train c@edited", "#1"]


def test_a_command_told_with_its_result_began_before(tmp_path: Path) -> None:
    run = write_ledger(
        tmp_path,
        call("write", 5.0, name="write"),
        change("aaaa", 5.5),
        accept(1, 30.0),
        call("python train.py", 60.0, name="bash"),
        result("python train.py", 60.0),
    )
    recording = make_recording(run)
    assert told(recording) == ["python train.py@aaaa", "#1"]
    assert (recording.commands[0].at_s, recording.commands[0].duration_s) == (5.0, 55.0)
    assert not recording.commands[0].keeps_folder


def test_a_tool_call_that_is_nested_too_deeply_is_its_text(tmp_path: Path) -> None:
    deep = "[" * 100_000
    run = write_ledger(tmp_path, call(deep, 5.0, name="bash"), accept(1, 30.0))
    [command] = make_recording(run).commands
    assert deep.startswith(command.text.rstrip("…"))


def test_quick_commands_told_after_their_submissions_come_before(tmp_path: Path) -> None:
    ask = 'curl $URL/submit -d \'{"model_path": "output/v%d"}\''
    run = write_ledger(
        tmp_path,
        accept(1, 21.53),
        call("cp base output/v1", 21.59),
        result("cp base output/v1", 21.59),
        call(ask % 1, 21.59),
        accept(2, 21.8, path="output/v2"),
        result(ask % 1, 21.85),
        call("cp base output/v2", 21.85),
        call(f"make v2 && {ask % 2}", 22.1),
        call("cat scores.json", 22.1, call_id="read"),
        accept(3, 22.3, path="output/v3"),
        result("read", 22.4, text='{"submission_id": 3}'),
        call("python hand_in.py", 22.4, call_id="in"),
        result("in", 22.5, text='{"submission_id": 3, "score": 1}'),
        call(ask % 3, 60.0),
    )
    assert [step.removesuffix("@") for step in told(make_recording(run))] == [
        "cp base output/v1",
        ask % 1,
        "#1",
        "cp base output/v2",
        f"make v2 && {ask % 2}",
        "#2",
        "cat scores.json",
        "python hand_in.py",
        "#3",
        ask % 3,
    ]


def test_what_asks_again_for_a_known_submission_made_none(tmp_path: Path) -> None:
    ask = "curl $URL/submit -d output/v1"
    run = write_ledger(
        tmp_path,
        call("train && submit output/v1", 1.0),
        accept(1, 30.0),
        result("train && submit output/v1", 30.1),
        call("rm -r output/v1; train --longer", 30.2),
        call(ask, 50.0),
        accept(2, 50.2),
        call("rm code/x.py", 50.3),
        call(ask, 51.0, call_id="again"),
        result("again", 51.1, text='{"submission_id": 2}'),
    )
    assert [step.removesuffix("@") for step in told(make_recording(run))][1:4] == [
        *("#1", "rm -r output/v1; train --longer", ask),
    ]


def test_commands_are_found_in_arguments_and_cuts_are_known(tmp_path: Path) -> None:
    run = write_ledger(
        tmp_path,
        call('{"command": "make", "timeout": 5}', 1.0, name="terminal"),
        call('{"path": "x"}', 2.0, name="terminal"),
        call("cat > a.py <<EOF … [5000 more characters]", 3.0),
        accept(1, 4.0),
    )
    commands = make_recording(run).commands
    assert [(command.text[:3], command.is_cut) for command in commands] == [
        ("mak", False),
        ("cat", True),
    ]


def test_the_last_attempt_counts(tmp_path: Path) -> None:
    spec = make_spec(agent=CLI)
    run = write_ledger(
        tmp_path,
        call("first", 1.0),
        accept(1, 2.0),
        RunStarted(run_id="r", sweep="s", attempt=1, spec=spec),
        call("second", 1.0),
        accept(1, 2.0),
    )
    assert told(make_recording(run)) == ["second@", "#1"]


def test_an_agent_without_a_driver_is_its_own_command(tmp_path: Path) -> None:
    agent = AgentConfig(
        name="command", argv=("bash", "{workspace}/x.sh"), settings={"lr": 0.1}, env={"A": "1"}
    )
    recording = make_recording(write_ledger(tmp_path, accept(1, 2.0), agent=agent))
    [command] = recording.commands
    assert (command.argv, command.is_agent, command.duration_s) == (agent.argv, True, None)
    assert (recording.settings, recording.env) == ({"lr": 0.1}, {"A": "1"})


def test_processes_tell_the_commands_where_no_stream_does(tmp_path: Path) -> None:
    run = write_ledger(
        tmp_path,
        change("aaaa", 1.0),
        process(12, 11, "/usr/bin/python3", "worker.py", began_s=4.0),
        process(11, 10, "bash", "-c", "python train.py", began_s=3.0),
        process(13, 10, "rg", "x", began_s=3.5),
        accept(1, 20.0),
        process(14, 10, "python", "again.py", "y" * 20 + "…", began_s=30.0),
        accept(2, 40.0),
        process(10, 1, "python", "/opt/claude", began_s=0.0),
    )
    recording = make_recording(run)
    assert [step if step.startswith("#") else step[:14] for step in told(recording)] == [
        *("bash -c python", "#1", "python again.p", "#2"),
    ]
    assert [command.is_cut for command in recording.commands] == [False, True]
    assert recording.commands[0].revision == "aaaa"


def test_the_base_itself_needs_no_command(tmp_path: Path) -> None:
    run = write_ledger(tmp_path, accept(1, 1.0, path="models/tiny", unchanged=True))
    [submission] = make_recording(run).submissions
    assert submission.is_base


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((accept(1, 1.0),), "nothing in the ledger .* tells how submission 1"),
        ((accept(1, 1.0), call("late", 2.0)), "nothing in the ledger"),
        ((accept(1, 1.0, unchanged=True),), "nothing in the ledger"),
        ((call("ls", 1.0),), "no submissions"),
    ],
)
def test_what_cannot_be_replayed_is_said_before(
    tmp_path: Path, events: tuple[Event, ...], words: str
) -> None:
    with pytest.raises(PreflightError, match=words) as caught:
        make_recording(write_ledger(tmp_path, *events))
    assert caught.value.cure


def test_the_check_names_what_is_missing(tmp_path: Path) -> None:
    assert is_replay(replay_agent("/x"))
    assert not is_replay(CLI)
    for name in ("", "results/x", None):
        with pytest.raises(PreflightError, match=r"settings\.run") as caught:
            recorded_run(replay_agent(name))
        assert "absolute path" in caught.value.cure
    with pytest.raises(PreflightError, match="no run to replay"):
        check_recording(make_spec(agent=replay_agent(str(tmp_path / "none"))))

    run = write_ledger(tmp_path / "r", call("x", 1.0), accept(1, 2.0))
    with pytest.raises(PreflightError, match="no code history"):
        check_recording(make_spec(agent=replay_agent(str(run))))
    (run / "code").mkdir()
    CodeHistory(run / "code", history=run / "code.git").record("change")
    spec = make_spec(agent=replay_agent(str(run)))
    assert check_recording(spec) == "1 command, 1 submission"
    with pytest.raises(PreflightError, match="not on gsm8k") as caught:
        check_recording(make_spec("gsm8k", agent=replay_agent(str(run))))
    assert "task=alfworld" in caught.value.cure
    other = spec.model_copy(update={"seed": 7})
    assert check_recording(other).endswith("1 submission; this run has seed 7 where it was 0")
    # Before anything that only a run of the right task would have to mend.
    empty = write_ledger(tmp_path / "empty")
    with pytest.raises(PreflightError, match="not on gsm8k"):
        check_recording(make_spec("gsm8k", agent=replay_agent(str(empty))))
    write_ledger(tmp_path / "sweep" / "runs" / "one", accept(1, 2.0))
    with pytest.raises(PreflightError, match="is a sweep; its runs: one") as caught:
        check_recording(make_spec(agent=replay_agent(str(tmp_path / "sweep"))))
    assert caught.value.cure.endswith("/sweep/runs/one")
    again = write_ledger(tmp_path / "again", accept(1, 2.0), agent=replay_agent(str(run)))
    with pytest.raises(PreflightError, match="itself a replay"):
        check_recording(make_spec(agent=replay_agent(str(again))))


def test_the_option_shows_the_agent_two_things_only() -> None:
    experiment = compose(["agent=replay", "agent.settings.run=/r/runs/x"]).experiment
    agent = experiment.options.agents["replay"]
    assert is_replay(agent)
    assert agent.read_only == (Path("/r/runs/x/recording.json"), Path("/r/runs/x/code.git"))
