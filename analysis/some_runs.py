"""Results of a few named runs, without a look at the files of all others."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from analysis.errors import ResultsError
from analysis.results import Results
from rl_bench.nearest import nearest


def some_runs(results: Results, run_ids: Collection[str]) -> Results:
    """The results of some runs, and of others only where these share a file's name with one.

    Args:
        results: Of one sweep or several.
        run_ids: The runs'; where sweeps hold runs of one id, with the sweep's name before it.

    Raises:
        ResultsError: There is no such run; the cure names one that was likely meant.
    """
    named = Counter(results.run_files())
    names = {
        name
        for name, num in named.items()
        for run_id in run_ids
        if run_id == name or (num > 1 and run_id.endswith(f"-{name}"))
    }
    some = replace(results, names=frozenset(names))
    missing = set(run_ids) - (set(some.runs["run_id"]) if names else set())
    if missing:
        raise _no_run(min(missing), results.runs["run_id"].unique().sort().to_list())
    return some


def _no_run(run_id: str, known: Sequence[str]) -> ResultsError:
    holding = [name for name in known if run_id in name]
    meant = holding[0] if len(holding) == 1 else nearest(run_id, known)
    cure = f"Did you mean {meant}?" if meant else "Ids are the names of the folders in runs/"
    return ResultsError(f"there is no run {run_id}", cure=cure)
