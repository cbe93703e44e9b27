"""Counts of an evaluation and the words for them."""

from rl_bench.grading_status import GradingStatus, Phase, Tally


def test_words_are_short_where_room_is() -> None:
    playing = GradingStatus(
        run_id="r", task="t", phase=Phase.PLAYING, done=57, total=134, repeat=1, num_repeats=3
    )
    assert (str(playing), playing.fraction) == ("57 of 134 episodes, time 2 of 3", "57/134")
    scoring = GradingStatus(run_id="r", task="t", phase=Phase.SCORING)
    assert (str(scoring), scoring.fraction) == ("scoring", "scoring")


def test_stretches_of_a_phase_add_up_while_one_is_open() -> None:
    tally = Tally("r", task="t")
    with tally.stage(Phase.JUDGING, 3) as first:
        first()
        with tally.stage(Phase.JUDGING, 2) as second:
            second()
            assert str(tally.status()) == "judging 2 of 5"
        assert str(tally.status()) == "judging 2 of 5"
    assert str(tally.status()) == "scoring"
    with tally.stage(Phase.JUDGING, 4):
        assert str(tally.status()) == "judging 0 of 4"


def test_a_straggler_counts_nowhere() -> None:
    tally = Tally("r", task="t")
    with tally.stage(Phase.GENERATING, 2) as late:
        pass
    with tally.stage(Phase.PLAYING, 2):
        late()
        assert str(tally.status()) == "0 of 2 episodes"
