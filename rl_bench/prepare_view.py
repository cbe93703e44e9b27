"""What ``python -m rl_bench.prepare`` says: what is there, what is not, and what can be done."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rl_bench.data.catalogue import DataFile, Dataset
from rl_bench.data.inventory import Found, State
from rl_bench.data.preparation import Result
from rl_bench.data.progress import shown_size
from rl_bench.data.remote import places


def listing(results: Sequence[Result], *, mirror: str, sources: bool) -> Iterator[str]:
    """What is there, a line a file, under a line a data set.

    Args:
        results: What was found.
        mirror: See `rl_bench.data.remote.places`.
        sources: Whether to tell where each file comes from.
    """
    for dataset, members in _by_dataset(results):
        yield f"{dataset.name} ({_licence(dataset)})"
        for result in members:
            found = result.found
            detail = f"; {found.detail}" if found.detail else ""
            yield f"  {found.state:<7}  {_shown(found)}{detail}"
        if sources:
            files = [result.found.file for result in members]
            yield from (f"           from {line}" for line in _sources(files, mirror=mirror))
        if dataset.instead:
            yield f"           {_not_needed(dataset)}"


def spared(results: Sequence[Result]) -> Iterator[str]:
    """Each file that could not be had, and that its task does not read by default."""
    for result in results:
        reason = f" ({result.failure})" if result.failure else ""
        path = result.found.file.path
        yield f"{path} is missing{reason}, but {_not_needed(result.dataset)}"


def _by_dataset(results: Sequence[Result]) -> Iterator[tuple[Dataset, list[Result]]]:
    for _, group in groupby(results, key=lambda result: result.dataset.name):
        members = list(group)
        yield members[0].dataset, members


def _licence(dataset: Dataset) -> str:
    return f"licence {dataset.licence}, {dataset.licence_url}"


def _not_needed(dataset: Dataset) -> str:
    return f"not needed by default: the task reads {dataset.instead}"


def _sources(files: Sequence[DataFile], *, mirror: str) -> Iterator[str]:
    """Where downloads come from, each once, with names that addresses do not tell, and sizes."""
    for download in dict.fromkeys(each for file in files for each in file.downloads):
        url, *copies = places(download, mirror=mirror)
        name = "" if url.endswith(download.name) else f" as {download.name}"
        size = f" ({shown_size(download.num_bytes)})" if download.num_bytes else ""
        yield f"{url}{name}{size}{''.join(f', or {copy}' for copy in copies)}"


def _shown(found: Found) -> str:
    path = found.file.path if found.path is None else found.path.name
    if found.record is None:
        return f"{path}: {found.file.content}"
    trust = found.record.trust.replace("_", " ")
    size = shown_size(found.record.signature.num_bytes)
    return f"{path}: {found.file.content}, {size}, checksum {trust}"


def complaint(wrong: Sequence[Result], *, data: Path, has_asked_home: bool) -> Iterator[str]:
    """Each file that is not there as it must be: why, its home, its licence; then the cures.

    Args:
        wrong: The files.
        data: The data folder.
        has_asked_home: Whether they were asked for at their public homes just now.
    """
    for dataset, members in _by_dataset(wrong):
        yield f"error: {dataset.name} is not complete ({_licence(dataset)})"
        for result in members:
            found = result.found
            what = "there in part" if found.state is State.PART else found.state.value
            reason = ". ".join(filter(None, [result.failure or found.detail, result.cure]))
            path = found.path or data / found.file.path
            yield f"  {path} is {what}{reason and ': '}{reason}"
        files = [result.found.file for result in members]
        yield from (f"    from {line}" for line in _sources(files, mirror=""))
    if wrong:
        yield from _cures(wrong, data=data, has_asked_home=has_asked_home)


def _cures(wrong: Sequence[Result], *, data: Path, has_asked_home: bool) -> Iterator[str]:
    names = ",".join(dataset.name for dataset, _ in _by_dataset(wrong))
    task = f"task=[{names}]" if "," in names else f"task={names}"
    words = shlex.join([task, f"paths.data={data}"])
    again = f"python -m rl_bench.prepare {words}"
    if not has_asked_home:
        yield f"cure: get them from their public homes: {again}"
    yield (
        "cure: where there is no network, download the files above on another machine, keep their "
        "names, and take them from the folder that they are in:"
    )
    yield f"  {again} from=FOLDER"
