"""Tables of what agents and drivers did, of findings, and what they mean for runs and scores."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rl_bench.events import (
    AgentStarted,
    DriverFailure,
    Entry,
    Event,
    ModeVerdict,
    RunEnd,
)
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.record_schema import Growing, Place
from rl_bench.records import EVENTS, SCHEMAS, DriverPoint, event_row
from rl_bench.run_records import MAX_DRIVER_POINTS, records_of
from rl_bench.sinks.parquet import ParquetSink
from tests.rl_bench.agent_story import (
    audited,
    call,
    failed_call,
    finding,
    one_of_each,
    process,
    revision,
    tool_call,
    usage,
)
from tests.rl_bench.conftest import MakeStory, Story

DOCS = Path(__file__).parents[2] / "docs" / "results.md"


def tables(story: Story) -> dict[str, list[dict[str, Any]]]:
    found = records_of(story.run_id, read_ledger(story.path)).snapshot().tables()
    return {name: table.to_pylist() for name, table in found.items()}


def only(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (row,) = rows
    return row


def test_each_kind_has_its_row(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(*one_of_each())
    found = tables(run)
    row = only(found["driver_calls"])
    assert (row["run_id"], row["sweep"], row["attempt"], row["session"]) == ("r", "s", 0, 0)
    assert (row["call"], row["api"], row["status"], row["failure"]) == (1, "anthropic", 200, None)
    assert (row["input_tokens"], row["cached_tokens"], row["cost_usd"]) == (100, 60, 0.5)
    assert row["time"].isoformat() == run.entries[row["seq"]].time_utc
    said, told = found["trace"]
    assert (said["kind"], said["name"], said["text"], said["call_id"]) == (
        "tool_call",
        "bash",
        "ls",
        "t1",
    )
    assert (told["kind"], told["input_tokens"], told["cost_usd"]) == ("usage", 50, None)
    row = only(found["revisions"])
    assert (row["revision"], row["cause"], row["changed"]) == ("c1", "change", ["train.py"])
    row = only(found["processes"])
    assert (row["argv"], row["cpu_s"]) == (["python", "train.py"], 18.5)
    assert row["max_rss_bytes"] == 2**30


def test_findings_hold_the_judgement_on_the_mode_and_the_evidence(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 9.0)
    run.add(finding("breach", submission_id=1), audited(ModeVerdict.SUSPECT, summary="maybe"))
    made, mode = tables(run)["findings"]
    assert (made["rule"], made["severity"], made["submission_id"]) == ("known_model", "breach", 1)
    assert (made["verdict"], made["methods"], made["rules_version"]) == (None, [], "7")
    assert json.loads(made["evidence"]) == [
        {
            "source": "code",
            "path": "code/train.py",
            "revision": "c1",
            "line": 7,
            "quote": 'x = "GRPO"',
        }
    ]
    assert (mode["rule"], mode["severity"], mode["verdict"]) == ("mode", "warning", "suspect")
    assert (mode["methods"], mode["summary"], mode["rules_version"]) == (["sft"], "maybe", "3")


@pytest.mark.parametrize(
    ("verdict", "severity"),
    [("clean", "info"), ("unknown", "info"), ("suspect", "warning"), ("breach", "breach")],
)
def test_a_verdict_has_a_severity(story: MakeStory, verdict: str, severity: str) -> None:
    run = story("r").start().add(audited(ModeVerdict(verdict)))
    assert only(tables(run)["findings"])["severity"] == severity


def test_events_leave_out_what_comes_by_the_thousand(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(*one_of_each()).submit(1, 9.0).finish()
    found = tables(run)
    kinds = {row["type"] for row in found["events"]}
    assert kinds.isdisjoint({"agent_event", "driver_call", "process_seen"})
    assert kinds >= {"sandbox_ready", "code_changed", "mode_audited", "finding_made"}
    seqs = {row["seq"] for name in found for row in found[name] if "seq" in row}
    assert seqs == {entry.seq for entry in run.entries}


def test_a_run_tells_what_its_agent_and_driver_used(story: MakeStory) -> None:
    run = story("r", tasks=("alfworld", "gsm8k")).start().baseline(5.0, 6.0).add(*one_of_each())
    run.add(failed_call(DriverFailure.RATE_LIMITED, status=429)).submit(1, 9.0, 9.0).finish()
    for row in tables(run)["runs"]:
        expected = {
            "sandbox": "bwrap",
            "num_sessions": 1,
            "driver_calls": 2,
            "driver_failed_calls": 1,
            "driver_unknown_calls": 0,
            "input_tokens": 100,
            "output_tokens": 10,
            "cached_tokens": 60,
            "cost_usd": 0.5,
            "total_cost_usd": 0.5,
            "driver_failure": "rate_limited",
            "agent_input_tokens": 50,
            "agent_output_tokens": 5,
            "agent_cost_usd": None,
            "num_turns": 1,
            "num_tool_calls": 1,
            "num_agent_errors": 0,
            "num_live_children": 0,
            "num_revisions": 1,
            "mode_verdict": "clean",
            "mode_methods": ["sft"],
            "audit_rules_version": "3",
            "num_findings": 1,
            "num_breaches": 0,
            "num_invalid": 0,
            "is_invalid": False,
            "counts": True,
        }
        assert {name: row[name] for name in expected} == expected


def test_a_run_without_a_driver_has_nulls_and_no_zeros(story: MakeStory) -> None:
    row = only(tables(story("r").start().baseline(5.0).finish())["runs"])
    driver = {"input_tokens", "output_tokens", "cached_tokens", "cost_usd", "total_cost_usd"}
    agent = {"agent_cost_usd", "num_turns", "num_tool_calls", "num_agent_errors", "mode_verdict"}
    assert {row[name] for name in driver | agent} == {None}
    assert (row["driver_calls"], row["driver_failure"], row["sandbox"]) == (0, "", "")


def test_an_invalid_run_keeps_its_scores_marked(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 90.0)
    run.add(audited(ModeVerdict.BREACH)).finish(RunEnd.INVALID)
    row = only(tables(run)["runs"])
    assert (row["end"], row["is_invalid"], row["counts"]) == ("invalid", True, False)
    assert (row["best_score"], row["mode_verdict"]) == (90.0, "breach")


def test_an_invalid_submission_is_marked_and_leaves_the_curve_of_the_best(
    story: MakeStory,
) -> None:
    run = story("r").start().baseline(5.0).submit(1, 90.0).submit(2, None).submit(3, 40.0)
    run.add(finding("breach", summary="the instruct model", submission_id=1)).submit(4, 30.0)
    found = tables(run)["submissions"]
    assert [r["is_invalid"] for r in found] == [True, False, False, False]
    assert found[0]["invalid_reason"] == "known_model: the instruct model"
    assert [r["score"] for r in found] == [90.0, None, 40.0, 30.0]
    assert [r["best_so_far"] for r in found] == [None, None, 40.0, 40.0]
    row = only(tables(run)["runs"])
    assert (row["best_score"], row["best_submission_id"], row["first_score"]) == (40.0, 3, 40.0)
    assert (row["num_invalid"], row["num_graded"], row["num_breaches"]) == (1, 3, 1)


def test_a_breach_marks_its_own_attempts_submission_only(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 90.0).finish(RunEnd.INFRA_ERROR, final=False)
    run.start(1).baseline(5.0).submit(1, 50.0).add(finding("breach", submission_id=1))
    found = tables(run)["submissions"]
    assert [(r["attempt"], r["is_invalid"], r["best_so_far"]) for r in found] == [
        (0, False, 90.0),
        (1, True, None),
    ]


def test_rows_of_all_attempts_and_sessions_stay(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(*one_of_each())
    run.add(AgentStarted(pid=2, argv=("true",), session=1), tool_call("again"))
    run.finish(RunEnd.DRIVER_ERROR, final=False).start(1).baseline(5.0).add(*one_of_each())
    found = tables(run)
    for name in ("driver_calls", "revisions", "processes", "findings"):
        assert {row["attempt"] for row in found[name]} == {0, 1}
    places = [(row["attempt"], row["session"], row["text"]) for row in found["trace"]]
    assert places == [(0, 0, "ls"), (0, 0, ""), (0, 1, "again"), (1, 0, "ls"), (1, 0, "")]
    assert only(found["runs"])["driver_calls"] == 1


def test_a_ledger_of_before_reads(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).finish()
    lines = []
    for entry in run.entries:
        line = entry.model_dump(mode="json", exclude_defaults=True)
        line["event"]["type"] = entry.event.type
        lines.append(json.dumps(line))
    text = "\n".join(lines) + "\n"
    for new in ("session", "final_event", "num_live_children", "max_driver_usd", "resume_argv"):
        assert new not in text
    run.path.write_text(text)
    found = tables(run)
    row = only(found["runs"])
    assert (row["improvement"], row["counts"], row["num_sessions"]) == (15.0, True, 1)
    assert found["driver_calls"] == found["trace"] == found["findings"] == []


def test_figures_no_table_can_hold_are_null(story: MakeStory, sweep_paths: SweepPaths) -> None:
    run = story("r").start().baseline(5.0).add(usage(10**30, 5), usage(-1, 6))
    sink = ParquetSink(sweep_paths.tables)
    sink.open()
    sink.write_run(records_of("r", read_ledger(run.path)).snapshot())
    found = tables(run)["trace"]
    assert [(r["input_tokens"], r["output_tokens"]) for r in found] == [(None, 5), (None, 6)]


def test_broken_characters_of_an_agent_reach_the_tables(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(tool_call("bad \udc80 byte"))
    pushed = records_of("r", run.entries).snapshot().table("trace").to_pylist()
    assert only(pushed)["text"] == "bad ? byte"
    assert tables(run)["trace"] == pushed


def entries_of(events: list[Event]) -> list[Entry]:
    """As a ledger would give them, without a disk."""
    time_utc = "2030-01-01T00:00:00+00:00"
    return [
        Entry(seq=seq, time_utc=time_utc, elapsed_s=float(seq), event=event)
        for seq, event in enumerate(events)
    ]


def test_many_looks_at_a_growing_table_leave_few_batches() -> None:
    growing = Growing(EVENTS, event_row)
    place = Place(run_id="r", sweep="s", attempt=0)
    first = None
    for entry in entries_of([revision(f"c{n}") for n in range(1000)]):
        growing.add(place, entry)
        looked = growing.batches()
        first = first or looked
    assert len(looked) == 4
    assert first is not None
    assert [batch.get().num_rows for batch in first] == [1]
    whole = pa.Table.from_batches([batch.get() for batch in looked])
    assert whole.column("seq").to_pylist() == list(range(1000))


def test_the_chart_of_a_long_trace_stays_small(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    events = [entry.event for entry in run.entries]
    for n in range(2000):
        events += [tool_call("x" * 1000), tool_call(), call(n + 1, at_s=0.3 * n)]
    snapshot = records_of("r", entries_of(events)).snapshot()
    assert snapshot.table("trace").num_rows == 4000
    assert snapshot.table("driver_calls").num_rows == 2000
    points = [point for point in snapshot.curve if isinstance(point, DriverPoint)]
    assert 100 < len(points) <= MAX_DRIVER_POINTS
    assert [p.use.num_calls for p in points] == sorted(p.use.num_calls for p in points)
    assert snapshot.view.driver_use.num_calls == 2000


def test_later_snapshots_only_add_to_the_chart(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(call(at_s=1.0)).submit(1, 20.0)
    records = records_of("r", run.entries)
    before = records.snapshot().curve
    seen = len(run.entries)
    run.add(call(at_s=1.1), call(at_s=50.0)).submit(2, None).submit(3, 30.0).finish()
    for entry in run.entries[seen:]:
        records.fold(entry)
    after = records.snapshot().curve
    assert after[: len(before)] == before
    kinds = [p.use.num_calls if isinstance(p, DriverPoint) else p.submission_id for p in after]
    assert kinds == [1, 1, 3, 3]


def test_docs_name_every_table_and_column() -> None:
    text = DOCS.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `(\w+)`.*?$(.*?)(?=^## |\Z)", text, flags=re.M | re.S))
    assert set(sections) == set(SCHEMAS)
    shared = set(re.findall(r"`(\w+)`", text.split("## `", 1)[0]))
    for table, schema in SCHEMAS.items():
        named = set(re.findall(r"`(\w+)`", sections[table]))
        assert set(schema.names) - named - shared == set(), table


def test_queries_of_the_docs_run(
    story: MakeStory,
    sweep_paths: SweepPaths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = ParquetSink(sweep_paths.tables)
    sink.open()
    good = story("good").start().baseline(5.0).add(*one_of_each()).submit(1, 45.0).finish()
    bad = story("bad").start().baseline(5.0).submit(1, 95.0)
    bad.add(process(), audited(ModeVerdict.BREACH, summary="GRPO")).finish(RunEnd.INVALID)
    for run in (good, bad):
        sink.write_run(records_of(run.run_id, run.entries).snapshot())
    blocks = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) == 3
    monkeypatch.chdir(sweep_paths.root)
    told = []
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), {})  # noqa: S102  our own documentation
        told.append(capsys.readouterr().out)
    assert "40.0" in told[0]
    assert "90.0" not in told[0]
    assert re.search(r"m\s+NaN\s+1\s+2\.0\s+10\s+0\.5", told[1])
    assert "GRPO" in told[2]
