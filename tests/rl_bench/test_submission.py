"""Paths that agents send, and snapshots that nothing they do afterwards can reach."""

import json
import os
import socket
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_bench import submission
from rl_bench.checkpoint import content_hash
from rl_bench.clone import clone_file
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.submission import Snapshot, SubmissionStore, resolve_model_path
from tests.rl_bench.grading_scene import value_of, write_checkpoint


class Place:
    """A workspace with one good checkpoint, beside a base model and a neighbour's output."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = write_checkpoint(root / "base", value=5)
        self.workspace = root / "run" / "workspace"
        self.good = write_checkpoint(self.workspace / "output" / "good", value=1)
        self.neighbour = write_checkpoint(root / "other" / "output", value=2)
        self.snapshots = root / "snapshots"
        self.store = self.make_store()

    def make_store(self) -> SubmissionStore:
        return SubmissionStore(self.snapshots, workspace=self.workspace, base_model=self.base)

    def refuse(self, model_path: str) -> SubmissionError:
        with pytest.raises(SubmissionError) as caught:
            self.store.take(model_path)
        return caught.value

    def stored(self) -> list[str]:
        return sorted(path.name for path in self.snapshots.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The scene of these tests."""
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("model_path", "reason"),
    [
        ("", "empty_path"),
        ("   ", "empty_path"),
        ("../other/output", "traversal"),
        ("output/../../other", "traversal"),
        ("~", "bad_path"),
        ("~root/x", "bad_path"),
        ("output/\0", "bad_path"),
        ("output/\ud800", "bad_path"),
        ("x" * 10_000, "path_too_long"),
        ("/".join(["a" * 300] * 3), "not_found"),
        ("output/none", "not_found"),
        ("output/good/config.json", "not_a_folder"),
        ("/", "outside_workspace"),
        ("/etc", "outside_workspace"),
        ("{neighbour}", "outside_workspace"),
        ("{workspace}/../workspace/output/good", "traversal"),
        ("output/to_neighbour", "outside_workspace"),
        ("output/to_root", "outside_workspace"),
        ("output/loop", "not_found"),
        ("output/pipe", "not_a_folder"),
    ],
)
def test_bad_paths(place: Place, model_path: str, reason: str) -> None:
    output = place.workspace / "output"
    (output / "to_neighbour").symlink_to(place.neighbour)
    (output / "to_root").symlink_to("/")
    (output / "loop").symlink_to(output / "loop")
    os.mkfifo(output / "pipe")
    filled = model_path.replace("{neighbour}", str(place.neighbour))
    error = place.refuse(filled.replace("{workspace}", str(place.workspace)))
    assert error.reason == reason
    assert error.status == 400
    assert len(error.message) < 400
    assert error.cure
    assert place.stored() == []


def test_good_paths(place: Place) -> None:
    inner = place.workspace / "output" / "link"
    inner.symlink_to(place.good)
    for model_path in (
        "output/good",
        "./output/good",
        str(place.good),
        "output/link",
        "output//good/",
    ):
        found = resolve_model_path(model_path, workspace=place.workspace, base_model=place.base)
        assert found == place.good


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["..", ".", "", "output", "good", "l", "/"])).map("/".join)
)
def test_no_path_leads_outside(model_path: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        workspace, base = Path(root, "w"), Path(root, "b")
        (workspace / "output" / "good").mkdir(parents=True)
        (workspace / "output" / "l").symlink_to(root)
        try:
            found = resolve_model_path(model_path, workspace=workspace, base_model=base)
        except SubmissionError:
            return
        assert found.is_relative_to(workspace)
        assert found.is_dir()


def test_snapshot_holds_the_content_and_says_where_from(place: Place) -> None:
    (place.good / "optimizer.pt").write_bytes(b"x")
    (place.good / "chat_template.jinja").write_text("{{ messages }}")
    snapshot = place.store.take("output/good")
    assert snapshot == Snapshot(
        folder=place.snapshots / snapshot.content_hash,
        content_hash=content_hash(place.good),
        model_path="output/good",
        unchanged=False,
    )
    assert content_hash(snapshot.folder) == snapshot.content_hash
    assert (snapshot.folder / "chat_template.jinja").exists()
    assert not (snapshot.folder / "optimizer.pt").exists()
    assert place.stored() == [snapshot.content_hash]


def test_in_place_write_does_not_reach_the_snapshot(place: Place) -> None:
    snapshot = place.store.take("output/good")
    weights = place.good / "model.safetensors"
    status = weights.stat()
    other = write_checkpoint(place.root / "x", value=9) / "model.safetensors"
    with weights.open("r+b") as file:
        file.write(other.read_bytes())
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert value_of(snapshot.folder) == 1
    again = place.store.take("output/good")
    assert again.content_hash != snapshot.content_hash
    assert value_of(again.folder) == 9


def test_equal_times_and_sizes_are_no_equality(place: Place) -> None:
    one = place.store.take("output/good")
    twin = write_checkpoint(place.workspace / "output" / "twin", value=3)
    status = (place.good / "model.safetensors").stat()
    for path in twin.iterdir():
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert place.store.take("output/twin").content_hash != one.content_hash


def test_changed_template_alone_is_another_submission(place: Place) -> None:
    one = place.store.take("output/good")
    (place.good / "chat_template.jinja").write_text("{{ messages }}")
    two = place.store.take("output/good")
    assert two.content_hash != one.content_hash
    assert not two.unchanged


def test_identical_content_is_stored_once_even_at_once(place: Place) -> None:
    stores = [place.make_store() for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: stores[i % 4].take("output/good"), range(16)))
    assert len({snapshot.content_hash for snapshot in found}) == 1
    assert place.stored() == [found[0].content_hash]


