"""What a sink's thread failed to hand on is offered again, a bounded number of times."""

from rl_bench.records import RunSnapshot
from rl_bench.run_records import RunRecords
from rl_bench.sinks.mailbox import MAX_TRIES, Mailbox

DOWN = OSError("disk is gone")


def snapshot(run_id: str) -> RunSnapshot:
    return RunRecords(run_id).snapshot()


def take(mailbox: Mailbox, *, num: int, failing: str = "") -> str:
    """Takes as many, or less if no more come; run ids in order."""
    taken = ""
    while len(taken) < num and (found := mailbox.take()) is not None:
        taken += found.run_id
        if found.run_id in failing:
            mailbox.note_failed(DOWN, found)
        else:
            mailbox.note_taken(found)
    return taken


def test_what_failed_comes_again_after_a_success_and_at_the_end() -> None:
    mailbox = Mailbox()
    for run_id in "abc":
        mailbox.put(snapshot(run_id))
    assert take(mailbox, num=2, failing="ab") == "ab"
    assert mailbox.take_failure() is DOWN
    assert mailbox.take_failure() is None
    assert take(mailbox, num=2) == "ca"
    mailbox.close()
    assert take(mailbox, num=9) == "b"
    assert mailbox.take_failure() is None


def test_a_snapshot_that_always_fails_is_offered_a_few_times_and_at_the_end() -> None:
    mailbox = Mailbox()
    mailbox.put(snapshot("a"))
    taken = take(mailbox, num=1, failing="a")
    for run_id in "bcdefgh":
        mailbox.put(snapshot(run_id))
        taken += take(mailbox, num=1 + (taken.count("a") < MAX_TRIES), failing="a")
    assert taken == "abacadefgh"
    mailbox.close()
    assert take(mailbox, num=9, failing="a") == "a"


def test_two_that_fail_are_not_offered_again_in_a_row() -> None:
    mailbox = Mailbox()
    for run_id in "axbyz":
        mailbox.put(snapshot(run_id))
    assert take(mailbox, num=6, failing="ab") == "axbyza"
    assert len(mailbox) == 0
    mailbox.close()
    assert sorted(take(mailbox, num=9)) == ["a", "b"]


def test_a_later_snapshot_takes_the_place_of_one_that_failed() -> None:
    mailbox = Mailbox()
    first, later = snapshot("a"), snapshot("a")
    mailbox.put(first)
    assert mailbox.take() is first
    mailbox.put(later)
    mailbox.note_failed(DOWN, first)  # after the later one came
    assert mailbox.take() is later
    mailbox.note_failed(DOWN, later)
    mailbox.put(first)
    mailbox.close()
    assert take(mailbox, num=9) == "a"


def test_a_mailbox_that_is_shut_is_empty_and_stays_so() -> None:
    mailbox = Mailbox()
    mailbox.put(snapshot("a"))
    mailbox.put(snapshot("b"))
    take(mailbox, num=1, failing="a")
    mailbox.shut()
    mailbox.put(snapshot("c"))
    assert len(mailbox) == 0
    mailbox.close()
    assert mailbox.take() is None
