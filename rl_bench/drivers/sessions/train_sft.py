"""Supervised fine-tuning in plain torch: each train.jsonl below DATA_PATH, loss on the answers."""

import json
import logging
import os
import random
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

NAME = "v1"
EPOCHS = 1
RATE = 2e-3
BATCH = 16
IGNORED = -100


def chats() -> list[list[dict[str, str]]]:
    """The demonstrations as chats: played episodes, or questions with their answers."""
    found = []
    for path in sorted(Path(os.environ["DATA_PATH"]).rglob("train.jsonl")):
        prompt = path.with_name("prompt.txt")
        template = prompt.read_text() if prompt.is_file() else "{question}"
        for row in map(json.loads, path.read_text().splitlines()):
            if "turns" in row:
                pairs = [(turn["observation"], turn["action"]) for turn in row["turns"]]
            else:
                pairs = [(template.replace("{question}", row["question"]), row["answer"])]
            said = [("user", ask, "assistant", answer) for ask, answer in pairs]
            found.append([{"role": r, "content": c} for s in said for r, c in (s[:2], s[2:])])
    return found


def encode(
    tokenizer: PreTrainedTokenizerBase, chat: list[dict[str, str]]
) -> tuple[list[int], list[int]]:
    """Token ids of a chat, and its labels: the token where the assistant speaks, else IGNORED."""
    ids, labels, done = [], [], ""
    for end in range(1, len(chat), 2):
        before = str(
            tokenizer.apply_chat_template(chat[:end], tokenize=False, add_generation_prompt=True)
        )
        whole = str(tokenizer.apply_chat_template(chat[: end + 1], tokenize=False))
        asked = tokenizer(before[len(done) :], add_special_tokens=False)["input_ids"]
        answer = tokenizer(whole[len(before) :], add_special_tokens=False)["input_ids"]
        ids += asked + answer
        labels += [IGNORED] * len(asked) + answer
        done = whole
    return ids, labels


def batches(rows: list[tuple[list[int], list[int]]], pad: int) -> list[list[torch.Tensor]]:
    """Shuffled batches of rows of like length."""
    random.shuffle(rows)
    rows = sorted(rows, key=lambda row: len(row[0]) // 16)
    groups = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
    random.shuffle(groups)
    made = []
    for group in groups:
        width = max(len(ids) for ids, _ in group)
        ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in group])
        labels = torch.tensor([labels + [IGNORED] * (width - len(labels)) for _, labels in group])
        mask = torch.tensor([[n < len(row[0]) for n in range(width)] for row in group])
        made.append([ids, labels, mask.long()])
    return made


def main() -> None:
    """Trains, and saves a whole checkpoint."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    random.seed(0)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base = os.environ["MODEL_PATH"]
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, device_map=device)
    model.train()
    rows = [encode(tokenizer, chat) for chat in chats()]
    steps = [batch for _ in range(EPOCHS) for batch in batches(rows, tokenizer.pad_token_id)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=len(steps) + 1)
    started = time.monotonic()
    for number, batch in enumerate(steps, 1):
        ids, labels, mask = (tensor.to(device) for tensor in batch)
        loss = model(input_ids=ids, labels=labels, attention_mask=mask).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if number % max(1, len(steps) // 8) == 0:
            used = time.monotonic() - started
            logging.info(f"step {number}/{len(steps)} loss {loss.item():.3f} {used:.1f} s")
    folder = Path(os.environ["OUTPUT_DIR"]) / NAME
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    logging.info(f"saved {folder}")


if __name__ == "__main__":
    main()
