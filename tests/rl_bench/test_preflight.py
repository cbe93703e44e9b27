"""Preflight: each thing that a machine may lack is named with its cure, and keys stay secret."""

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_bench.compose import compose
from rl_bench.errors import PreflightError
from rl_bench.events import RunEnd, RunFinished
from rl_bench.ledger import Ledger
from rl_bench.paths import SweepPaths
from rl_bench.plan import expand, run_id
from rl_bench.preflight import Check, Verdict, num_local_gpus, preflight, require
from rl_bench.sweep_claim import claim_sweep

BASE = ("agent=noop", "task=gsm8k_mini", "sandbox=none")


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RL_BENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("RL_BENCH_CACHE", str(tmp_path / "cache"))


def all_checks(*overrides: str, base: Sequence[str] = BASE) -> list[Check]:
    experiment = compose([*base, *overrides]).experiment
    paths = SweepPaths(experiment.paths.results / experiment.sweep.name)
    return preflight(experiment, plan=expand(experiment), paths=paths)


def checks_of(*overrides: str, base: Sequence[str] = BASE) -> dict[str, Check]:
    return {check.name: check for check in all_checks(*overrides, base=base)}


def failures(checks: dict[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if check.verdict is Verdict.FAILED]


def test_a_laptop_has_what_a_control_needs() -> None:
    checks = checks_of()

    assert failures(checks) == []
    assert checks["sandbox none"].verdict is Verdict.WARNING
    require(list(checks.values()))


def test_it_writes_nothing(tmp_path: Path) -> None:
    checks_of()

    assert not (tmp_path / "results").exists()


def test_missing_data_are_named(tmp_path: Path) -> None:
    absent = tmp_path / "absent"

    check = checks_of("task=gsm8k", f"task.data_path={absent}")["task gsm8k"]

    assert check.verdict is Verdict.FAILED
    assert str(absent) in check.detail + check.cure
    assert "RL_BENCH_DATA" in check.cure
    assert "options.task.gsm8k.data_path=" in check.cure
    first = "`python -m rl_bench.prepare task=gsm8k` gets the data. Otherwise: "
    assert check.cure.startswith(first)
    assert check.cure.count("task.gsm8k.data_path=") == 1


def test_missing_data_are_prepared_where_the_sweep_looks_for_them(tmp_path: Path) -> None:
    check = checks_of("task=gsm8k", f"paths.data={tmp_path / 'my data'}")["task gsm8k"]

    command = f"python -m rl_bench.prepare task=gsm8k 'paths.data={tmp_path / 'my data'}'"
    assert command in check.cure


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("task gsm8k", ("task=gsm8k",), ["GSM8K train data", "GSM8K eval data"]),
        ("task alpacaeval", ("task=alpacaeval",), ["reference outputs", "train rows"]),
        ("task alfworld", ("task=alfworld",), ["ReAct examples", "no folder"]),
        (
            "task webshop",
            ("task=webshop", "task.settings.tagger=none"),
            ["no products", "tagger"],
        ),
        (
            "task deepsearchqa",
            ("task=deepsearchqa", "task.protocol=shouting"),
            ["protocol 'shouting'", "DeepSearchQA data", "SERPAPI_KEY"],
        ),
        (
            "judge gpt_5_2",
            ("task=alpacaeval", "task.judge.base_url=nowhere"),
            ["'nowhere' is not an address", "OPENAI_API_KEY"],
        ),
        (
            "driver openai_compatible",
            (
                *("agent=codex", "driver=openai_compatible", "driver.base_url=nowhere"),
                *("driver.model_id=m", "driver.key_variable=NO_KEY", "budget.max_driver_usd=1"),
            ),
            ["NO_KEY is not set", "'nowhere' is not an address", "max_driver_usd cannot hold"],
        ),
        (
            "agent noop",
            ("agent.read_only=[no_such_tools,/nowhere]", "agent.argv=[no_such_program]"),
            ["no_such_tools is not there", "/nowhere is not there", "'no_such_program'"],
        ),
        (
            "audit references",
            ("+audit.references.a=/no/a", "+audit.references.b=/no/b"),
            ["/no/a is no folder", "/no/b is no folder"],
        ),
    ],
)
def test_all_that_one_thing_lacks_is_told_at_once(
    name: str, words: tuple[str, ...], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("SERPAPI_KEY", "OPENAI_API_KEY", "NO_KEY", "RL_BENCH_DATA"):
        monkeypatch.delenv(variable, raising=False)
    found = [check for check in all_checks(*words) if check.name == name]
    details = " | ".join(check.detail for check in found)
    assert [word for word in told if word not in details] == []
    assert {check.verdict for check in found} == {Verdict.FAILED}
    assert len({(check.detail, check.cure) for check in found}) == len(found)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("task.protocol=shouting", "shouting"),
        ("task.num_eval=3", "3 wanted"),
        ("task.settings.shots=[9]", "train row 9"),
    ],
)
def test_data_that_are_there_are_not_to_be_fetched(change: str, said: str, tmp_path: Path) -> None:
    row = '{"question": "1 and 1?", "answer": "#### 2"}\n'
    (tmp_path / "train.jsonl").write_text(row)
    (tmp_path / "test.jsonl").write_text(row.replace("1", "2") * (1 if "shots" in change else 2))
    words = ("task=gsm8k", f"task.data_path={tmp_path}", "task.num_eval=1", change)

    check = checks_of(*words)["task gsm8k"]

    assert check.verdict is Verdict.FAILED
    assert said in check.detail
    # Two rows of 1,319 are an incomplete copy, which fetching does complete.
    assert ("rl_bench.prepare" in check.cure) is (change == "task.num_eval=3")


