"""Which files of a folder make a checkpoint, by their names, how many there may be, how large."""

from pathlib import Path

from rl_bench.errors import SubmissionError

_SUFFIXES = frozenset({".safetensors", ".json", ".jinja", ".model", ".txt", ".tiktoken"})
_NOT_CONTENT = frozenset(
    {
        "trainer_state.json",
        "all_results.json",
        "train_results.json",
        "eval_results.json",
        "adapter_config.json",
        "consolidated.safetensors",
        "requirements.txt",
    }
)
MAX_JSON_BYTES = 64 * 1024 * 1024
"""Of a file that is not weights; twice the largest published tokenizer. Parsed, a hostile one takes
up to thirty times its size in memory."""
TEMPLATES = "additional_chat_templates"
"""Folder of a checkpoint's other chat templates."""
MAX_FILES = 2000
"""Files of a checkpoint; the largest published ones have a few hundred shards."""


def checkpoint_files(folder: Path) -> list[Path]:
    """The files that make a checkpoint what it is: weights, configs, tokenizer, templates.

    Sorted by their path. Leftovers of training (optimizer states, logs, nested checkpoints) are
    not among them, nor is an adapter that lies beside whole weights.
    """
    templates = folder / TEMPLATES
    found = [*folder.iterdir(), *(templates.glob("*.jinja") if templates.is_dir() else ())]
    return sorted(path for path in found if is_content(path) and path.is_file())


def file_homes(folder: Path) -> list[Path]:
    """The folders where a checkpoint's files really lie, sorted.

    A hub cache keeps a model's files as links into a folder beside it.
    """
    return sorted({path.resolve().parent for path in checkpoint_files(folder)})


def is_content(path: Path) -> bool:
    """Whether a file of this name belongs to a checkpoint, see `checkpoint_files`."""
    if path.suffix == ".safetensors" and path.name.startswith("adapter_"):
        return False
    return path.suffix in _SUFFIXES and path.name not in _NOT_CONTENT


def check_bounds(folder: Path) -> None:
    """Refuses what would fill disk or memory before anything of it is read.

    Raises:
        SubmissionError: ``too_many_files`` or ``file_too_large``.
    """
    files = checkpoint_files(folder)
    check_num_files(len(files))
    for path in files:
        num_bytes = path.stat().st_size
        if path.suffix != ".safetensors" and num_bytes > MAX_JSON_BYTES:
            raise SubmissionError(
                f"{path.name} has {num_bytes} bytes, more than {MAX_JSON_BYTES}",
                cure="write it again with save_pretrained, or delete it",
                reason="file_too_large",
                file=path.name,
            )


def check_num_files(num: int) -> None:
    """Refuses a folder with more than `MAX_FILES` files of a checkpoint.

    Raises:
        SubmissionError: ``too_many_files``.
    """
    if num > MAX_FILES:
        raise SubmissionError(
            f"the folder has {num} files, more than {MAX_FILES}",
            cure="submit a folder that holds one checkpoint and nothing else",
            reason="too_many_files",
        )
