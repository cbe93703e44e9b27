"""The store of texts: kept, shared, and never the reason that something fails."""

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from envs.text_store import TextStore, key_of

WRITER = """
import sys
from pathlib import Path
from envs.text_store import TextStore
store = TextStore(Path(sys.argv[1]))
for i in range(100):
    store.put(f"{sys.argv[2]} {i}", "x" * 1000)
store.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "texts.sqlite"


def test_texts_outlive_the_store(path: Path) -> None:
    first = TextStore(path)
    assert first.get("a") is None
    first.put("a", '{"text": "ä \\u0000 \U0001f600"}')
    first.put("b", "one")
    first.put("b", "two")
    first.close()
    first.close()
    second = TextStore(path)
    assert second.get("a") == '{"text": "ä \\u0000 \U0001f600"}'
    assert second.get("b") == "two"
    assert len(second) == 2
    second.close()


def test_processes_and_threads_share_it(path: Path) -> None:
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], cwd=root)
        for name in ("p", "q", "r")
    ]
    store = TextStore(path)

    def write(name: int) -> None:
        for i in range(100):
            store.put(f"{name} {i}", "y")

    threads = [threading.Thread(target=write, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [writer.wait(30) for writer in writers] == [0, 0, 0]
    assert len(store) == 600
    store.close()


@pytest.mark.parametrize("where", ["whole file", "middle"])
def test_a_damaged_file_is_set_aside(
    path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = TextStore(path)
    for i in range(200):
        store.put(str(i), "z" * 1000)
    store.close()
    content = path.read_bytes()
    damaged = b"not a database" * 10 if where == "whole file" else content[:5000]
    path.write_bytes(damaged)
    store = TextStore(path)
    store.put("a", "new")
    assert store.get("a") == "new"
    assert len(store) == 1
    store.close()
    assert "set aside" in caplog.text
    (aside,) = path.parent.glob("texts.sqlite.damaged-*")
    assert aside.read_bytes() == damaged


def test_a_file_is_set_aside_by_one_process_alone(path: Path) -> None:
    full = TextStore(path)
    for i in range(3000):
        full.put(str(i), "t" * 200)
    full.close()
    first, second, third = TextStore(path), TextStore(path), TextStore(path)
    for store in (first, second, third):
        assert store.get("1") is not None
    with path.open("r+b") as stream:  # damaged in place, under the eyes of all
        stream.seek(4096)
        stream.write(b"\xff" * (path.stat().st_size - 4096))
    assert first.get("2500") is None
    first.put("paid", "verdict")
    assert second.get("2600") is None
    third.put("found", "result")
    reader = TextStore(path)
    for store in (first, second, third, reader):
        assert (store.get("paid"), store.get("found"), len(store)) == ("verdict", "result", 2)
        store.close()
    assert len(list(path.parent.glob("texts.sqlite.damaged-*"))) == 1


def test_many_processes_meet_a_damaged_file(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database" * 1000)
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], cwd=root)
        for name in ("p", "q", "r")
    ]
    assert [writer.wait(30) for writer in writers] == [0, 0, 0]
    store = TextStore(path)
    assert len(store) == 300
    store.close()
    assert len(list(path.parent.glob("texts.sqlite.damaged-*"))) == 1


@pytest.mark.parametrize(
    "table", ["texts (id INTEGER, body TEXT)", "texts (key TEXT, text TEXT)", "texts (key TEXT)"]
)
def test_another_schema_is_set_aside(path: Path, table: str) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table}")
    connection.close()
    store = TextStore(path)
    store.put("a", "one")
    store.put("a", "two")
    assert (store.get("a"), len(store)) == ("two", 1)
    store.close()
    assert len(list(path.parent.glob("texts.sqlite.damaged-*"))) == 1


def test_what_is_kept_first_stays(path: Path) -> None:
    first, second = TextStore(path), TextStore(path)
    assert first.keep("a", "one") == "one"
    assert second.keep("a", "two") == "one"
    assert second.keep("a", "two", instead_of="spoilt") == "one"
    assert second.keep("a", "two", instead_of="one") == "two"
    assert first.get("a") == "two"
    first.close()
    assert first.keep("a", "three") == "three"
    second.close()


def test_without_a_usable_file_it_holds_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = TextStore(tmp_path / "file" / "texts.sqlite")
    store.put("a", "b")
    assert store.get("a") is None
    assert len(store) == 0
    store.close()
    assert "going on without it" in caplog.text


def test_a_key_tells_everything_apart_but_order() -> None:
    assert key_of({"a": 1, "b": [1, None]}) == key_of({"b": [1, None], "a": 1})
    assert len({key_of({"a": v}) for v in (1, 1.5, "1", None, [1], {"a": 1}, "\ud800")}) == 7
    with pytest.raises(TypeError):
        key_of({"a": object()})
