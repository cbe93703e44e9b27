"""Writes output/v2: the base model with every weight one per cent smaller."""

import os
import shutil
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import load_file, save_file

base, output = Path(os.environ["MODEL_PATH"]), Path(os.environ["OUTPUT_DIR"]) / "v2"
output.mkdir(parents=True, exist_ok=True)
for path in sorted(path for path in base.iterdir() if path.is_file()):
    target = output / path.name
    if path.suffix != ".safetensors":
        shutil.copyfile(path, target)
        continue
    weights = {
        name: (tensor * 0.99).astype(tensor.dtype) for name, tensor in load_file(path).items()
    }
    with safe_open(path, framework="np") as file:
        save_file(weights, target, metadata=file.metadata())
