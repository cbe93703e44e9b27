"""An agent that means no good: its links, its heaps of files, its git and its user's."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rl_bench.lineage import code_files, code_history
from rl_bench.lineage.code_files import MAX_FILE_BYTES, list_code
from tests.rl_bench.lineage_scene import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_modes_and_links_are_kept_and_links_are_never_followed(lab: Lab, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "test_split.json").write_text("SECRET")
    lab.write("run.sh")
    (lab.code / "run.sh").chmod(0o755)
    (lab.code / "to_file").symlink_to(secret / "test_split.json")
    (lab.code / "to_folder").symlink_to(secret)
    (lab.code / "dangling").symlink_to("nowhere\n")
    os.mkfifo(lab.code / "pipe")
    lab.record()
    files = {file.path: file for file in lab.reader().files("main")}
    assert files["run.sh"].is_executable
    assert {path for path, file in files.items() if file.is_link} == {
        *("dangling", "to_file", "to_folder")
    }
    assert lab.reader().read("main", "to_folder") == os.fsencode(secret)
    assert lab.left_out() == {"pipe": ("special", 0)}
    stored = subprocess.run(
        ["git", "--git-dir", str(lab.path), "grep", "-q", "SECRET", "main"], check=False
    )
    assert stored.returncode == 1
    (lab.code / "run.sh").chmod(0o644)
    assert lab.record().changed == ("run.sh",)


def test_a_folder_swapped_for_a_link_meanwhile_leads_nowhere(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.py").write_text("SECRET")
    lab.write("lib/a.py", "mine")
    original = code_files.list_code

    def list_then_swap(folder: Path) -> code_files.Listing:
        listing = original(folder)
        shutil.rmtree(lab.code / "lib")
        (lab.code / "lib").symlink_to(tmp_path / "outside")
        return listing

    monkeypatch.setattr(code_files, "list_code", list_then_swap)
    lab.record()
    assert lab.paths() == []
    assert lab.left_out() == {"lib/a.py": ("unreadable", 4)}


def test_code_that_is_itself_a_link_is_empty(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.py").write_text("SECRET")
    lab.code.rmdir()
    lab.code.symlink_to(tmp_path / "outside")
    assert lab.record().num_files == 0
    lab.code.unlink()
    assert not lab.record().is_new


def test_what_is_too_much_is_left_out_and_listed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.write("big.bin", "x" * (MAX_FILE_BYTES + 1))
    lab.write("node_modules/m.js")
    lab.write("__pycache__/m.pyc")
    deep = "/".join(["d"] * (code_files.MAX_DEPTH + 1)) + "/deep.py"
    lab.write(deep)
    lab.write("train.py")
    lab.record()
    assert lab.paths() == ["train.py"]
    assert lab.left_out() == {
        "big.bin": ("too_large", MAX_FILE_BYTES + 1),
        "node_modules": ("skipped", 0),
        deep.removesuffix("/deep.py"): ("too_deep", 0),
    }
    lab.write("big.bin", "x" * (MAX_FILE_BYTES + 2))
    assert not lab.record().is_new, "a log that grows is no change of the code"
    lab.write("more.bin", "x" * (MAX_FILE_BYTES + 1))
    assert lab.record().changed == ("more.bin",)

    monkeypatch.setattr(code_files, "MAX_REVISION_BYTES", 30)
    lab.write("a.txt", "y" * 40)
    lab.record()
    assert "train.py" in lab.paths()
    assert lab.left_out()["a.txt"] == ("revision_full", 40)


def test_scripts_are_not_crowded_out_by_what_they_write(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_files, "MAX_FILES", 10)
    monkeypatch.setattr(code_files, "MAX_ENTRIES", 50)
    for number in range(30):
        lab.write(f"a{number}.out")
    lab.write("z.py")
    assert lab.record().num_files == 10
    assert "z.py" in lab.paths()
    for number in range(200):
        lab.write(f"junk/a{number}.out")
    began = time.monotonic()
    assert list_code(lab.code).num_entries <= 52
    assert time.monotonic() - began < 30
    lab.record()
    assert ("...", ("too_many", 0)) in lab.left_out().items()


def test_the_whole_history_is_bounded(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.record()
    size = sum(path.stat().st_size for path in (lab.path / "objects").rglob("*") if path.is_file())
    monkeypatch.setattr(code_history, "MAX_HISTORY_BYTES", size + 2500)
    for text in ("a", "b", "c", "d"):
        lab.write("log.txt", text * 1000)
        lab.record()
    lab.write("train.py", "short")
    lab.record()
    assert lab.paths() == ["train.py"]
    assert lab.left_out() == {"log.txt": ("history_full", 1000)}


def test_git_of_the_agent_takes_no_part(lab: Lab, tmp_path: Path) -> None:
    lab.write("train.py", "a\r\nb\r\n")
    for folder in (lab.code, lab.code / "vendored"):
        folder.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
        trap = folder / ".git" / "hooks" / "reference-transaction"
        trap.parent.mkdir(exist_ok=True)
        trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/trapped\n")
        trap.chmod(0o755)
    (lab.code / ".git" / "config").write_text(
        f"[core]\n\tfsmonitor = touch {tmp_path}/trapped\n\tautocrlf = input\n"
        f'[filter "x"]\n\tclean = touch {tmp_path}/trapped\n'
    )
    lab.write(".gitattributes", "* filter=x text eol=lf -diff\n")
    lab.write(".gitignore", "*\n")
    (lab.code / ".gitmodules").symlink_to("/etc/passwd")
    lab.write("vendored/a.py")
    lab.write("sub/.GIT", "gitdir: /")
    lab.record()
    assert lab.paths() == [".gitattributes", ".gitignore", "train.py", "vendored/a.py"]
    assert lab.reader().read("main", "train.py") == b"a\r\nb\r\n"
    assert "+a\r" in lab.reader().diff(None, "main")
    assert lab.left_out() == dict.fromkeys(
        (".git", ".gitmodules", "sub/.GIT", "vendored/.git"), ("reserved_name", 0)
    )
    assert not (tmp_path / "trapped").exists()


def test_git_of_the_user_takes_no_part(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "reference-transaction").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "reference-transaction").chmod(0o755)
    template = f"[init]\n\ttemplateDir = {home}\n\tdefaultBranch = other\n"
    (home / ".gitconfig").write_text(f"[core]\n\thooksPath = {hooks}\n[alias]\n\tx = y\n{template}")
    for name, value in {
        "HOME": str(home),
        "GIT_DIR": "/nonexistent",
        "GIT_INDEX_FILE": "/nonexistent",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(hooks),
    }.items():
        monkeypatch.setenv(name, value)
    lab.write("train.py")
    assert lab.record().is_new
    assert lab.paths() == ["train.py"]
