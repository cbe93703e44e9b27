"""Routes of recorded runs: from code that ran, from what is left of it, and from tables alone."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from analysis.results import Results, load
from analysis.route_model import RouteKind, kind_of_file, kind_of_name
from analysis.routes import Routes, routes_of
from analysis.synthetic.scripts import Kind, script
from rl_bench.events import ModeAudited, ModeVerdict
from rl_bench.run_records import records_of
from rl_bench.sinks.parquet import ParquetSink
from tests.analysis.synthetic_scene import SyntheticSweep
from tests.rl_bench.audit_scene import AuditScene, case


def results_of(scene: AuditScene) -> Results:
    """The scene's ledger as tables."""
    sink = ParquetSink(scene.sweep.tables)
    sink.open()
    sink.write_run(records_of("r", scene.entries).snapshot())
    return load([scene.sweep.root])


def training(kind: Kind, *, base: str, out: str) -> str:
    return script(kind, base=base, out=out, rate=1e-5, steps=50)


def train(
    scene: AuditScene, kind: Kind, *, base: str = "models/base", out: str, at_s: float
) -> None:
    """A script of its own that is written and runs for a minute."""
    scene.write(f"{kind}.py", training(kind, base=base, out=out), at_s=at_s - 10)
    scene.process("python", f"code/{kind}.py", at_s=at_s, duration_s=60)


def kinds(routes: Routes) -> list[str]:
    return routes.segments()["kind"].to_list()


def final(routes: Routes) -> dict[str, object]:
    rows = routes.finals().rows(named=True)
    assert len(rows) == 1
    return rows[0]


@pytest.fixture
def two_stages(tmp_path: Path) -> AuditScene:
    """Supervised, then RL from what that made; the second is the best."""
    scene = AuditScene(tmp_path, mode="free")
    train(scene, "sft", out="output/a", at_s=100)
    scene.submit(1, score=20, at_s=170, model_path="output/a", digest="a")
    train(scene, "rl_online", base="output/a", out="output/b", at_s=1000)
    scene.submit(2, score=60, at_s=1100, model_path="output/b", digest="b")
    return scene


def test_methods_stand_in_the_order_in_which_they_ran(two_stages: AuditScene) -> None:
    routes = routes_of(results_of(two_stages))
    segments = routes.segments().filter(pl.col("kind") != "diagnose")
    assert segments["kind"].to_list() == ["sft", "rl_online"]
    assert segments["submissions"].to_list() == [[1], [2]]
    assert segments["began_s"].to_list() == [100.0, 1000.0]
    assert segments["ended_s"].to_list() == [160.0, 1060.0]
    assert segments["methods"].to_list() == [["sft"], ["grpo"]]
    assert all(confidence == 0.9 for confidence in segments["confidence"])
    assert "GRPOTrainer" in segments["evidence"][1]


def test_stages_of_one_process_follow_each_other(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path, mode="rl_only")
    scene.process("python", "-m", "rl_bench.agents.reference", at_s=5, duration_s=220)
    scene.submit(1, score=20, at_s=40, model_path="output/checkpoints/01-warmup-100", digest="a")
    (scene.workspace / "output" / "logs").mkdir()
    (scene.workspace / "output" / "logs" / "grpo.jsonl").write_text("")
    scene.submit(2, score=60, at_s=200, model_path="output/checkpoints/02-grpo-10", digest="b")
    segments = routes_of(results_of(scene)).segments().filter(pl.col("kind") != "diagnose")
    assert segments["kind"].to_list() == ["sft", "rl_online"]
    assert segments["began_s"].to_list() == pytest.approx([5, 40], abs=0.01)
    assert segments["ended_s"].to_list() == pytest.approx([40, 225], abs=0.01)
    assert segments["submissions"].to_list() == [[1], [2]]


def test_the_best_is_followed_back_to_what_it_was_trained_from(two_stages: AuditScene) -> None:
    found = final(routes_of(results_of(two_stages)))
    assert (found["route"], found["joined_by"], found["basis"]) == (
        "sft → rl_online",
        "path",
        "code",
    )
    assert (found["submission_id"], found["confidence"]) == (2, 0.9)


