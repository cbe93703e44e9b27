"""One W&B run of an analysis: tables, charts and artifacts, by the runner's own rules for W&B.

Ids, groups, settings, time limits and the login check are those of `rl_bench.sinks.wandb`. The id
follows from the sweeps' names alone: offline, the folder of an earlier mirror is replaced; online,
the same run is resumed and its tables and charts are overwritten.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from analysis.results import Results
from analysis.wandb_sheets import Chart, Pages, Sheet, Value
from rl_bench.config import WandbConfig
from rl_bench.errors import SinkError
from rl_bench.paths import SweepPaths
from rl_bench.sinks.wandb import WandbSink, surroundings

if TYPE_CHECKING:
    import wandb

JOB_TYPE = "analysis"
MAX_LABEL = 80
GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The best checkpoint of a task whose snapshot is still there; ``score`` in percent."""

    model: str
    task: str
    run_id: str
    submission_id: int
    score: float
    content_hash: str
    path: Path


def label_of(sweeps: Sequence[str]) -> str:
    """The group of a set of sweeps: its one name, or the first with a digest of all."""
    names = sorted(set(sweeps))
    if len(names) == 1 and len(names[0]) <= MAX_LABEL:
        return names[0]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    return f"{names[0][: MAX_LABEL - 20]}-{len(names)}sweeps-{digest}"


@contextmanager
def own_state(folder: Path, label: str, *, is_offline: bool) -> Iterator[None]:
    """Within it W&B keeps what it stages in ``folder``, and not in the user's home.

    An offline run stages files that stay until it is uploaded. The new run replaces the old one,
    so that what that staged goes first.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "analysis-state" / label
    if is_offline and "WANDB_DATA_DIR" not in os.environ:
        shutil.rmtree(state, ignore_errors=True)
    ours = surroundings(state)
    added = [name for name in ours if name not in os.environ]
    os.environ.update({name: ours[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def start(folder: Path, label: str, config: WandbConfig) -> "wandb.Run":
    """Opens the run; call it within `own_state`. Blocks for some minutes at most.

    Args:
        folder: W&B's own, which is called ``wandb``.
        label: Of the sweeps.
        config: Mode, project and entity.

    Raises:
        SinkError: W&B is not installed, cannot be reached or has no key.
    """
    sink = WandbSink(folder, config=config, sweep=label)
    try:
        sink._check_login()
        return sink._init(JOB_TYPE, name=f"{label} analysis", config={}, kind=JOB_TYPE)
    except SinkError:
        raise
    except ImportError as error:
        raise SinkError(f"W&B cannot be used: {error}", cure="Install wandb") from error
    except Exception as error:  # W&B raises its own errors and more
        reason = str(error).rstrip(".")
        raise SinkError(
            f"W&B ({config.mode}) cannot open: {reason}",
            cure="Use --mode offline, and `wandb sync` when it can be reached",
        ) from error


def pages_of(results: Results, run: "wandb.Run", entity: str) -> Pages:
    """The W&B runs that the runner made, as far as its folders beside the results tell."""
    ids = {}
    for root in results.folders:
        folder = SweepPaths(root).wandb
        kept = {path.name.split("-", 3)[-1] for path in folder.glob("offline-run-*")}
        kept |= {path.name.split("-", 2)[-1] for path in folder.glob("run-*")}
        of_sweep = results.runs.filter(pl.col("folder").str.starts_with(f"{root}/"))
        for row in of_sweep.unique("run_id").iter_rows(named=True):
            name = f"{row['sweep']}-{Path(row['folder']).name}"
            if name in kept:
                ids[str(row["run_id"])] = name
    known = entity or run.entity
    base = f"{run.settings.app_url}/{known}/{run.project}/runs"
    return Pages(ids=ids, links={name: f"{base}/{ids[name]}" for name in ids} if known else {})


def log_all(
    run: "wandb.Run",
    *,
    sheets: Sequence[Sheet],
    charts: Sequence[Chart],
    summary: Mapping[str, Value],
) -> None:
    """Logs tables and charts in one step, so that a page shows all of one moment."""
    import wandb

    media: dict[str, object] = {sheet.key: _table(sheet) for sheet in sheets}
    for chart in charts:
        table = _table(chart.sheet)
        media[chart.key] = (
            wandb.plot.line(table, chart.x, chart.y, stroke=chart.stroke, title=chart.title)
            if chart.stroke
            else wandb.plot.bar(table, chart.x, chart.y, title=chart.title)
        )
    run.log(media)
    run.summary.update(dict(summary))


def add_report(run: "wandb.Run", label: str, report: Path) -> None:
    """The report's folder as an artifact; its files are read where they stand, when uploaded."""
    import wandb

    artifact = wandb.Artifact(
        _artifact_name(f"report-{label}"),
        type="report",
        description="The HTML report: download the folder and open index.html",
    )
    _add_files(artifact, report)
    run.log_artifact(artifact, aliases=["latest"])


def best_models(results: Results) -> list[Model]:
    """The best counting run of each model and task, where its snapshot was kept."""
    best = (
        results.runs.filter(pl.col("counts") & pl.col("best_submission_id").is_not_null())
        .sort("best_score", descending=True, maintain_order=True)
        .unique(["model", "task"], keep="first", maintain_order=True)
    )
    hashes = results.submissions.select("run_id", "task", "submission_id", "content_hash")
    keys = ["run_id", "task", "submission_id"]
    joined = best.rename({"best_submission_id": "submission_id"}).join(hashes, on=keys)
    found = []
    for row in joined.sort("model", "task").iter_rows(named=True):
        sweep = SweepPaths(Path(row["folder"]).parent.parent)
        path = sweep.snapshots / row["content_hash"]
        if row["content_hash"] and path.is_dir():
            fields = ("model", "task", "run_id", "submission_id", "content_hash")
            told = {name: row[name] for name in fields}
            found.append(Model(**told, score=row["best_score"], path=path))
    return found


def add_models(run: "wandb.Run", models: Sequence[Model], *, max_gb: float) -> tuple[int, int]:
    """An artifact for each model: its files while they fit into ``max_gb``, else its path.

    Returns:
        How many were given with files, and how many as paths.
    """
    import wandb

    left, num_files = max_gb * GB, 0
    for model in models:
        size = sum(path.stat().st_size for path in model.path.rglob("*") if path.is_file())
        artifact = wandb.Artifact(
            _artifact_name(f"best-{model.model}-{model.task}"),
            type="model",
            metadata={
                "run_id": model.run_id,
                "submission_id": model.submission_id,
                "score_percent": model.score,
                "content_hash": model.content_hash,
                "path": str(model.path),
                "bytes": size,
            },
        )
        if size <= left and max_gb > 0:
            left, num_files = left - size, num_files + 1
            _add_files(artifact, model.path)
        else:
            artifact.add_reference(model.path.resolve().as_uri(), name="checkpoint", checksum=False)
        run.log_artifact(artifact, aliases=["latest"])
    return num_files, len(models) - num_files


def _add_files(artifact: "wandb.Artifact", folder: Path) -> None:
    # add_dir does the same and talks; "immutable" leaves the files where they are, uncopied.
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        artifact.add_file(str(path), name=name, skip_cache=True, policy="immutable")


def _table(sheet: Sheet) -> "wandb.Table":
    import wandb

    return wandb.Table(columns=list(sheet.columns), data=[list(row) for row in sheet.rows])


def _artifact_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:128]