def test_a_fault_of_a_tasks_own_check_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(task: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("rl_bench.tasks.gsm8k.task.GSM8KTask.check_data", broken)
    check = checks_of("task=gsm8k_mini")["task gsm8k_mini"]
    assert check.verdict is Verdict.FAILED
    assert "KeyError: 'oops' at " in check.detail
    assert "test_preflight.py:" in check.detail


def test_a_kind_that_does_not_exist_is_named() -> None:
    check = checks_of("task=gsm8k_mini", "task.kind=gsm9k")["task gsm8k_mini"]

    assert (check.verdict, check.detail) == (Verdict.FAILED, "kind 'gsm9k' does not exist")
    assert "alfworld, alpacaeval" in check.cure


def test_a_model_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    overrides = ("model=qwen3_8b_base", f"model.path={tmp_path / 'absent'}")

    check = checks_of(*overrides)["model qwen3_8b_base"]

    assert check.verdict is Verdict.FAILED
    assert str(tmp_path / "absent") in check.detail


def test_a_missing_cli_is_named_with_its_version_and_how_it_is_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    overrides = ("agent=codex", "driver=gpt_4o", f"paths.agents={tmp_path}")
    check = checks_of(*overrides)["agent codex"]

    assert check.verdict is Verdict.FAILED
    assert f"'codex' 0.171.0 is neither in {tmp_path / 'codex' / '0.171.0'} nor on PATH" in (
        check.detail
    )
    assert "python -m rl_bench.agents install codex" in check.cure


def test_a_key_is_asked_for_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = ("agent=codex", "driver=gpt_4o")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "driver gpt_4o" in failures(checks_of(*overrides))

    monkeypatch.setenv("OPENAI_API_KEY", "value-of-the-key")
    checks = checks_of(*overrides)

    assert "driver gpt_4o" not in failures(checks)
    assert "key in OPENAI_API_KEY" in checks["driver gpt_4o"].detail
    assert "value-of-the-key" not in str(checks)


def test_a_disk_that_is_nearly_full_is_refused() -> None:
    checks = checks_of("paths.min_free_gib=1e9")

    assert failures(checks) == ["folder results", "folder cache"]
    assert "GiB wanted" in checks["folder results"].detail


def test_a_file_in_the_place_of_the_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    check = checks_of(f"paths.results={tmp_path / 'file'}")["folder results"]

    assert check.verdict is Verdict.FAILED
    assert "paths.results=" in check.cure


def test_a_folder_that_may_not_be_written_is_refused() -> None:
    check = checks_of("paths.results=/proc/results")["folder results"]

    assert check.verdict is Verdict.FAILED
    assert "/proc is not a writable folder" in check.detail
    assert "RL_BENCH_RESULTS" in check.cure


@pytest.mark.parametrize(
    ("argv", "fails"),
    [
        ("[bash,/absent/start.sh]", True),
        ("[python3,-u,/absent/start.py]", True),
        ("['{python}',/absent/start.py]", True),
        ("[bash,-c,/absent/start.sh]", False),
        ("[bash,relative.sh,/absent/later]", False),
        ("['true',/absent/argument]", False),
    ],
)
def test_a_script_that_does_not_exist_is_named(argv: str, fails: bool) -> None:
    check = checks_of(f"agent.argv={argv}", base=("agent=command", "task=gsm8k_mini"))[
        "agent command"
    ]

    assert (check.verdict is Verdict.FAILED) is fails
    assert ("/absent/start" in check.detail) is fails


def test_a_sweep_tells_how_much_of_it_has_finished() -> None:
    experiment = compose([*BASE, "sweep.seeds=[0,1,2]", "sweep.name=mine"]).experiment
    plan = expand(experiment)
    paths = SweepPaths(experiment.paths.results / "mine")
    with claim_sweep(paths, experiment=experiment, plan=plan):
        pass
    for spec, final in zip(plan, (True, False), strict=False):
        with Ledger(paths.run(run_id(spec)).ledger) as ledger:
            ledger.append(RunFinished(end=RunEnd.INFRA_ERROR, final=final))

    def found() -> str:
        checks = preflight(experiment, plan=plan, paths=paths)
        return next(check.detail for check in checks if check.name == "sweep mine")

    assert found().startswith("resumes, 1 of 3 runs finished")
    for spec in plan[1:]:
        with Ledger(paths.run(run_id(spec)).ledger) as ledger:
            ledger.append(RunFinished(end=RunEnd.INFRA_ERROR))
    assert found().startswith("3 of 3 runs finished")
    paths.run(run_id(plan[0])).ledger.write_text("[" * 100_000, encoding="utf-8")
    assert found().startswith("resumes, 2 of 3 runs finished")


def test_a_sweep_that_is_running_is_shown_and_left_alone() -> None:
    experiment = compose([*BASE, "sweep.name=mine"]).experiment
    paths = SweepPaths(experiment.paths.results / "mine")
    with claim_sweep(paths, experiment=experiment, plan=expand(experiment)):
        check = checks_of("sweep.name=mine")["sweep mine"]
        assert check.verdict is Verdict.FAILED
        assert "is being run by another process" in check.detail

    assert checks_of("sweep.name=mine")["sweep mine"].verdict is Verdict.OK


def test_too_few_gpus_are_refused() -> None:
    checks = checks_of("cluster.num_gpus=1", "grader.num_graders=2", "grader.gpus_per_grader=1")

    assert failures(checks) == ["GPUs"]
    assert checks["GPUs"].detail == "1 here, 2 for the graders and one run"


def test_a_run_that_fits_on_no_machine_is_refused() -> None:
    assert failures(checks_of("cluster.num_cpus=1", "cluster.cpus_per_run=2")) == ["CPUs"]


def test_a_cluster_that_does_not_answer_is_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert failures(checks_of(f"cluster.address='{address}'")) == ["Ray cluster"]


def test_wandb_online_needs_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert failures(checks_of("sink.wandb.mode=online")) == ["sink wandb"]


def test_a_name_with_another_config_is_refused() -> None:
    experiment = compose([*BASE, "sweep.name=mine"]).experiment
    paths = SweepPaths(experiment.paths.results / experiment.sweep.name)
    with claim_sweep(paths, experiment=experiment, plan=expand(experiment)):
        pass

    checks = checks_of("sweep.name=mine", "budget.wall_clock_s=7")

    assert failures(checks) == ["sweep mine"]
    assert "budget.wall_clock_s" in checks["sweep mine"].detail


def test_require_lists_each_failure_with_its_cure() -> None:
    checks = [
        Check(name="a", verdict=Verdict.FAILED, detail="is gone", cure="Bring it back"),
        Check(name="b", verdict=Verdict.WARNING, detail="is odd"),
        Check(name="c", verdict=Verdict.FAILED, detail="is full"),
    ]

    with pytest.raises(PreflightError) as caught:
        require(checks)

    assert str(caught.value).splitlines() == ["a: is gone. Bring it back", "c: is full"]


@pytest.mark.parametrize(("visible", "num"), [("", 0), ("-1", 0), ("0", 1), ("0,3", 2)])
def test_visible_devices_bound_the_gpus(visible: str, num: int) -> None:
    assert num_local_gpus({"CUDA_VISIBLE_DEVICES": visible}) == num


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("+agent.read_only=[/nowhere/tools]", "is not there"),
        ("+agent.read_only=[no_such_tools]", "no_such_tools"),
        ("+agent.read_only=[/]", "other runs"),
        ("+agent.env={URL:'{driver_url}'}", "agent.apis"),
    ],
)
def test_a_config_that_no_run_would_get_over(override: str, problem: str) -> None:
    check = checks_of(override)["agent noop"]

    assert check.verdict is Verdict.FAILED
    assert problem in check.detail


