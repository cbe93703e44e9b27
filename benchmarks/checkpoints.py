"""Checkpoints of one shape that differ: what a run submits one after the other."""

import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file


def nudged(base: Path, target: Path, *, by: float) -> Path:
    """A copy of a checkpoint whose last norm is larger by that fraction; returns ``target``."""
    shutil.copytree(base, target)
    target.chmod(0o755)
    weights = target / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.norm.weight"] *= 1.0 + by
    weights.unlink()
    save_file(tensors, weights, metadata={"format": "pt"})
    return target