def test_a_start_from_the_base_leaves_earlier_trainings_out(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path, mode="free")
    train(scene, "sft", out="output/a", at_s=100)
    scene.submit(1, score=20, at_s=170, model_path="output/a", digest="a")
    train(scene, "rl_online", base="models/base", out="output/b", at_s=1000)
    scene.submit(2, score=60, at_s=1100, model_path="output/b", digest="b")
    assert final(routes_of(results_of(scene)))["route"] == "rl_online"


def test_the_best_may_be_an_earlier_one(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path, mode="free")
    train(scene, "sft", out="output/a", at_s=100)
    scene.submit(1, score=70, at_s=170, model_path="output/a", digest="a")
    train(scene, "preference", base="output/a", out="output/b", at_s=1000)
    scene.submit(2, score=60, at_s=1100, model_path="output/b", digest="b")
    routes = routes_of(results_of(scene))
    assert final(routes)["route"] == "sft"
    assert [k for k in kinds(routes) if k != "diagnose"] == ["sft", "preference"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("trl_dpo", [RouteKind.PREFERENCE]),
        ("offline_weighted", [RouteKind.RL_OFFLINE]),
        ("custom_reinforce", [RouteKind.RL_ONLINE]),
        ("merge_weights", [RouteKind.MERGE]),
        ("distill", [RouteKind.DISTILL]),
        ("warmup_then_grpo", [RouteKind.SFT, RouteKind.RL_ONLINE]),
        ("sft_mentions_rl", [RouteKind.SFT]),
        ("reward_model", [RouteKind.OTHER]),
    ],
)
def test_code_is_parsed_not_searched_for_words(
    name: str, expected: Sequence[RouteKind], tmp_path: Path
) -> None:
    scene = AuditScene(tmp_path, mode="free")
    scene.write("main.py", case(name), at_s=5)
    scene.process("python", "code/main.py", at_s=100, duration_s=60)
    scene.submit(1, score=60, at_s=200, model_path="output/anything", digest="x")
    routes = routes_of(results_of(scene))
    assert [k for k in kinds(routes) if k != "diagnose"] == list(expected)
    assert final(routes)["kinds"] == list(expected)


def test_code_that_did_not_run_is_told_and_is_no_route(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path, mode="free")
    train(scene, "sft", out="output/a", at_s=100)
    scene.write("other.py", case("trl_grpo"), at_s=300)
    scene.submit(1, score=60, at_s=400, model_path="output/a", digest="a")
    routes = routes_of(results_of(scene))
    assert "rl_online" not in kinds(routes)
    assert routes.by_run["r"].written == ("grpo",)


def test_what_was_graded_before_is_a_resubmission(two_stages: AuditScene) -> None:
    two_stages.submit(3, score=60, at_s=1200, model_path="models/base", digest="z", unchanged=True)
    segments = routes_of(results_of(two_stages)).segments()
    again = segments.filter(pl.col("kind") == "resubmission")
    assert again["submissions"].to_list() == [[3]]
    assert again["began_s"].to_list() == [1200.0]
    trained = segments.filter(pl.col("num_trainings") > 0)["submissions"].to_list()
    assert trained == [[1], [2]]


def test_time_before_and_between_trainings_is_diagnosis(two_stages: AuditScene) -> None:
    two_stages.command("python code/look.py", "3 rows", at_s=20)
    two_stages.command("nvidia-smi", "idle", at_s=500)
    segments = routes_of(results_of(two_stages)).segments()
    looks = segments.filter(pl.col("kind") == "diagnose")
    assert looks.select("began_s", "ended_s").rows()[:2] == [(0.0, 100.0), (160.0, 1000.0)]


def test_without_its_folder_the_trace_still_shows_the_code(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path, mode="free")
    text = training("rl_online", base="models/base", out="output/b")
    scene.command(f"cat > code/go.py << 'EOF'\n{text}\nEOF", at_s=5)
    scene.command("python code/go.py > output/go.log", "", at_s=100)
    scene.process("python", "code/go.py", at_s=100.5, duration_s=60)
    scene.submit(1, score=60, at_s=200, model_path="output/b", digest="b")
    results = results_of(scene)
    shutil.rmtree(scene.paths.root)
    found = final(routes_of(results))
    assert (found["route"], found["basis"], found["confidence"]) == ("rl_online", "trace", 0.9)


