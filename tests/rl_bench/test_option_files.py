"""Folders of options as people leave them: odd files are no options, and harm no terminal."""

import os
from pathlib import Path

import pytest

from rl_bench import sweep
from rl_bench.option_files import MAX_COMMENT_BYTES, first_comments, groups

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "mine.yaml").write_text("# An agent of mine.\nname: mine\n")
    return folder


def test_only_regular_files_with_names_to_type_are_options(
    agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = groups()["agent"]
    (agents / "folder.yaml").mkdir()
    (agents / "gone.yaml").symlink_to("nowhere")
    (agents / "loop.yaml").symlink_to("loop.yaml")
    os.mkfifo(agents / "pipe.yaml")
    (agents / "device.yaml").symlink_to("/dev/zero")
    (agents / "a\x1b[31m.yaml").write_text("name: red\n")
    (agents / "linked.yaml").symlink_to("mine.yaml")

    assert set(groups(config_dirs=[agents.parent])["agent"]) - set(plain) == {"mine", "linked"}
    assert sweep.main(["--config-dir", str(agents.parent), "--help"]) == 0
    said = capsys.readouterr().out
    assert "An agent of mine." in said
    assert "\x1b" not in said


def test_a_comment_gives_a_terminal_no_orders(agents: Path) -> None:
    (agents / "mine.yaml").write_bytes(b"# Red \x1b[31m or \xff.\nname: mine\n")
    assert first_comments("agent", config_dirs=[agents.parent])["mine"] == "Red �[31m or �."


def test_a_comment_is_looked_for_near_the_beginning(agents: Path) -> None:
    filler = "x: 1\n" * (MAX_COMMENT_BYTES // 5 + 1)
    (agents / "mine.yaml").write_text(f"{filler}# Far away.\n")
    assert first_comments("agent", config_dirs=[agents.parent])["mine"] == ""


def test_a_file_that_cannot_be_read_has_no_comment(
    agents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (agents / "other.yaml").write_text("# Another one.\n")
    whole = Path.open

    def refuses(
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
    ) -> object:
        if path.name == "mine.yaml":
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path, mode, buffering, encoding, errors)

    monkeypatch.setattr(Path, "open", refuses)
    said = first_comments("agent", config_dirs=[agents.parent])
    assert (said["mine"], said["other"]) == ("", "Another one.")
