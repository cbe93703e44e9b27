"""Which device files a run's GPUs need, on a made-up /dev."""

from pathlib import Path

import pytest

from rl_bench.sandbox.gpus import gpu_devices


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        ("0", ["nvidia0"]),
        ("1,10", ["nvidia1", "nvidia10"]),
        ("GPU-5a", ["nvidia0", "nvidia1", "nvidia10"]),
    ],
)
def test_given_gpus_and_the_drivers_own_files(dev: Path, visible: str, numbers: list[str]) -> None:
    found = gpu_devices({"CUDA_VISIBLE_DEVICES": visible}, folder=dev)
    assert [path.name for path in found] == [*numbers, "nvidiactl", "nvidia-uvm"]


@pytest.mark.parametrize("visible", ["", "-1", None])
def test_no_gpu_no_files(dev: Path, visible: str | None) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpu_devices(environ, folder=dev) == ()
