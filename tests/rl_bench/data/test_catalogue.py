"""The list of sources: consistent in itself, and with the page that tells people of it."""

import re
from pathlib import Path

import pytest

from rl_bench.data.catalogue import CATALOGUE, DataFile, Dataset, Download
from rl_bench.data.remote import places

FILES = [(dataset, file) for dataset in CATALOGUE.values() for file in dataset.files]
DOWNLOADS = [download for _, file in FILES for download in file.downloads]


@pytest.mark.parametrize(("dataset", "file"), FILES)
def test_a_file_is_its_download_or_is_made(dataset: Dataset, file: DataFile) -> None:
    assert file.path.split("/")[0] in {dataset.name, "react"}
    assert file.make is not None or len(file.downloads) == 1
    assert file.downloads


@pytest.mark.parametrize("download", DOWNLOADS)
def test_a_download_is_pinned_in_content_and_place(download: Download) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", download.sha256)
    for url in places(download):
        assert url.startswith("https://")
        assert "/main/" not in url


def test_one_name_is_one_file() -> None:
    by_name: dict[str, set[tuple[str, str]]] = {}
    for download in DOWNLOADS:
        by_name.setdefault(download.name, set()).add((download.url, download.sha256))
    assert all(len(files) == 1 for files in by_name.values())


def test_mirrors_take_the_place_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    download = Download(
        name="a",
        url="https://huggingface.co/datasets/a",
        copies=("https://github.com/a",),
        sha256="0" * 64,
    )
    assert places(download, mirror="http://here/x/") == [
        "http://here/x/huggingface.co/datasets/a",
        "http://here/x/github.com/a",
    ]

    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example/")
    assert places(download)[0] == "https://hub.example/datasets/a"
    assert places(download)[1] == "https://github.com/a"


def test_the_page_names_every_data_set() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "data.md").read_text()

    for dataset in CATALOGUE.values():
        assert re.search(rf"^\| {dataset.name}\b", page, flags=re.M)
