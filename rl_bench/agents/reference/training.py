"""What supervised and reinforcement training share: quiet, seeded, nothing saved on the way."""

from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, Trainer


def common_arguments(folder: Path, *, seed: int) -> dict[str, Any]:
    """Arguments of any of TRL's configs; the machine says whether there is a GPU."""
    gpu = torch.cuda.is_available()
    return {
        "output_dir": str(folder),
        "gradient_checkpointing": False,
        "bf16": gpu,
        "use_cpu": not gpu,
        "seed": seed,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": gpu,
    }


def train(trainer: Trainer) -> int:
    """Trains to the end, or to where a callback stops it; the optimiser steps done."""
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return int(trainer.state.global_step)
