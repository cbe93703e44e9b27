"""The folders of ``python -m rl_bench.prepare``: those it copies, fills, and leaves to sweeps."""

import json
import lzma
import re
from pathlib import Path

import pytest

from rl_bench import prepare
from rl_bench.compose import compose
from rl_bench.data.catalogue import CATALOGUE
from rl_bench.data.records import RECORDS_FILE
from rl_bench.tasks.alfworld.task import AlfworldTask
from rl_bench.tasks.registry import make_task
from tests.rl_bench.data.file_server import FileServer
from tests.rl_bench.data.scene import FILES, RAW, TEST, TRAIN, files_of, got, run


def test_a_local_folder_is_copied_and_only_read(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    (folder / "letters").mkdir(parents=True)
    (folder / "letters/train.bin.xz").write_bytes(lzma.compress(TRAIN))
    (folder / "letters/test.txt").write_bytes(TEST)
    (folder / "raw.txt").write_bytes(RAW)
    (folder / "letters/more.txt").write_bytes(b"more")
    before = {name: (folder / name).stat().st_mtime_ns for name in files_of(folder)}

    assert run("task=letters", f"from={folder}") == 0

    assert got(data) == [*FILES[:3], "letters/train.bin.xz"]
    assert {name: (folder / name).stat().st_mtime_ns for name in files_of(folder)} == before
    assert "train.bin.xz: 300 kB to train on" in capsys.readouterr().out
    (data / "letters/test.txt").write_bytes(b"changed")
    assert (folder / "letters/test.txt").read_bytes() == TEST


def test_a_local_folder_may_be_linked(data: Path, tmp_path: Path) -> None:
    (tmp_path / "copy/letters").mkdir(parents=True)
    (tmp_path / "copy/letters/test.txt").write_bytes(TEST)

    run("task=letters", f"from={tmp_path / 'copy'}", "link=true")

    assert (data / "letters/test.txt").resolve() == tmp_path / "copy/letters/test.txt"


def test_a_local_folder_that_lacks_something_is_told_apart(
    server: FileServer, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "copy/letters").mkdir(parents=True)
    (tmp_path / "copy/letters/first1.txt").write_bytes(b"one\n")
    (tmp_path / "copy/letters/train.bin").write_bytes(b"another")

    assert run("task=letters", f"from={tmp_path / 'copy'}") == 1

    err = capsys.readouterr().err
    assert "first1.txt is there in part: only first1.txt" in err
    assert re.search(r"train.bin is missing: .*is another file than expected", err)
    assert "made.txt is missing" in err
    assert "from their public homes: python -m rl_bench.prepare task=letters" in err
    assert got(data) == ["letters/first1.txt"]

    assert run("task=letters", f"mirror={server.url}") == 0
    assert got(data) == ["letters/first1.txt", *FILES]


def test_a_part_is_taken_once(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "copy/letters").mkdir(parents=True)
    (tmp_path / "copy/letters/first1.txt").write_bytes(b"one\n")
    words = ("task=letters", f"from={tmp_path / 'copy'}")
    assert run(*words) == 1
    assert "got letters/first1.txt" in capsys.readouterr().out
    before = (data / "letters/first1.txt").stat().st_mtime_ns

    assert run(*words) == 1

    assert "got" not in capsys.readouterr().out
    assert (data / "letters/first1.txt").stat().st_mtime_ns == before
    (tmp_path / "copy/letters/first1.txt").write_bytes(b"two\n")
    run(*words)
    assert (data / "letters/first1.txt").read_bytes() == b"two\n"


@pytest.mark.parametrize(
    ("wrong", "missing"),
    [("letters/train.bin", "letters/train.bin"), ("raw.txt", "letters/made.txt")],
)
def test_a_wrong_file_in_a_local_folder_is_named_where_it_lies(
    data: Path, tmp_path: Path, wrong: str, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    (folder / "letters").mkdir(parents=True)
    (folder / wrong).write_bytes(b"wrong")

    assert run("task=letters", f"from={folder}") == 1

    err = capsys.readouterr().err
    assert f"{data / missing} is missing: {folder / wrong} is another file than expected" in err
    assert got(data) == []


def test_what_cannot_be_read_in_a_local_folder_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = tmp_path / "copy/letters"
    (letters / "train.bin").mkdir(parents=True)
    (letters / "first1.txt").symlink_to(letters / "nowhere")

    assert run("task=letters", f"from={tmp_path / 'copy'}") == 1

    err = capsys.readouterr().err
    assert f"{letters / 'train.bin'} is a folder, a file is expected" in err
    assert f"{letters / 'first1.txt'} cannot be taken: No such file" in err
    assert got(data) == []


def test_a_folder_in_the_place_of_a_file_is_told_and_left(
    server: FileServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "letters/train.bin").mkdir(parents=True)

    assert run("task=letters", f"mirror={server.url}") == 1

    assert f"{data / 'letters/train.bin'} is a folder, a file is expected" in (
        capsys.readouterr().err
    )
    assert got(data) == list(FILES[:3])


def test_records_that_cannot_be_read_are_named(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / RECORDS_FILE).mkdir(parents=True)

    assert run("task=letters", "verify=true") == 1

    assert f"error: {data / RECORDS_FILE} cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("inside", ["", "below/data"])
def test_a_folder_to_read_from_is_never_written(
    tmp_path: Path, inside: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()

    words = ("task=letters", f"from={folder}", f"paths.data={folder / inside}")
    assert run(*words) == 2

    assert f"set RL_BENCH_DATA={folder}" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("where", ["file", "file/below", "dangling", "loop"])
def test_a_data_folder_that_cannot_be_made_is_told(
    server: FileServer, tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    folder = tmp_path / where

    assert run("task=letters", f"mirror={server.url}", f"paths.data={folder}") == 2

    err = capsys.readouterr().err
    assert err.startswith(f"error: the data folder {folder} cannot be made: ")
    assert "Name another with paths.data= or RL_BENCH_DATA" in err
    assert server.seen == []


def test_sweeps_and_preparation_meet_in_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    read = prepare.read_request(["task=gsm8k"], catalogue=CATALOGUE)
    [task] = compose(["task=gsm8k"]).experiment.options.tasks.values()
    assert task.data_path == read.data / "gsm8k"

    monkeypatch.setenv("RL_BENCH_DATA", "/somewhere")
    read = prepare.read_request(["task=gsm8k"], catalogue=CATALOGUE)
    [task] = compose(["task=gsm8k"]).experiment.options.tasks.values()
    assert task.data_path == read.data / "gsm8k" == Path("/somewhere/gsm8k")


def test_an_agent_sees_the_train_split_only(data: Path, tmp_path: Path) -> None:
    rows = {
        split: [{"question": f"{split}: {i} + 1?", "answer": f"#### {i + 1}"} for i in range(num)]
        for split, num in {"train": 7473, "test": 1319}.items()
    }
    (data / "gsm8k").mkdir(parents=True)
    for split, questions in rows.items():
        lines = "".join(json.dumps(row) + "\n" for row in questions)
        (data / f"gsm8k/{split}.jsonl").write_text(lines)
    [config] = compose(["task=gsm8k"]).experiment.options.tasks.values()

    make_task(config, cache=tmp_path / "cache").write_train_data(tmp_path / "agent")

    seen = "".join(path.read_text() for path in (tmp_path / "agent").rglob("*") if path.is_file())
    assert rows["train"][-1]["question"] in seen
    assert "test: " not in seen


def test_the_few_shots_are_found_beside_the_games(data: Path, tmp_path: Path) -> None:
    [config] = compose(["task=alfworld"]).experiment.options.tasks.values()
    task = AlfworldTask(config, cache=tmp_path / "cache")
    few_shots = data / "react/alfworld_3prompts.json"
    assert str(few_shots) not in task.protocol

    few_shots.parent.mkdir(parents=True)
    few_shots.write_text("{}")

    assert str(few_shots) in task.protocol


def test_real_copies_are_the_pinned_files(
    real_data: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = prepare.main(["task=all", f"from={real_data}"])

    out, err = capsys.readouterr()
    assert "another file" not in err
    for line in ("train.jsonl", "alfworld_3prompts.json", "items_ins_v2_1000.json"):
        assert re.search(rf"ok +{re.escape(line)}.*checksum pinned", out)
    assert code == (1 if err else 0)
    assert (data / "gsm8k").is_dir()
