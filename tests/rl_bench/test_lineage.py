"""The shadow history of an agent's code: what a revision holds, and how it is read."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from rl_bench.errors import WorkspaceError
from rl_bench.lineage import code_history
from rl_bench.lineage.code_history import submission_tag
from rl_bench.lineage.read import CodeReader, FileChange
from tests.rl_bench.lineage_scene import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_revision_holds_the_code_and_says_what_changed(lab: Lab) -> None:
    lab.write("train.py", "one\n")
    lab.write("lib/util.py")
    first = lab.record()
    assert (first.is_new, first.num_files, first.changed) == (True, 2, ("lib/util.py", "train.py"))
    lab.write("train.py", "two\n")
    (lab.code / "lib" / "util.py").unlink()
    second = lab.history.record("submission", budget_used_s=12.5, submission_id=1)
    assert (second.changed, second.num_changed) == (("lib/util.py", "train.py"), 2)

    reader = lab.reader()
    old, new = reader.revisions()
    assert (old.id, old.parent, new.id, new.parent) == (first.id, "", second.id, first.id)
    assert (new.note.cause, new.note.budget_used_s) == ("submission", 12.5)
    assert (new.note.submission_id, new.note.num_files, new.note.num_changed) == (1, 1, 2)
    assert abs(new.time_utc.timestamp() - time.time()) < 60
    assert reader.read(first.id, "train.py") == b"one\n"
    assert reader.read("submission-1", "train.py") == reader.read("main", "train.py") == b"two\n"
    assert reader.submissions() == {"submission-1": second.id}
    assert reader.changes(first.id, second.id) == (
        FileChange("lib/util.py", "deleted"),
        FileChange("train.py", "modified"),
    )
    assert [change.status for change in reader.changes(None, first.id)] == ["added", "added"]
    diff = reader.diff(first.id, second.id)
    assert "-one\n+two\n" in diff
    assert "deleted file mode 100644" in diff
    assert "util.py" not in reader.diff(first.id, second.id, paths=["train.py"])
    assert "+one\n" in reader.diff(None, first.id)
    assert reader.diff(None, first.id, max_chars=20).endswith("cut here\n")
    assert lab.fsck() == ""


def test_unchanged_code_is_the_same_revision(lab: Lab) -> None:
    empty = lab.record()
    assert (empty.is_new, empty.num_files) == (True, 0)
    lab.write("train.py")
    first = lab.record()
    os.utime(lab.code / "train.py", (1, 1))
    again = lab.record()
    assert (again.id, again.is_new, again.changed) == (first.id, False, ())
    resumed = lab.again().record("end")
    assert (resumed.id, resumed.is_new) == (first.id, False)
    assert len(lab.reader().revisions()) == 2


def test_only_the_date_tells_two_equal_histories_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_history, "datetime", _Noon)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody")
    ids = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        lab = Lab(tmp_path / name)
        lab.write("z.py")
        lab.write("a.txt")
        ids.append(lab.record().id)
        monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody else")
    assert ids[0] == ids[1]


class _Noon:
    @staticmethod
    def now(zone: object) -> "_Noon":
        return _Noon()

    def timestamp(self) -> float:
        return 1_700_000_000.0


def test_any_name_survives(lab: Lab) -> None:
    names = [
        b"-rf",
        b"a b",
        b" lead",
        b"new\nline.py",
        b'quo"te\\back',
        "ünï-日本.py".encode(),
        b"\xff\xfe.bin",
        b"tab\tname",
        b"HEAD",
        b":(top)x",
        b"*.py",
        b"main",
        b"d -x/--help",
    ]
    for number, name in enumerate(names):
        path = os.fsencode(lab.code) + b"/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120  bytes
        with open(path, "wb") as file:  # noqa: PTH123  bytes
            file.write(b"%d" % number)
    revision = lab.record()
    reader = lab.reader()
    files = {os.fsencode(file.path): data for file, data in reader.contents(reader.files("main"))}
    assert files == {name: b"%d" % number for number, name in enumerate(names)}
    assert all(name.isprintable() for name in revision.changed)
    assert reader.read("main", os.fsdecode(b"\xff\xfe.bin")) == b"6"
    assert "+3" in reader.diff(None, "main", paths=["new\nline.py"])
    assert not lab.again().record("end").is_new
    lab.fsck()


def test_attempts_share_a_history_and_not_their_tags(lab: Lab) -> None:
    lab.write("train.py", "first")
    first = lab.history.record("submission", submission_id=1)
    (lab.code / "train.py").unlink()
    second_try = lab.again(attempt=1)
    empty = second_try.record("change")
    assert empty.changed == ("train.py",)
    lab.write("train.py", "second")
    second = second_try.record("submission")
    second_try.tag_submission(1, second.id)
    second_try.tag_submission(1, second.id)
    reader = lab.reader()
    assert reader.submissions() == {"submission-1": first.id, "attempt-1/submission-1": second.id}
    assert reader.read(submission_tag(1, attempt=1), "train.py") == b"second"
    assert [revision.note.attempt for revision in reader.revisions()] == [0, 1, 1]
    with pytest.raises(WorkspaceError):
        second_try.tag_submission(2, "1" * 40)


def test_names_of_no_revision_are_refused(lab: Lab) -> None:
    lab.write("train.py")
    revision = lab.record().id
    reader = lab.reader()
    for name in ("", "--all", "submission-9", "HEAD", "0" * 40, f"{revision}:train.py"):
        with pytest.raises(WorkspaceError, match="revision"):
            reader.files(name)
    with pytest.raises(WorkspaceError, match="no file"):
        reader.read("main", "none.py")
    with pytest.raises(WorkspaceError, match="no code history"):
        CodeReader(lab.code)


def test_an_empty_history_reads_as_empty(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "code.git")], check=True)
    assert CodeReader(tmp_path / "code.git").revisions() == ()
