"""The shop against recorded outputs of the original; the counts are the benchmark's."""

from pathlib import Path

import pytest

from benchmarks.webshop_parity import Recorded
from envs.webshop_nouns import WORD_LIST, find_tagger, get_tagger


@pytest.fixture(scope="module")
def recorded(real_data: Path) -> Recorded:
    return Recorded(real_data)


def test_prices_and_goals_are_the_original_s(recorded: Recorded) -> None:
    counts = recorded.compare_goals()
    assert len(counts) == 6
    assert all(count.holds for count in counts), counts


def test_searches_rank_and_score_as_lucene_does(recorded: Recorded) -> None:
    counts = recorded.compare_searches()
    assert [count.num_equal for count in counts] == [20, 20]


def test_sessions_are_equal_word_for_word(recorded: Recorded) -> None:
    [count] = recorded.compare_traces()
    assert (count.num_equal, count.num_compared) == (12, 12)


def test_rewards_are_equal_in_every_part(recorded: Recorded) -> None:
    count = recorded.compare_rewards()
    assert (count.num_equal, count.num_compared) == (300, 300)


def test_rewards_are_equal_with_the_installed_model(recorded: Recorded) -> None:
    installed = find_tagger()
    if installed == WORD_LIST:
        pytest.skip("no package of spaCy's en_core_web_sm is installed")
    tagger = get_tagger(installed)
    if not tagger.label.endswith((" 3.8.0", " 3.6.0")):
        pytest.skip(f"nothing was recorded with {tagger.label}")
    assert recorded.compare_tagger(tagger).num_equal == 300


def test_the_stand_in_mostly_agrees(recorded: Recorded) -> None:
    assert recorded.compare_tagger(get_tagger(WORD_LIST)).num_equal == 290
