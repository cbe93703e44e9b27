"""A real ledger, cut at every byte, damaged at every line: nothing is lost or counted twice."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_bench.errors import LedgerError
from rl_bench.events import (
    BaselineGraded,
    Entry,
    Evaluation,
    Item,
    RunEnd,
    RunFinished,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import Ledger, read_ledger, read_ledger_part
from rl_bench.paths import SweepPaths
from rl_bench.run_view import RunView, fold_all
from rl_bench.scoreboard import Scoreboard
from rl_bench.view_store import ViewStore
from tests.adversarial.bounds import MANY
from tests.rl_bench.grading_scene import Scene, make_spec

TASKS = ("a", "b")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The ledger of a run in mode multi with submissions, a repeat and a refusal, to its end."""
    scene = Scene(tmp_path_factory.mktemp("ledger"), make_spec(*TASKS))
    scene.ledger.append(RunStarted(run_id="r", sweep="s", attempt=0, spec=scene.spec))
    with scene.serving():
        for name, value in (("m1", 3.0), ("m2", 9.0), ("m2", 9.0), ("m3", 4.0)):
            path = scene.checkpoint(name, value=value)
            assert httpx.post(f"{scene.server.url}/submit", json={"model_path": path}).is_success
        httpx.post(f"{scene.server.url}/submit", json={"model_path": "ü/\u2028"})
        scene.ledger.append(RunFinished(end=RunEnd.COMPLETED, detail="", final=True))
    return scene.paths.ledger.read_bytes()


def place(tmp_path: Path, data: bytes) -> Path:
    ledger = SweepPaths(tmp_path).run("r").ledger
    ledger.parent.mkdir(parents=True, exist_ok=True)
    ledger.write_bytes(data)
    return ledger


def test_lines_are_what_pydantic_writes(whole: bytes, tmp_path: Path) -> None:
    entries = read_ledger(place(tmp_path, whole))
    assert whole.decode() == "".join(f"{entry.model_dump_json()}\n" for entry in entries)


