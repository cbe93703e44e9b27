"""Reads the files of data sets: what is torn or is no text is bad input, named with its cure.

Owns compression and encoding, and reading one JSON value; what a row must hold is each task's.
"""

import gzip
import json
import lzma
import zlib
from pathlib import Path
from typing import Any

from rl_bench.errors import PreflightError

FETCH_AGAIN = "Fetch the file again"


def read_text(path: Path, *, cure: str = FETCH_AGAIN) -> str:
    """The text of a plain, ``.xz`` or ``.gz`` file in UTF-8, with a byte order mark or without.

    Raises:
        PreflightError: It cannot be read, is damaged or is no such text; tells ``cure``.
    """
    try:
        content = path.read_bytes()
        if path.suffix == ".xz":
            content = lzma.decompress(content)
        elif path.suffix == ".gz":
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        raise PreflightError(
            f"{path} cannot be read ({type(error).__name__}: {error})", cure=cure
        ) from error


def parse_json(text: str) -> Any:  # noqa: ANN401  any JSON
    """The value of a JSON text.

    Raises:
        ValueError: It is none, or nested deeper than the parser goes.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
