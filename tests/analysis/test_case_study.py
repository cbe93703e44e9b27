"""Case studies: the facts of a run for machines and people, and a model's account of them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.case_model import CaseStudy
from analysis.case_study import case_studies, main, write_study
from analysis.case_text import NARRATIVE_NOTE, clock, code, markdown
from analysis.narrative import foreign_numbers, narrate
from analysis.routes import Routes, routes_of
from rl_bench.events import Evidence, FindingMade, RunEnd
from tests.analysis.ledger_scene import LedgerScene
from tests.analysis.synthetic_scene import SyntheticSweep
from tests.rl_bench.judges.stand_in import Answer, Asked, Fault, StandInJudge


def study_of(scene: LedgerScene) -> CaseStudy:
    studies = list(case_studies(scene.results()))
    assert len(studies) == 1
    return studies[0]


@pytest.fixture
def scene(tmp_path: Path) -> LedgerScene:
    """A gain, a fall, a failure that is repaired, and the best."""
    made = LedgerScene(tmp_path, max_submissions=10)
    made.submit(1, 100, 48.0, path="output/v1")
    made.submit(2, 900, 58.0, path="output/v2")
    made.submit(3, 1800, None, path="output/v3")
    made.submit(4, 2700, 40.0, path="output/v4")
    made.submit(5, 4000, 75.0, path="output/v5")
    made.end(5000)
    return made


def test_the_facts_of_a_run(scene: LedgerScene) -> None:
    study = study_of(scene)
    assert study.asked.rules == "The rules of free."
    assert (study.outcome.end, study.outcome.counts) == ("completed", True)
    result = study.results[0]
    assert (result.baseline, result.best_score, result.gain) == (50.0, 75.0, 25.0)
    assert (result.best_submission_id, result.best_s) == (5, 4000.0)
    assert [each.submission_id for each in study.tries] == [1, 2, 3, 4, 5]
    assert [each.is_new_best for each in study.tries] == [True, True, False, False, True]
    assert study.unused.budget_s == 5000.0
    assert study.unused.after_last_s == 1000.0
    assert study.unused.submissions == 5


def test_turning_points(scene: LedgerScene) -> None:
    turns = {turn.kind: turn for turn in study_of(scene).turning_points}
    assert turns["first_score"].submission_id == 1
    assert turns["first_score"].change == -2.0
    assert turns["above_baseline"].submission_id == 2
    assert (turns["leap"].submission_id, turns["leap"].change) == (5, 17.0)
    assert (turns["setback"].submission_id, turns["setback"].change) == (4, -18.0)
    assert turns["best"].submission_id == 5


def test_changes_within_the_noise_are_no_turns(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    for number, score in enumerate((60.0, 61.0, 60.0, 61.5), start=1):
        scene.submit(number, 100.0 * number, score)
    scene.end(600)
    kinds = [turn.kind for turn in study_of(scene).turning_points]
    assert kinds == ["first_score", "best"], "the noise floor is two points"


def test_a_failure_is_told_with_its_repair(scene: LedgerScene) -> None:
    failure = study_of(scene).failures[0]
    assert (failure.kind, failure.submission_id, failure.repaired_by) == ("failed", 3, 4)
    text = markdown(study_of(scene))
    assert "submission 3 failed on words: `it does not load`; repaired by submission 4" in text


def test_why_scores_do_not_count(tmp_path: Path) -> None:
    lost = LedgerScene(tmp_path / "a")
    lost.submit(1, 100, 60.0)
    lost.end(200, end=RunEnd.INFRA_ERROR)
    assert study_of(lost).outcome.why_not == "infrastructure ended it"
    broken = LedgerScene(tmp_path / "b")
    broken.submit(1, 100, 60.0)
    broken.end(200, end=RunEnd.INVALID)
    study = study_of(broken)
    assert study.outcome.why_not == "a rule was broken"
    assert "Its scores do not count: a rule was broken." in markdown(study)


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 100, graded=False)
    study = study_of(scene)
    assert (study.outcome.end, study.outcome.why_not) == (None, "it is not over")
    assert study.results[0].final is None
    assert "`pending`" in markdown(study)


def test_the_file_is_stable_versioned_and_read_back(scene: LedgerScene, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_study(study_of(scene), tmp_path / name)
    first, second = ((tmp_path / n / "summary.json").read_bytes() for n in ("a", "b"))
    assert first == second
    facts = json.loads(first)
    assert list(facts)[:3] == ["version", "run_id", "sweep"]
    assert facts["version"] == 1
    assert CaseStudy.model_validate_json(first) == study_of(scene)


def test_an_agents_words_are_no_markup(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 100, 60.0, path="output/a`\n# Heading |x| <script>")
    finding = FindingMade(
        rule="forbidden_path",
        severity="warning",
        rules_version="1",
        summary="`rm` \n## not a heading",
        evidence=(Evidence(source="trace", quote="cat `x`\n- item"),),
    )
    scene.tell(finding, 150)
    scene.end(200)
    text = markdown(study_of(scene))
    assert "\n# Heading" not in text
    assert "\n## not" not in text
    assert "`output/a' # Heading ¦x¦ <script>`" in text
    for line in text.splitlines():
        assert line.count("`") % 2 == 0, line


def test_every_run_of_a_sweep_has_a_study(synthetic: SyntheticSweep) -> None:
    studies = list(case_studies(synthetic.results))
    assert [study.run_id for study in studies] == sorted(synthetic.truth["runs"])
    for study in studies:
        text = markdown(study)
        assert text.startswith(f"# {study.run_id}\n")
        truth = synthetic.truth["runs"][study.run_id]
        for result in study.results:
            if result.final is not None:
                assert result.final.route == " → ".join(truth["best_route"])
        found = [found.rule for found in study.findings]
        assert ("test_items_in_training" in found) == (truth["fate"] == "invalid_submission")
        assert study.cost.calls == sum(hour.calls for hour in study.cost.by_hour)


def test_a_run_on_several_tasks_is_one_study(synthetic: SyntheticSweep) -> None:
    multi = [s for s in case_studies(synthetic.results) if s.asked.mode == "multi"]
    assert multi
    assert all(len(study.results) == 2 for study in multi)
    assert all({t.task for t in study.turning_points} == set(study.asked.tasks) for study in multi)


def test_the_command(
    synthetic: SyntheticSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = synthetic.with_fate("completed")
    assert main([str(synthetic.folder), str(tmp_path), "--run", name]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]
    assert {path.name for path in (tmp_path / name).iterdir()} == {"summary.json", "summary.md"}
    taken = tmp_path / name / "summary.md"
    for words, told in (
        ([str(synthetic.folder), str(tmp_path), "--run", "nothing"], "there is no run nothing"),
        ([str(tmp_path), str(tmp_path)], "holds no results"),
        ([str(synthetic.folder), str(taken)], "summary.md is no folder: name another"),
    ):
        assert main(words) == 2
        assert told in capsys.readouterr().err


def test_words_for_figures() -> None:
    assert [clock(s) for s in (None, 5, 90, 3599.6, 11_100)] == [
        "–",
        "0:05 min",
        "1:30 min",
        "1:00 h",
        "3:05 h",
    ]
    assert code("a`b\nc") == "`a'b c`"
    assert code("") == "–"


GOOD = "The run began at 48.00 and ended at 75.00 points, after a submission that did not load."


def account(text: str) -> Callable[[Asked], Answer]:
    return lambda asked: Answer(text=text)


def test_an_account_is_marked_as_a_models_words(scene: LedgerScene, tmp_path: Path) -> None:
    study = study_of(scene)
    with StandInJudge(account(GOOD)) as model:
        narrative = narrate([study], model.config(), cache=tmp_path)[0]
        asked = model.asked[0]
    assert (narrative.text, narrative.foreign_numbers, narrative.failure) == (GOOD, (), "")
    assert "75.00" in asked.text
    write_study(study, tmp_path / "r", narrative=narrative)
    text = (tmp_path / "r" / "summary.md").read_text(encoding="utf-8")
    assert NARRATIVE_NOTE in text
    assert GOOD in text
    assert GOOD not in (tmp_path / "r" / "summary.json").read_text(encoding="utf-8")


def test_figures_that_the_facts_do_not_have_are_named(scene: LedgerScene, tmp_path: Path) -> None:
    made_up = GOOD + " It gained 41.7 points in 12 trainings."
    with StandInJudge(account(made_up)) as model:
        narrative = narrate([study_of(scene)], model.config(), cache=tmp_path)[0]
    assert narrative.foreign_numbers == ("41.7", "12")
    assert "not in the facts: 41.7, 12" in narrative.shown
    assert foreign_numbers("5 of 1234", "1,234 and 6") == ()


def test_a_model_that_fails_stops_nothing(scene: LedgerScene, tmp_path: Path) -> None:
    with StandInJudge(account(GOOD), spoil=lambda asked: Fault.UNAUTHORIZED) as model:
        config = model.config(num_retries=0)
        narrative = narrate([study_of(scene)], config, cache=tmp_path)[0]
    assert narrative.text == ""
    assert "401" in narrative.failure
    write_study(study_of(scene), tmp_path / "r", narrative=narrative)
    assert NARRATIVE_NOTE not in (tmp_path / "r" / "summary.md").read_text(encoding="utf-8")


def test_no_account_is_paid_twice(scene: LedgerScene, tmp_path: Path) -> None:
    with StandInJudge(account(GOOD)) as model:
        for _ in range(2):
            assert narrate([study_of(scene)], model.config(), cache=tmp_path)[0].text == GOOD
        assert model.num_requests == 1


def test_a_models_markup_is_text(scene: LedgerScene, tmp_path: Path) -> None:
    with StandInJudge(account(GOOD + "<script>alert()</script>")) as model:
        narrative = narrate([study_of(scene)], model.config(), cache=tmp_path)[0]
    assert "<script" in narrative.text
    assert "<script" not in narrative.shown


def test_the_command_asks_for_accounts(synthetic: SyntheticSweep, tmp_path: Path) -> None:
    name = synthetic.with_fate("completed")
    with StandInJudge(account("An account without a figure, long enough to be one.")) as model:
        words = ["--account-url", model.base_url, "--account-model", "m"]
        assert main([str(synthetic.folder), str(tmp_path), "--run", name, *words]) == 0
    assert "An account without" in (tmp_path / name / "summary.md").read_text(encoding="utf-8")
    alone = ["--account-url", "http://127.0.0.1:9/v1"]
    assert main([str(synthetic.folder), str(tmp_path), *alone]) == 2


def test_routes_made_before_are_taken(synthetic: SyntheticSweep) -> None:
    name = synthetic.with_fate("completed")
    routes: Routes = routes_of(synthetic.results, [name])
    assert [study.run_id for study in case_studies(synthetic.results, routes)] == [name]
