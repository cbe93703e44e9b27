"""The device files of the GPUs that a run has: what its sandbox must let through."""

import os
from collections.abc import Mapping
from pathlib import Path

SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Of the driver, whichever GPU is used."""


def gpu_devices(
    environ: Mapping[str, str] = os.environ, *, folder: Path = Path("/dev")
) -> tuple[Path, ...]:
    """Device files of the GPUs in ``CUDA_VISIBLE_DEVICES``; none when it is unset or empty.

    An index is the minor number of its device file, as NVIDIA's driver numbers them. Named by UUID
    they cannot be told apart here, and all of them are let through; CUDA itself keeps to the list.
    """
    visible = [part.strip() for part in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    wanted = [part for part in visible if part not in {"", "-1"}]
    if not wanted:
        return ()
    numbered = sorted(path for path in folder.glob("nvidia[0-9]*") if path.name[6:].isdigit())
    if all(part.isdigit() for part in wanted):
        numbered = [path for path in numbered if path.name[6:] in wanted]
    shared = [folder / name for name in SHARED]
    return tuple(path for path in (*numbered, *shared) if path.exists())
