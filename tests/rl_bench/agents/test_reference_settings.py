"""The agent's own reading of its workspace."""

import json
from pathlib import Path

import pytest

from rl_bench.agents.reference.settings import SettingsError, TrainSettings, read_job


def _environ(root: Path, **changes: str) -> dict[str, str]:
    tasks = [
        {"name": n, "kind": k, "protocol": "chat", "max_steps": 5, "max_tokens": 9}
        for n, k in (("a", "gsm8k"), ("b", "alfworld"))
    ]
    meta = {"mode": "multi", "seed": 7, "tasks": tasks, "budget_s": 60}
    (root / "run_meta.json").write_text(json.dumps(meta))
    return {
        "WORKSPACE": str(root),
        "MODEL_PATH": "/base",
        "DATA_PATH": "/data",
        "OUTPUT_DIR": str(root / "output"),
        "GRADING_SERVER_URL": "http://127.0.0.1:1/token",
        **changes,
    }


def test_settings_are_found_by_name_then_kind(tmp_path: Path) -> None:
    given = {"b": {"sft_lr": 1}, "gsm8k": {"sft_demos": 5}}
    job = read_job(_environ(tmp_path, AGENT_SETTINGS=json.dumps(given)))
    first, second = job.tasks
    assert job.train_settings(first) == TrainSettings(sft_demos=5)
    assert job.train_settings(second) == TrainSettings(sft_lr=1.0)
    assert first.data == Path("/data/a")
    assert (job.mode, job.seed) == ("multi", 7)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"sft_rate": 1}, "unknown settings"), ({"sft_lr": "high"}, "must be numbers")],
)
def test_wrong_settings_are_named(tmp_path: Path, settings: dict[str, object], words: str) -> None:
    given = json.dumps({"gsm8k": settings})
    with pytest.raises(SettingsError, match=words):
        read_job(_environ(tmp_path, AGENT_SETTINGS=given))


def test_a_missing_variable_is_named(tmp_path: Path) -> None:
    environ = _environ(tmp_path)
    del environ["MODEL_PATH"]
    with pytest.raises(SettingsError, match="MODEL_PATH"):
        read_job(environ)


def test_broken_metadata_are_a_settings_error(tmp_path: Path) -> None:
    environ = _environ(tmp_path)
    (tmp_path / "run_meta.json").write_text("{")
    with pytest.raises(SettingsError, match="cannot be read"):
        read_job(environ)