def test_cut_at_every_byte(whole: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entries = read_ledger(place(tmp_path, whole))
    ends = [0]
    for line in whole.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    assert len(ends) == len(entries) + 1
    kept = 0
    caplog.set_level(logging.WARNING)
    for size in range(len(whole) + 1):
        while kept + 1 < len(ends) and ends[kept + 1] <= size:
            kept += 1
        path = place(tmp_path, whole[:size])
        caplog.clear()
        part = read_ledger_part(path)
        assert part.entries == entries[:kept]
        assert part.offset == ends[kept]
        assert bool(caplog.records) == (size != ends[kept]), "a cut is told, and nothing else is"


def test_a_cut_ledger_goes_on(whole: bytes, tmp_path: Path) -> None:
    """A sample of the cuts: opening it again fsyncs."""
    entries = read_ledger(place(tmp_path, whole))
    finished = entries[-1].event
    for size in range(0, len(whole), 97):
        path = place(tmp_path, whole[:size])
        kept = len(read_ledger(path))
        with Ledger(path) as ledger:
            ledger.append(finished)
        again = read_ledger(path)
        assert again[:kept] == entries[:kept]
        assert [entry.seq for entry in again] == list(range(len(again)))
        assert again[-1].event == finished


def test_resume_after_any_cut_counts_no_submission_twice(whole: bytes, tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    entries = read_ledger(place(tmp_path, whole))
    accepted = [e.event for e in entries if isinstance(e.event, SubmissionAccepted)]
    assert [event.submission_id for event in accepted] == [1, 2, 3]
    spec = next(e.event.spec for e in entries if isinstance(e.event, RunStarted))
    for size in range(0, len(whole) + 1, 53):
        path = place(tmp_path, whole[:size])
        known = read_ledger(path)
        view = ViewStore(paths).view("r")
        board = Scoreboard(spec)
        board.restore(known)
        told = [e.event for e in known if isinstance(e.event, SubmissionAccepted)]
        assert view.num_submissions == len(board.submissions) == len(told)
        # What is left to grade is what was accepted and has no verdict: each once.
        graded = {e.event.submission_id for e in known if isinstance(e.event, SubmissionGraded)}
        pending = [submission.submission_id for submission in board.pending()]
        assert pending == [
            event.submission_id for event in told if event.submission_id not in graded
        ]
        for task in TASKS:
            if task in view.tasks:
                best = board.best(task)
                assert view.tasks[task].best == (best and best.score)
        assert view.is_finished == (size == len(whole))


def test_what_is_graded_after_a_cut_is_counted_once(whole: bytes, tmp_path: Path) -> None:
    """The verdict that a kill left out comes again, and once more: one submission, one score."""
    entries = read_ledger(place(tmp_path, whole))
    verdicts = [entry for entry in entries if isinstance(entry.event, SubmissionGraded)]
    lines = whole.splitlines(keepends=True)
    for verdict in verdicts:
        path = place(tmp_path, b"".join(lines[: verdict.seq]) + lines[verdict.seq][:-1])
        with Ledger(path) as ledger:
            ledger.append(verdict.event)
            ledger.append(verdict.event)
        view = fold_all("r", read_ledger(path))
        before = fold_all("r", entries[: verdict.seq + 1])
        for task in TASKS:
            assert view.tasks[task].num_graded == before.tasks[task].num_graded
            assert view.tasks[task].best == before.tasks[task].best


def test_a_line_that_is_lost_doubled_or_changed_is_named(whole: bytes, tmp_path: Path) -> None:
    lines = whole.splitlines(keepends=True)
    for number in range(1, len(lines)):  # the last may be torn, which is no damage
        index = number - 1
        damages = (
            [*lines[:index], *lines[number:]],
            [*lines[:number], *lines[index:]],
            [*lines[:index], lines[index][:-9] + b"\n", *lines[number:]],
            [*lines[:index], b"\x00" * 40 + b"\n", *lines[number:]],
            [*lines[:index], b"\n", *lines[number:]],
        )
        for damaged in damages:
            with pytest.raises(LedgerError, match=r"line \d+ .*\. Move the run's folder away"):
                read_ledger(place(tmp_path, b"".join(damaged)))


@MANY
@given(at=st.integers(min_value=0), byte=st.integers(0, 255))
def test_any_byte_changed_is_an_entry_or_a_named_line(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    data = bytearray(whole)
    data[at % len(whole)] = byte
    path = place(tmp_path_factory.mktemp("byte"), bytes(data))
    try:
        fold_all("r", read_ledger(path))
    except LedgerError as error:
        assert f"{path}, line " in str(error)  # noqa: PT017  either is right


# The fold itself


def verdict(task: str, score: float | None) -> Evaluation:
    return Evaluation(
        task=task,
        score=score,
        num_items=4,
        num_errors=0 if score is not None else 4,
        evaluator_version="1",
        failure="" if score is not None else "down",
    )


def accepted(number: int) -> SubmissionAccepted:
    return SubmissionAccepted(
        submission_id=number,
        model_path=f"output/{number}",
        content_hash=str(number),
        tasks=("a",),
        budget_used_s=1.0,
        code_revision="",
    )


SCORES = st.none() | st.sampled_from([0.0, 50.0, 50.5, 100.0]) | st.floats(allow_nan=True)


def folded(
    events: Sequence[SubmissionAccepted | SubmissionGraded],
) -> tuple[RunView, list[float | None]]:
    """The view in the end, and the best after each event."""
    view, bests = RunView(run_id="r"), []
    start = RunStarted(run_id="r", sweep="s", attempt=0, spec=make_spec("a"))
    now = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    for seq, event in enumerate([start, *events]):
        view.fold(Entry(seq=seq, time_utc=now, elapsed_s=float(seq), event=event))
        bests.append(view.best)
    return view, bests


@MANY
@given(st.lists(SCORES, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_best_so_far(scores: list[float | None], random: Random) -> None:
    finite = [s for s in scores if s is not None and abs(s) < float("inf")]
    accepts = [accepted(number) for number in range(1, len(scores) + 1)]
    verdicts = [
        SubmissionGraded(submission_id=number, evaluations=(verdict("a", score),))
        for number, score in enumerate(scores, start=1)
    ]
    view, bests = folded([*accepts, *verdicts])
    known = [best for best in bests if best is not None]
    assert known == sorted(known), "the best never falls"
    assert view.best == (max(finite) if finite else None)
    task = view.tasks["a"]
    assert (task.num_graded, task.num_failed) == (len(finite), len(scores) - len(finite))
    if finite:
        assert task.best_submission_id == scores.index(max(finite)) + 1

    shuffled = [*verdicts]
    random.shuffle(shuffled)
    other, _ = folded([*accepts, *shuffled])
    assert (other.best, other.tasks["a"].best_submission_id, other.tasks["a"].first) == (
        view.best,
        task.best_submission_id,
        task.first,
    )
    assert other.tasks["a"].num_failed == task.num_failed


def test_a_score_stands_whatever_comes_after_it() -> None:
    """A verdict that is told again, or another one, changes neither score, best nor times."""
    first = verdict("a", 50.0).model_copy(update={"queue_s": 3.0, "duration_s": 4.0})
    other = first.model_copy(update={"score": 90.0})
    once, _ = folded([accepted(1), SubmissionGraded(submission_id=1, evaluations=(first,))])
    again, bests = folded(
        [
            accepted(1),
            *(SubmissionGraded(submission_id=1, evaluations=(each,)) for each in (first, other)),
            SubmissionGraded(submission_id=1, evaluations=(first,)),
        ]
    )
    assert again.tasks == once.tasks
    assert bests[-3:] == [50.0] * 3


MARKS = (',"score":null,', '},{"item_id":', '"items":[', '],"queue_s":', ',"detail":{', "score", "")
ITEMS = st.lists(
    st.builds(
        Item,
        item_id=st.sampled_from(MARKS),
        status=st.sampled_from(["ok", "env_error", "unjudged", *MARKS]),
        score=st.none() | st.floats(0.0, 1.0),
        num_steps=st.just(1),
        num_tokens=st.just(2),
        duration_s=st.just(0.5),
        detail=st.dictionaries(
            st.sampled_from(["item_id", "score", "num_steps", "detail"]),
            st.none() | st.sampled_from(MARKS),
        ),
    ),
    max_size=4,
).map(tuple)


def judged(items: tuple[Item, ...]) -> Evaluation:
    """A verdict with a score that as many items lack as do."""
    num_errors = sum(item.score is None for item in items)
    update = {"items": items, "num_items": len(items), "num_errors": num_errors}
    return verdict("a", 50.0).model_copy(update=update)


@MANY
@given(st.lists(ITEMS, min_size=2, max_size=4))
def test_a_view_needs_only_the_items_without_a_verdict(
    tmp_path_factory: pytest.TempPathFactory, gradings: list[tuple[Item, ...]]
) -> None:
    base, *submissions = map(judged, gradings)
    path = tmp_path_factory.mktemp("items") / "ledger.jsonl"
    with Ledger(path) as ledger:
        ledger.append(RunStarted(run_id="r", sweep="s", attempt=0, spec=make_spec("a")))
        ledger.append(BaselineGraded(content_hash="base", evaluations=(base,)))
        for number, graded in enumerate(submissions, start=1):
            ledger.append(accepted(number))
            ledger.append(SubmissionGraded(submission_id=number, evaluations=(graded,)))

    bare = read_ledger(path, with_items=False)
    assert fold_all("r", bare) == fold_all("r", read_ledger(path))
    kept = [
        verdict.items
        for event in (entry.event for entry in bare)
        if isinstance(event, BaselineGraded | SubmissionGraded)
        for verdict in event.evaluations
    ]
    assert kept == [tuple(item for item in items if item.score is None) for items in gradings]
