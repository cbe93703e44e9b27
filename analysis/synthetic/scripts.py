"""Training scripts of each method, plausible enough to be read by the audit's parser.

``{base}``, ``{out}``, ``{rate}`` and ``{steps}`` are filled in for each step of a run.
"""

from typing import Literal

Kind = Literal["sft", "preference", "rl_offline", "rl_online", "merge", "distill"]

FILES: dict[Kind, str] = {
    "sft": "train_sft.py",
    "preference": "train_pairs.py",
    "rl_offline": "train_weighted.py",
    "rl_online": "train_online.py",
    "merge": "average.py",
    "distill": "train_student.py",
}
PROBE_FILE = "look.py"

PROBE = """\
import json
from pathlib import Path

rows = [json.loads(line) for line in Path("data/train.jsonl").open()]
print(len(rows), "rows; the first:", rows[0])
lengths = sorted(len(row["question"]) for row in rows)
print("median question:", lengths[len(lengths) // 2], "characters")
"""

_SFT = """\
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="data/train.jsonl", split="train")


def as_chat(row):
    asked = {{"role": "user", "content": row["question"]}}
    return {{"messages": [asked, {{"role": "assistant", "content": row["answer"]}}]}}


trainer = SFTTrainer(
    model="{base}",
    args=SFTConfig(output_dir="{out}", learning_rate={rate}, max_steps={steps}, bf16=True),
    train_dataset=rows.map(as_chat),
)
trainer.train()
trainer.save_model("{out}")
"""

_PREFERENCE = """\
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

pairs = load_dataset("json", data_files="output/pairs.jsonl", split="train")
trainer = DPOTrainer(
    model="{base}",
    args=DPOConfig(output_dir="{out}", beta=0.1, learning_rate={rate}, max_steps={steps}),
    train_dataset=pairs,
)
trainer.train()
trainer.save_model("{out}")
"""

_RL_OFFLINE = """\
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{base}")
model = AutoModelForCausalLM.from_pretrained("{base}")
optimizer = torch.optim.AdamW(model.parameters(), lr={rate})
episodes = [json.loads(line) for line in open("output/episodes.jsonl")]
mean = sum(e["reward"] for e in episodes) / len(episodes)

for episode in episodes[:{steps}]:
    batch = tokenizer(episode["text"], return_tensors="pt")
    nll = model(**batch, labels=batch["input_ids"]).loss
    loss = nll * (episode["reward"] - mean)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.save_pretrained("{out}")
tokenizer.save_pretrained("{out}")
"""

_RL_ONLINE = """\
import re

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def solved(completions, answer, **kwargs):
    last = [re.findall(r"-?\\d+", text)[-1:] for text in completions]
    return [float(found == [gold]) for found, gold in zip(last, answer)]


trainer = GRPOTrainer(
    model="{base}",
    reward_funcs=[solved],
    args=GRPOConfig(output_dir="{out}", num_generations=8, learning_rate={rate}, max_steps={steps}),
    train_dataset=load_dataset("json", data_files="data/train.jsonl", split="train"),
)
trainer.train()
trainer.save_model("{out}")
"""

_MERGE = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

first = AutoModelForCausalLM.from_pretrained("models/base")
second = AutoModelForCausalLM.from_pretrained("{base}")
ours, theirs = first.state_dict(), second.state_dict()
mixed = {{name: 0.3 * ours[name] + 0.7 * theirs[name] for name in ours}}
first.load_state_dict(mixed)
first.save_pretrained("{out}")
AutoTokenizer.from_pretrained("{base}").save_pretrained("{out}")
"""

_DISTILL = """\
from datasets import load_dataset
from trl import GKDConfig, GKDTrainer

rows = load_dataset("json", data_files="data/train.jsonl", split="train")
trainer = GKDTrainer(
    model="models/base",
    teacher_model="{base}",
    args=GKDConfig(output_dir="{out}", learning_rate={rate}, max_steps={steps}),
    train_dataset=rows,
)
trainer.train()
trainer.save_model("{out}")
"""

_TEXTS: dict[Kind, str] = {
    "sft": _SFT,
    "preference": _PREFERENCE,
    "rl_offline": _RL_OFFLINE,
    "rl_online": _RL_ONLINE,
    "merge": _MERGE,
    "distill": _DISTILL,
}
METHOD_NAMES: dict[Kind, str] = {
    "sft": "sft",
    "preference": "dpo",
    "rl_offline": "offline_rl",
    "rl_online": "grpo",
    "merge": "merge",
    "distill": "gkd",
}
"""What the audit calls the method of each script."""


def script(kind: Kind, *, base: str, out: str, rate: float, steps: int) -> str:
    """The text of a training script.

    Args:
        kind: Its method.
        base: The checkpoint that it starts from, below the workspace.
        out: The checkpoint that it makes.
        rate: Learning rate.
        steps: Optimiser steps.
    """
    return _TEXTS[kind].format(base=base, out=out, rate=f"{rate:g}", steps=steps)
