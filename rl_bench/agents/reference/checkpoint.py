"""Loading the base model, and saving what is submitted: plain checkpoints, each complete."""

import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)


class Loaded(NamedTuple):
    """A model and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load(folder: Path) -> Loaded:
    """Loads a checkpoint: in float32 on a CPU, in bfloat16 on a GPU."""
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return Loaded(model, AutoTokenizer.from_pretrained(folder))


def save(loaded: Loaded, folder: Path, *, base: Path) -> Path:
    """Saves weights, config, tokenizer and chat template.

    The tokenizer's own files are copied from ``base``, since nothing trained changes them.
    """
    loaded.model.save_pretrained(folder)
    for path in sorted(base.iterdir()):
        is_weights = path.suffix in {".safetensors", ".bin"} or path.name.endswith("index.json")
        if path.is_file() and not is_weights and path.name != "config.json":
            shutil.copyfile(path, folder / path.name)
    return folder
