"""Whoever silences a rule says why, beside it or in a comment right above."""

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("rl_bench", "envs", "actors", "analysis", "tools", "benchmarks", "tests", "docs")
SILENCER = re.compile(
    r"#\s*(?:noqa(?::\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?|type:\s*ignore(?:\[[a-z, -]*\])?)"
)


def without_reason(path: Path) -> Iterator[int]:
    """Lines whose comment silences a rule and says no more."""
    lines = path.read_text(encoding="utf-8").splitlines()
    with path.open("rb") as file:
        comments = [t for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT]
    for comment in comments:
        number = comment.start[0]
        said = SILENCER.sub("", comment.string).strip(" #")
        above = lines[number - 2].lstrip() if number > 1 else ""
        is_told = bool(said) or (above.startswith("#") and not SILENCER.search(above))
        if SILENCER.search(comment.string) and not is_told:
            yield number


def test_what_is_silenced_has_a_reason() -> None:
    paths = [path for name in FOLDERS for path in sorted((ROOT / name).rglob("*.py"))]
    assert len(paths) > 100
    found = [f"{path.relative_to(ROOT)}:{n}" for path in paths for n in without_reason(path)]
    assert not found


def test_a_silencer_without_a_reason_is_found(tmp_path: Path) -> None:
    # Pieced together, lest this file's own be found.
    silencers = ("# noqa: S311", "# type: ignore[arg-type]", "# noqa")
    told = [f"a = 1  {each}  # why" for each in silencers]
    told += [line for each in silencers for line in ("# Why.", f"b = 1  {each}")]
    path = tmp_path / "m.py"
    path.write_text("\n".join([*told, *(f"c = 1  {each}" for each in silencers)]) + "\n")
    assert list(without_reason(path)) == [10, 11, 12]