def driver_check(url: str, *more: str) -> Check:
    name = "openai_compatible"
    overrides = ("agent=opencode", f"driver={name}", "driver.model_id=m", "driver.key_variable=")
    return checks_of(*overrides, f"driver.base_url={url}", *more)[f"driver {name}"]


def test_an_address_of_this_machine_where_nothing_listens_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        assert driver_check(url).verdict is Verdict.OK

    check = driver_check(url)
    assert check.verdict is Verdict.FAILED
    assert f"nothing answers at {url}" in check.detail
    # On a cluster the run's machine is another one.
    assert driver_check(url, "cluster=ray").verdict is Verdict.WARNING


def test_another_machine_that_does_not_answer_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    check = driver_check("http://no-such-host.invalid/v1")

    assert check.verdict is Verdict.WARNING
    assert "driver.base_url" in check.cure


def program(folder: Path, output: str) -> Path:
    path = folder / "mine"
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("output", "verdict", "said"),
    [
        ("mine 1.2.3", Verdict.OK, "1.2.3"),
        ("mine 1.2.4", Verdict.WARNING, "is version 1.2.4, and runs will be recorded as 1.2.3"),
        ("hello", Verdict.WARNING, "tells no version"),
    ],
)
def test_the_version_of_a_program_that_is_no_package(
    output: str, verdict: Verdict, said: str, tmp_path: Path
) -> None:
    binary = program(tmp_path, output)
    overrides = (f"agent.argv=[{binary}]", f"agent.binary={binary}", "agent.version=1.2.3")

    check = checks_of("agent=command", *overrides)["agent command"]

    assert check.verdict is verdict
    assert said in check.detail


