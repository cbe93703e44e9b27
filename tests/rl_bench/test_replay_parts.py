"""The replay agent's parts: restored code, and the shell that does commands again."""

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_bench.agents.replay.code import CodeRestorer
from rl_bench.agents.replay.recording import (
    Command,
    ReplayError,
)
from rl_bench.agents.replay.shell import Shell
from rl_bench.lineage.code_history import CodeHistory


@pytest.fixture(autouse=True)
def no_reaper_is_left() -> Iterator[None]:
    """A shell makes its process the reaper of what its commands leave: here, that of the tests."""
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


def test_code_is_restored_byte_for_byte(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "lib").mkdir(parents=True)
    (code / "a.py").write_bytes(b"one\r\n\xff")
    (code / "run.sh").write_text("x")
    (code / "run.sh").chmod(0o755)
    (code / "lib" / "new\nline").write_text("y")
    (code / "link").symlink_to("a.py")
    history = CodeHistory(code, history=tmp_path / "code.git")
    first = history.record("change").id
    shutil.rmtree(code / "lib")
    (code / "a.py").write_text("two")
    (code / "lib").write_text("a file now")
    (code / "link").unlink()
    second = history.record("change").id

    target = tmp_path / "again"
    (target / "lib").mkdir(parents=True)
    (target / "lib" / "made_by_a_command.bin").write_text("stays")
    restorer = CodeRestorer(tmp_path / "code.git", target)
    restorer.restore(first)
    assert (target / "a.py").read_bytes() == b"one\r\n\xff"
    assert os.access(target / "run.sh", os.X_OK)
    assert (target / "lib" / "new\nline").read_text() == "y"
    assert (target / "link").readlink() == Path("a.py")
    assert (target / "lib" / "made_by_a_command.bin").read_text() == "stays"
    (target / "a.py").write_text("edited")
    (target / "run.sh").unlink()
    (target / "run.sh").symlink_to("/etc/passwd")
    restorer.restore(first)
    assert (target / "a.py").read_bytes() == b"one\r\n\xff"
    assert (target / "run.sh").read_text() == "x"
    restorer.restore(second)
    assert sorted(path.name for path in target.iterdir()) == ["a.py", "lib", "run.sh"]
    assert (target / "lib").read_text() == "a file now"
    with pytest.raises(ReplayError, match="cannot be read"):
        restorer.restore("1" * 40)


def shell(root: Path, **env: str) -> Shell:
    return Shell(root, env={"PATH": os.environ["PATH"], **env}, log=root / "log")


def command(text: str, **facts: object) -> Command:
    return Command.model_validate({"text": text, "at_s": 0.0, **facts})


def test_a_tools_folder_lasts_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "sub dir").mkdir()
    tool = shell(tmp_path)
    tool.run(command("cd 'sub dir' && echo $((6 * 7))", keeps_folder=True))
    tool.run(command("pwd", keeps_folder=True))
    tool.run(command("pwd"))
    assert (tmp_path / "log").read_text().splitlines() == [
        *("42", f"{tmp_path}/sub dir", f"{tmp_path}"),
    ]
    assert tool.run(command("exit 3", keeps_folder=True)).exit_code == 3
    assert tool.run(Command(argv=("/nonexistent/program",), at_s=0.0)).exit_code == 127


def test_a_process_starts_where_its_files_are(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "where.py").write_text("import os; print(os.getcwd())")
    shell(tmp_path).run(Command(argv=(sys.executable, "where.py"), at_s=0.0))
    assert (tmp_path / "log").read_text().strip() == str(tmp_path / "code")


def test_background_work_is_known_and_waited_for(tmp_path: Path) -> None:
    tool = shell(tmp_path)
    tool.run(command("nohup setsid sh -c 'sleep 3; echo done > late' > /dev/null 2>&1 &"))
    assert tool.background()
    tool.wait_for_background(20)
    assert (tmp_path / "late").read_text() == "done\n"
    assert tool.background() == []


def test_a_command_that_takes_far_longer_than_it_did_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_bench.agents.replay.shell.MIN_LIMIT_S", 0.3)
    outcome = shell(tmp_path).run(command("sleep 60 | cat", duration_s=0.01))
    assert outcome.exit_code is None
    assert outcome.duration_s < 30
