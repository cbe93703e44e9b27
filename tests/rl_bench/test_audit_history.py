"""What an audit reads of a code history: every version of every text file, from one git."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_bench.audit import sources
from rl_bench.audit.sources import Version, read_history
from rl_bench.errors import WorkspaceError
from rl_bench.lineage import objects, read
from rl_bench.lineage.git import open_git
from rl_bench.lineage.objects import ObjectReader
from tests.rl_bench.lineage_scene import Lab

ODD = (
    b"-rf",
    b"new\nline.py",
    b'quo"te\\back',
    "ünï-日本.py".encode(),
    b"\xff\xfe.py",
    b"tab\tname",
)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Two attempts; odd names, binary files, folders that come and go, a link, a mode."""
    lab = Lab(tmp_path)
    for name in ODD:
        (Path(os.fsdecode(os.fsencode(lab.code) + b"/" + name))).write_text(repr(name))
    lab.write("lib/deep/down.py", "one")
    lab.write("lib.py", "one")
    (lab.code / "weights.bin").write_bytes(b"\x00\x01" * 50)
    (lab.code / "link.py").symlink_to("lib.py")
    lab.record()
    lab.write("lib/deep/down.py", "two")
    (lab.code / "lib.py").chmod(0o755)
    (lab.code / "weights.bin").write_bytes(b"text now")
    lab.record()
    shutil.rmtree(lab.code / "lib")
    lab.write("lib", "a file now")
    (lab.code / "link.py").unlink()
    lab.write("link.py", "lib.py")  # the content that the link had
    lab.record()
    (lab.code / "lib").unlink()
    lab.write("lib/deep/down.py", "one")
    (lab.code / "latin.py").write_bytes(b"x = '\xe9'\n")
    lab.record()
    lab.history = lab.again(attempt=1)
    lab.write("lib.py", "second attempt")
    lab.record()
    (lab.code / "lib.py").unlink()
    lab.record()
    return lab


def revision_by_revision(lab: Lab, attempt: int) -> list[Version]:
    """The same, read with what people use: each revision's files, beside those before."""
    reader = lab.reader()
    found = []
    known: dict[str, str] = {}
    for revision in reader.revisions():
        if revision.note.attempt != attempt:
            continue
        files = [file for file in reader.files(revision.id) if not file.is_link]
        changed = [file for file in files if known.get(file.path) != file.blob]
        known = {file.path: file.blob for file in files}
        for file, data in reader.contents(changed):
            if b"\0" not in data:
                path = file.path.encode("utf-8", "replace").decode()
                text = data.decode("utf-8", "replace")
                since_s = revision.note.budget_used_s
                version = Version(
                    path=f"code/{path}", text=text, since_s=since_s, revision=revision.id
                )
                found.append(version)
    return found


@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_a_history_is_read_as_revision_by_revision(lab: Lab, attempt: int) -> None:
    history = read_history(lab.path, attempt=attempt, budget_s=30)
    assert list(history.versions) == revision_by_revision(lab, attempt)
    assert (history.problem, history.is_there) == ("", True)


def test_the_versions_are_those_that_were_written(lab: Lab) -> None:
    versions = read_history(lab.path, attempt=0, budget_s=30).versions
    told = [(version.path, version.text) for version in versions]
    odd = {name.decode("utf-8", "surrogateescape") for name in ODD}
    assert {f"code/{name}".encode("utf-8", "replace").decode() for name in odd} <= {
        path for path, _ in told
    }
    assert [text for path, text in told if path == "code/lib/deep/down.py"] == ["one", "two", "one"]
    assert [text for path, text in told if path == "code/weights.bin"] == ["text now"]
    assert [text for path, text in told if path == "code/link.py"] == ["lib.py"]
    assert ("code/latin.py", "x = '\ufffd'\n") in told


def test_git_is_started_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def counted(repository: Path, args: Sequence[str]) -> subprocess.Popen[bytes]:
        started.append(args)
        return open_git(repository, args)

    monkeypatch.setattr(objects, "open_git", counted)
    monkeypatch.setattr(read, "run_git", None)
    assert read_history(lab.path, attempt=0, budget_s=30).versions
    assert len(started) == 1


def test_what_stands_before_a_damaged_revision_is_read(lab: Lab) -> None:
    revisions = lab.reader().revisions()
    whole = read_history(lab.path, attempt=0, budget_s=30).versions
    blob = next(file.blob for file in lab.reader().files(revisions[1].id) if "down" in file.path)
    _spoil(lab.path, blob)
    history = read_history(lab.path, attempt=0, budget_s=30)
    first = [version for version in whole if version.revision == revisions[0].id]
    assert list(history.versions[: len(first)]) == first
    assert history.problem.startswith("the code history cannot be read: ")
    assert blob in history.problem


def test_a_branch_that_names_nothing_is_told(lab: Lab) -> None:
    (lab.path / "refs" / "heads" / "main").write_text("1" * 40 + "\n")
    history = read_history(lab.path, attempt=0, budget_s=30)
    assert "cannot be read" in history.problem
    assert history.versions == ()


def test_limits_are_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no time" in read_history(lab.path, attempt=0, budget_s=-1).problem
    first, *_ = lab.reader().revisions()
    monkeypatch.setattr(sources, "MAX_REVISIONS", 1)
    history = read_history(lab.path, attempt=0, budget_s=30)
    assert "only 1 of 4 revisions" in history.problem
    assert {version.revision for version in history.versions} == {first.id}
    monkeypatch.setattr(sources, "MAX_HISTORY_BYTES", 100)
    history = read_history(lab.path, attempt=0, budget_s=30)
    assert history.problem == "revisions beyond 100 bytes of changes were not read"
    assert history.versions == ()


def test_a_git_that_takes_too_long_is_ended(lab: Lab) -> None:
    with (
        ObjectReader(lab.path, timeout_s=0.0) as reader,
        pytest.raises(WorkspaceError, match="too long"),
    ):
        _read_on(reader)


def _read_on(reader: ObjectReader) -> None:
    while True:
        reader.read("refs/heads/main")


def _spoil(history: Path, name: str) -> None:
    """Damages one object where it lies: what is packed is unpacked first."""
    packs = list((history / "objects" / "pack").glob("*.pack"))
    for pack in packs:
        moved = history / pack.name
        pack.rename(moved)
        pack.with_suffix(".idx").unlink()
        with moved.open("rb") as file:
            subprocess.run(
                ["git", f"--git-dir={history}", "unpack-objects", "-q"], stdin=file, check=True
            )
    path = history / "objects" / name[:2] / name[2:]
    path.chmod(0o644)
    path.write_bytes(b"no object")