def test_another_version_is_installed_by_the_command_that_is_told(tmp_path: Path) -> None:
    overrides = (
        "agent=codex",
        "driver=scripted",
        f"paths.agents={tmp_path}",
        "agent.version=9.9.9",
    )

    check = checks_of(*overrides)["agent codex"]

    assert "python -m rl_bench.agents install codex agent.version=9.9.9" in check.cure


def test_a_placeholder_that_is_all_but_one_is_named() -> None:
    argv = "agent.argv=[echo,'{drivr_model}','{DRIVER-MODEL}','{prompt}','{other}']"

    checks = checks_of("agent=command", argv)

    assert checks["agent command"].verdict is Verdict.OK
    found = checks["agent command, placeholders"]
    assert found.verdict is Verdict.WARNING
    assert "{drivr_model} is no placeholder: did you mean {driver_model}?" in found.detail
    assert found.detail.count("did you mean") == 2


def test_a_sweep_grades_no_served_model() -> None:
    words = ("grader=openai", "grader.endpoint.model_id=m", "grader.endpoint.base_url=http://x/v1")
    check = checks_of(*words)["grader openai"]

    assert check.verdict is Verdict.FAILED
    assert "cannot be exchanged for the checkpoints that agents submit" in check.detail
    assert "rl_bench.evaluate" in check.cure
