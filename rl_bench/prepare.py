"""``python -m rl_bench.prepare task=NAME``: gets the public data that a task reads.

Parts: `rl_bench.data.catalogue` knows what is needed and where it comes from, `.inventory` what is
there, `.preparation` gets the rest. This module reads the command line and tells the outcome.

Exit codes: 0 everything is there and is what it must be, but for files that no task reads by
default (with ``dry_run=true``: it was listed);
1 something is missing, damaged or only there in part; 2 bad input, nothing done; 130 interrupted.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from rl_bench.command_line import EXIT_FAILED, Words, run_command, say
from rl_bench.compose import compose, compose_paths
from rl_bench.config import DataSource
from rl_bench.data.catalogue import CATALOGUE, Dataset
from rl_bench.data.inventory import State
from rl_bench.data.local import check_folder
from rl_bench.data.preparation import Result, Source, check_data_folder, prepare, survey
from rl_bench.data.progress import show_progress
from rl_bench.errors import ConfigError
from rl_bench.nearest import did_you_mean
from rl_bench.prepare_view import complaint, listing, spared

EVERYTHING = "all"
_SWITCHES = ("dry_run", "verify", "link")
_KEYS = ("task", "from", "mirror", *_SWITCHES)
_PATHS = ("paths.data", "paths.cache")

_HELP = """\
usage: python -m rl_bench.prepare [--config-dir DIR] task=NAME [KEY=VALUE ...]

Gets the public data of tasks into one folder, which is where sweeps look for them. What is there is
kept, what broke off goes on, every file is verified. The same command again only looks.

data sets:
{datasets}

overrides:
  task=NAME               a data set, or an option of conf/task; task=A,B or task=[A,B] for
                          several, task=all for all that tasks read by default
  from=FOLDER             take them from a local folder in the same layout, which is only read;
                          files may be compressed there (.xz), or be the public files by their names
  link=true               with from=: link instead of copying
  mirror=URL              ask URL/HOST/PATH instead of https://HOST/PATH
  dry_run=true            list files, sizes, sources and what is there; get nothing
  verify=true             read every file that is there again and compare; get nothing
  paths.data=FOLDER       the data folder; so do RL_BENCH_DATA and, as its parent, paths.cache=

checksums:
  A file with a pinned SHA-256 must have it. For others the first download is trusted. Either way
  the digest is kept in DATA/checksums.json, and later looks compare with it.

environment variables:
  RL_BENCH_DATA                 the data folder (RL_BENCH_CACHE/data)
  RL_BENCH_CACHE                what is kept between sweeps (~/.cache/rl_bench)
  HF_ENDPOINT                   asked instead of https://huggingface.co
  HTTP_PROXY, HTTPS_PROXY, NO_PROXY

Of all this an agent's workspace gets only what a task gives for training. sandbox=none hides the
rest no better than other files of yours.

