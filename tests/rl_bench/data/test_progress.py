"""Progress: lines now and then in a log, bars on a terminal."""

import io

import pytest
from rich.console import Console

from rl_bench.data import progress
from rl_bench.data.progress import show_progress, shown_size


def shown(*, is_terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=200)
    with show_progress(console) as begin:
        report = begin("file.bin")
        report(0, 8_400_000)
        report(4_200_000, 8_400_000)
    return out.getvalue()


def test_a_log_gets_no_line_of_a_quick_download() -> None:
    assert shown(is_terminal=False) == ""


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)

    assert shown(is_terminal=False).splitlines()[-1] == "  file.bin: 4.2 MB of 8.4 MB"


def test_a_terminal_gets_a_bar() -> None:
    text = shown(is_terminal=True)

    assert "file.bin" in text
    assert "4.2/8.4 MB" in text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (44_877, "44.9 kB"), (4_166_206, "4.2 MB")],
)
def test_sizes_are_for_people(num_bytes: int, text: str) -> None:
    assert shown_size(num_bytes) == text
