"""Files of data sets: every way to be torn is one error; a byte order mark is none."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_bench.errors import PreflightError
from rl_bench.tasks.data_files import parse_json, read_text

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "rows.jsonl": bytes,
    "rows.jsonl.xz": lzma.compress,
    "rows.jsonl.gz": gzip.compress,
}


@pytest.mark.parametrize("name", PACKED)
def test_text_is_read_with_and_without_a_byte_order_mark(tmp_path: Path, name: str) -> None:
    for content in ("é\n".encode(), "é\n".encode("utf-8-sig")):
        (tmp_path / name).write_bytes(PACKED[name](content))
        assert read_text(tmp_path / name) == "é\n"


@pytest.mark.parametrize("name", PACKED)
def test_whatever_is_torn_is_named_with_the_cure(tmp_path: Path, name: str) -> None:
    whole = PACKED[name](b"row\n" * 1000)
    torn = [PACKED[name](b"row \xff\xfe"), *([] if name.endswith("l") else [whole[:-12], b"hello"])]
    if name.endswith("gz"):
        torn.append(whole[:12] + b"\xff" * 20 + whole[32:])
    for content in torn:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PreflightError, match=rf"{name} cannot be read.*Ask again"):
            read_text(tmp_path / name, cure="Ask again")


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="IsADirectoryError"):
        read_text(tmp_path)


def test_json_without_end_is_a_value_error() -> None:
    assert parse_json('{"a": [1]}') == {"a": [1]}
    for text in ("[" * 100_000, "{", ""):
        with pytest.raises(ValueError, match=r"nested|Expecting"):
            parse_json(text)