@pytest.mark.parametrize("as_link", [False, True])
def test_untouched_base_is_unchanged(place: Place, as_link: bool) -> None:
    target = place.workspace / "models" / "tiny"
    target.parent.mkdir()
    if as_link:
        target.symlink_to(place.base)
    else:
        write_checkpoint(target, value=5)
    snapshot = place.store.take("models/tiny")
    assert snapshot.unchanged
    assert snapshot.content_hash == place.store.base_hash


def test_base_weights_in_other_clothes_are_unchanged(place: Place) -> None:
    folder = write_checkpoint(place.workspace / "output" / "dressed", value=5)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "note": "saved again"}))
    snapshot = place.store.take("output/dressed")
    assert snapshot.unchanged
    assert snapshot.content_hash != place.store.base_hash
    assert not place.store.take("output/good").unchanged


def link_outside(place: Place) -> None:
    (place.good / "tokenizer.json").unlink()
    (place.good / "tokenizer.json").symlink_to(place.neighbour / "tokenizer.json")


def link_to_base(place: Place) -> None:
    (place.good / "tokenizer.json").unlink()
    (place.good / "tokenizer.json").symlink_to(place.base / "tokenizer.json")


def test_file_that_is_a_link_outside_is_refused(place: Place) -> None:
    link_outside(place)
    error = place.refuse("output/good")
    assert (error.reason, error.file, error.status) == ("outside_workspace", "tokenizer.json", 400)
    assert place.stored() == []


def test_file_that_is_a_link_to_the_base_is_copied(place: Place) -> None:
    link_to_base(place)
    snapshot = place.store.take("output/good")
    assert not (snapshot.folder / "tokenizer.json").is_symlink()


def test_base_in_a_hub_cache_is_accepted(place: Place) -> None:
    blobs = place.root / "hub" / "blobs"
    hub = write_checkpoint(place.root / "hub" / "snapshot", value=6)
    blobs.mkdir()
    for path in list(hub.iterdir()):
        path.rename(blobs / path.name)
        path.symlink_to(blobs / path.name)
    store = SubmissionStore(place.snapshots, workspace=place.workspace, base_model=hub)
    (place.workspace / "models").mkdir()
    (place.workspace / "models" / "hub").symlink_to(hub)
    assert store.take("models/hub").unchanged


def test_named_pipe_among_the_files_does_not_hang(place: Place) -> None:
    os.mkfifo(place.good / "extra.json")
    assert place.store.take("output/good").content_hash


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no_config"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "missing_tokenizer"),
        (lambda folder: os.truncate(folder / "model.safetensors", 100), "truncated_shard"),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "x.safetensors"),
            "stale_shard",
        ),
    ],
)
def test_bad_checkpoint_is_never_stored(
    place: Place, spoil: Callable[[Path], object], reason: str
) -> None:
    spoil(place.good)
    assert place.refuse("output/good").reason == reason
    assert place.stored() == []


def test_folder_written_to_meanwhile_is_refused(place: Place) -> None:
    calls: list[Path] = []

    def check(folder: Path, base: object) -> None:
        calls.append(folder)

    original = clone_file

    def slow_clone(source: Path, target: Path, **kwargs: object) -> bool:
        if source.name == "model.safetensors":
            os.truncate(source, 10)
        return original(source, target, roots=None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "clone_file", slow_clone)
        store = SubmissionStore(
            place.snapshots, workspace=place.workspace, base_model=place.base, check=check
        )
        with pytest.raises(SubmissionError) as caught:
            store.take("output/good")
    assert (caught.value.reason, caught.value.status) == ("changed_while_copying", 409)
    assert place.stored() == []


def test_full_disk_is_not_the_agents_fault(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rl_bench.submission.clone_file", full)
    with pytest.raises(GraderError, match="No space left"):
        place.store.take("output/good")
    assert place.stored() == []


def test_half_done_copies_of_the_dead_are_removed(place: Place) -> None:
    dead = place.snapshots / f".draft-{socket.gethostname()}-4194304999-x"
    alive = place.snapshots / f".draft-{socket.gethostname()}-{os.getpid()}-x"
    elsewhere = place.snapshots / ".draft-otherhost-4194304999-x"
    for folder in (dead, alive, elsewhere):
        folder.mkdir()
    place.make_store()
    assert [folder.exists() for folder in (dead, alive, elsewhere)] == [False, True, True]
