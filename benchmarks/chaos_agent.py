"""The agent of chaos runs: submits a few small checkpoints and writes down every answer it gets.

It starts without a sandbox, since its log lies outside of all that the runner knows or cleans:
``<results>/../answers/<sweep>/<run id>.jsonl``, a line for each answer of HTTP, fsynced before the
next request. A checkpoint is the base model with one tensor moved by noise that the run's id seeds:
other content in each run, the same whenever a run is done again. With ``alike`` all runs move it
alike, and only a note in the folder differs.

    python benchmarks/chaos_agent.py NUM_CHECKPOINTS [alike]

The last checkpoint is submitted without waiting for its score: once that is acknowledged, the agent
ends.
"""

import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import TextIO

import numpy as np
from safetensors.numpy import load_file, save_file

REQUEST_LIMIT_S = 120.0
AGAIN_S = 0.3
NOISE = 0.05
"""Standard deviation of the change, as a share of the tensor's own."""


def main(num_checkpoints: int, *, alike: bool) -> int:
    """Submits; 0 once every checkpoint has been acknowledged."""
    workspace = Path(os.environ["WORKSPACE"])
    run_id, sweep = workspace.parent.name, workspace.parents[2].name
    answers = workspace.parents[3].parent / "answers" / sweep / f"{run_id}.jsonl"
    answers.parent.mkdir(parents=True, exist_ok=True)
    with answers.open("a", encoding="utf-8") as log:
        for number in range(1, num_checkpoints + 1):
            name = write_checkpoint(number, seed="" if alike else run_id, note=run_id)
            waits = number < num_checkpoints
            while not is_acknowledged(answer := submit(name, wait=waits)):
                write_down(log, answer)
                time.sleep(AGAIN_S)
            write_down(log, answer)
    return 0


def write_checkpoint(number: int, *, seed: str, note: str) -> str:
    """Writes the checkpoint into the agent's output folder; the name to submit."""
    name = f"m{number}"
    folder = Path(os.environ["OUTPUT_DIR"]) / name
    shutil.copytree(os.environ["MODEL_PATH"], folder, dirs_exist_ok=True)
    file = folder / "model.safetensors"
    for path in (folder, file):
        path.chmod(0o755)
    (folder / "notes.txt").write_text(note, encoding="utf-8")
    weights = load_file(file)
    moved = max(weights, key=lambda key: (weights[key].ndim, key))
    noise = np.random.default_rng(zlib.crc32(f"{seed} {number}".encode()))
    tensor = weights[moved]
    change = noise.normal(scale=NOISE * (float(tensor.std()) or 1.0), size=tensor.shape)
    weights[moved] = (tensor + change).astype(tensor.dtype)
    save_file(weights, file, metadata={"format": "pt"})
    return f"output/{name}"


def submit(name: str, *, wait: bool) -> dict[str, object]:
    """One request; what came back. Status 0: nothing did."""
    request = urllib.request.Request(  # noqa: S310  the runner's own loopback URL
        f"{os.environ['GRADING_SERVER_URL']}/submit",
        data=json.dumps({"model_path": name, "wait": wait}).encode(),
        headers={"Content-Type": "application/json"},
    )
    answer: dict[str, object] = {"pid": os.getpid(), "model_path": name, "status": 0}
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_LIMIT_S) as reply:  # noqa: S310  likewise
            body = json.loads(reply.read())
            answer |= {key: body.get(key) for key in ("submission_id", "score")}
            answer["status"] = reply.status
    except urllib.error.HTTPError as error:
        answer["status"] = error.code
    except OSError as error:
        answer["error"] = str(error)
    return answer


def is_acknowledged(answer: dict[str, object]) -> bool:
    """Whether the runner has answered for the submission: from here on it must not be lost."""
    return answer["status"] in (200, 202)


def write_down(log: TextIO, answer: dict[str, object]) -> None:
    """Writes the answer down, on disk when it returns."""
    log.write(json.dumps(answer) + "\n")
    log.flush()
    os.fsync(log.fileno())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), alike="alike" in sys.argv[2:]))
