"""What is known of a judge before anything starts."""

from pathlib import Path

import pytest

from rl_bench.config import JudgeConfig
from rl_bench.errors import PreflightError
from rl_bench.judges.check import check_judge


def config(**fields: object) -> JudgeConfig:
    return JudgeConfig.model_validate({"name": "j", "annotator": "a", "model_id": "m"} | fields)


def test_what_can_be_asked_passes(tmp_path: Path) -> None:
    check_judge(config(base_url="http://localhost:8000/v1"))
    check_judge(
        config(base_url="https://api.openai.com/v1", key_variable="KEY"), environ={"KEY": "k"}
    )
    (tmp_path / "config.json").write_text("{}")
    check_judge(config(kind="vllm", path=tmp_path))


@pytest.mark.parametrize("environ", [{}, {"KEY": ""}, {"KEY": "  "}])
def test_a_missing_key(environ: dict[str, str]) -> None:
    with pytest.raises(PreflightError, match="KEY is not set") as caught:
        check_judge(config(base_url="https://x.org/v1", key_variable="KEY"), environ=environ)
    assert "Export KEY" in caught.value.cure


@pytest.mark.parametrize("url", ["api.openai.com/v1", "ftp://x.org", "https://", "http://[x", "x"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(PreflightError, match="is not an address"):
        check_judge(config(base_url=url))


def test_a_folder_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"no config\.json"):
        check_judge(config(kind="vllm", path=tmp_path / "nothing"))