def test_from_tables_alone_confidence_is_low(two_stages: AuditScene) -> None:
    two_stages.add(
        ModeAudited(
            verdict=ModeVerdict.CLEAN, rules_version="1", summary="", methods=("sft", "grpo")
        )
    )
    results = results_of(two_stages)
    shutil.rmtree(two_stages.paths.root)
    routes = routes_of(results)
    found = final(routes)
    assert found["route"] == "sft → rl_online"
    assert found["basis"] == "processes"
    confidence = found["confidence"]
    assert isinstance(confidence, float)
    assert confidence <= 0.4
    assert routes.by_run["r"].problems


def test_nothing_known_is_said_to_be_unknown(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path, mode="free")
    scene.submit(1, score=60, at_s=200, model_path="output/b", digest="b")
    results = results_of(scene)
    shutil.rmtree(scene.paths.root)
    routes = routes_of(results)
    assert (final(routes)["route"], final(routes)["confidence"]) == ("", 0.0)
    assert routes.segments().is_empty()
    assert routes.by_run["r"].basis == "none"


def test_a_broken_history_is_told(two_stages: AuditScene) -> None:
    results = results_of(two_stages)
    shutil.rmtree(two_stages.paths.code_history / "objects")
    shutil.rmtree(two_stages.workspace)
    routes = routes_of(results)
    assert any("history" in problem for problem in routes.by_run["r"].problems)


def test_code_that_cannot_be_parsed_stops_nothing(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path, mode="free")
    scene.write("main.py", "def (:\n" + "(" * 5000, at_s=5)
    scene.process("python", "code/main.py", at_s=100, duration_s=60)
    scene.submit(1, score=60, at_s=200, model_path="output/b", digest="b")
    routes = routes_of(results_of(scene))
    assert final(routes)["route"] == ""
    assert any("main.py" in problem for problem in routes.by_run["r"].problems)


def test_a_training_that_broke_off_is_less_certain(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path, mode="free")
    scene.write("go.py", case("trl_grpo"), at_s=5)
    failure = "Traceback (most recent call last):\nCUDA out of memory"
    scene.command("python code/go.py", failure, at_s=100)
    scene.submit(1, score=60, at_s=200, model_path="output/grpo/final", digest="b")
    found = final(routes_of(results_of(scene)))
    assert (found["route"], found["confidence"]) == ("rl_online", 0.6)


def test_a_thousand_commands_hide_no_training(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path, mode="free")
    for number in range(1000):
        scene.command(f"ls -l output/{number}", at_s=10 + number / 100)
    train(scene, "rl_online", out="output/b", at_s=1000)
    scene.submit(1, score=60, at_s=1100, model_path="output/b", digest="b")
    assert final(routes_of(results_of(scene)))["route"] == "rl_online"


def test_planted_routes_are_found_where_there_is_code(synthetic: SyntheticSweep) -> None:
    found = routes_of(synthetic.results).finals()
    assert found.height == synthetic.results.runs.height
    for row in found.iter_rows(named=True):
        truth = synthetic.truth["runs"][row["run_id"]]
        best = truth["tasks"][row["task"]]["best_submission_id"]
        assert row["kinds"] == (truth["best_route"] if best is not None else []), row["run_id"]


def test_planted_routes_over_time(synthetic: SyntheticSweep) -> None:
    segments = routes_of(synthetic.results).segments().filter(pl.col("num_trainings") > 0)
    by_run = dict(segments.group_by("run_id", maintain_order=True).agg("kind").iter_rows())
    for name, truth in synthetic.truth["runs"].items():
        assert by_run.get(name, []) == truth["route"], name


def test_when_time_is_up_no_code_is_read(synthetic: SyntheticSweep) -> None:
    name = synthetic.with_fate("completed")
    routes = routes_of(synthetic.results, [name], total_s=0.0)
    assert list(routes.by_run) == [name]
    assert routes.by_run[name].basis != "code"
    assert "the code was not read" in routes.by_run[name].problems


def test_names_of_methods_and_files() -> None:
    assert kind_of_name("grpo") is RouteKind.RL_ONLINE
    assert kind_of_name("iterative_dpo") is RouteKind.PREFERENCE
    assert kind_of_name("something new") is RouteKind.OTHER
    assert kind_of_file("code/train_grpo_v2.py") is RouteKind.RL_ONLINE
    assert kind_of_file("code/merge_weights.py") is RouteKind.MERGE
    assert kind_of_file("code/helper.py") is None