exit codes:
  0    everything that tasks read by default is there and is what it must be; a dry run: it was
       listed
  1    something is missing, damaged or only there in part
  2    bad input; nothing was done
  130  interrupted; the same command goes on from there
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for.

    Attributes:
        datasets: Which, without repeats.
        generated: Tasks that were named and need no data.
        data: The data folder, absolute.
    """

    datasets: tuple[Dataset, ...]
    generated: tuple[str, ...]
    data: Path
    source: Source
    dry_run: bool
    verify: bool


def main(argv: Sequence[str] | None = None, *, catalogue: Mapping[str, Dataset] = CATALOGUE) -> int:
    """Does what the command line asks for.

    Args:
        argv: Words after the program's name; by default the process's own.
        catalogue: The data sets that there are.

    Returns:
        The exit code, see the module's docstring.
    """
    return run_command(
        "rl-bench-prepare",
        argv,
        command=lambda words: _start(words, catalogue),
        help_text=lambda _: _HELP.format(datasets="\n".join(map(_about, catalogue.values()))),
        interrupted="the same command goes on from there",
    )


def _start(words: Words, catalogue: Mapping[str, Dataset]) -> int:
    request = read_request(words.overrides, catalogue=catalogue, config_dirs=words.config_dirs)
    for name in request.generated:
        say(f"{name}: its data are generated, there is nothing to get")
    return _serve(request) if request.datasets else 0


def read_request(
    words: Sequence[str], *, catalogue: Mapping[str, Dataset], config_dirs: Sequence[Path] = ()
) -> Request:
    """Reads the overrides.

    Raises:
        ConfigError: With the word, the choices and the cure.
    """
    given = dict(map(_pair, words))
    paths = [f"{key}={value}" for key, value in given.items() if key in _PATHS]
    names = _names(given.get("task", ""), catalogue)
    data = compose_paths(paths, config_dirs=config_dirs).data
    kinds = {name: _kind(name, catalogue, config_dirs) for name in names}
    folder = Path(given["from"]).expanduser().absolute() if given.get("from") else None
    switches = {key: _boolean(key, given.get(key, "false")) for key in _SWITCHES}
    _check(given, folder=folder, data=data, switches=switches)
    chosen = dict.fromkeys(kind for kind in kinds.values() if kind is not None)
    return Request(
        datasets=tuple(catalogue[kind] for kind in chosen),
        generated=tuple(name for name, kind in kinds.items() if kind is None),
        data=data,
        source=Source(folder=folder, link=switches["link"], mirror=given.get("mirror", "")),
        dry_run=switches["dry_run"],
        verify=switches["verify"],
    )


def _pair(word: str) -> tuple[str, str]:
    key, mark, value = word.partition("=")
    if not mark:
        raise ConfigError(f"'{word}' has no value", cure=f"Write task={word}, or KEY=VALUE")
    if key not in {*_KEYS, *_PATHS}:
        raise ConfigError(f"unknown key '{key}'", cure=did_you_mean(key, (*_KEYS, *_PATHS)))
    return key, value


def _names(value: str, catalogue: Mapping[str, Dataset]) -> list[str]:
    names = [name.strip(" '\"") for name in value.strip().strip("[]").split(",")]
    names = list(dict.fromkeys(name for name in names if name))
    if not names:
        raise ConfigError(
            "no task is named", cure=f"Write task=NAME: {', '.join(catalogue)}, or {EVERYTHING}"
        )
    if EVERYTHING in names:
        return [name for name, dataset in catalogue.items() if not dataset.is_extra]
    return names


def _kind(name: str, catalogue: Mapping[str, Dataset], config_dirs: Sequence[Path]) -> str | None:
    """The data set of a task, or ``None`` if its data are generated."""
    if name in catalogue:
        return name
    [task] = compose([f"task={name}"], config_dirs=config_dirs).experiment.options.tasks.values()
    if task.source is DataSource.BUILTIN:
        return None
    if task.kind not in catalogue:
        raise ConfigError(
            f"task {name}: no public data are known for kind '{task.kind}'",
            cure=f"Known: {', '.join(catalogue)}",
        )
    return task.kind


def _boolean(key: str, value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ConfigError(f"{key} is '{value}'", cure="Choices: true, false")
    return value.lower() == "true"


def _check(
    given: Mapping[str, str], *, folder: Path | None, data: Path, switches: Mapping[str, bool]
) -> None:
    check_data_folder(data)
    if folder is not None:
        check_folder(folder, data=data)
        if given.get("mirror"):
            raise ConfigError("from= and mirror= exclude each other", cure="Leave one out")
    elif switches["link"]:
        raise ConfigError("link=true has no effect without from=", cure="Name a folder with from=")
    mirror = given.get("mirror", "")
    if mirror and not re.fullmatch(r"https?://[\w.:-]+(/.*)?", mirror):
        raise ConfigError(f"mirror={mirror} is no address", cure="Write mirror=https://HOST/PATH")


def _serve(request: Request) -> int:
    say(f"data folder: {request.data}")
    if request.dry_run or request.verify:
        results = survey(request.datasets, data=request.data, full=request.verify)
    else:
        console = Console(stderr=True)
        results = prepare(
            request.datasets,
            data=request.data,
            source=request.source,
            say=say,
            show_progress=lambda: show_progress(console),
        )
    is_listed = request.dry_run or request.verify
    shown = [each for each in results if is_listed or each.found.state is State.OK]
    for line in listing(shown, mirror=request.source.mirror, sources=request.dry_run):
        say(line)
    if request.dry_run:
        say("dry run, nothing was changed")
        return 0
    wrong = [each for each in results if each.found.state is not State.OK]
    spare = [each for each in wrong if _is_spare(each, request.source)]
    for line in spared(spare):
        say(line)
    wrong = [each for each in wrong if each not in spare]
    has_asked_home = not request.verify and request.source.folder is None
    for line in complaint(wrong, data=request.data, has_asked_home=has_asked_home):
        say(line, to_stderr=True)
    return EXIT_FAILED if wrong else 0


def _is_spare(result: Result, source: Source) -> bool:
    """Whether a task works without a file; a wrong one in the user's own folder is told anyway."""
    is_refused = bool(result.failure) and source.folder is not None
    is_missing = result.found.state is State.MISSING
    return is_missing and bool(result.dataset.instead) and not is_refused


def _about(dataset: Dataset) -> str:
    return f"  {dataset.name:<13} {'; '.join(file.content for file in dataset.files)}"


if __name__ == "__main__":
    sys.exit(main())
