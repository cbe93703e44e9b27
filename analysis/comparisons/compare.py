"""Every comparison of a sweep's results at once: what the tables, the plots and the report show."""

from dataclasses import dataclass

import polars as pl

from analysis.comparisons import budget, factors, item_tests, repeats
from analysis.comparisons.cells import cells, failures, with_standing
from analysis.results import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The frames, each documented by the function of its name.

    Attributes:
        runs: Table ``runs`` with what `with_standing` adds: one point a seed.
        cells: With item intervals.
        pairs: `item_tests.stack_pairs`.
        drivers, scaffolds: `factors.sensitivity` by driver within a scaffold, and the reverse;
            driver_pairs, scaffold_pairs: `factors.sensitivity_pairs`.
        curves, truncations, usage: `analysis.comparisons.budget`.
        seeds, costs: `analysis.comparisons.repeats`.
    """

    runs: pl.DataFrame
    cells: pl.DataFrame
    pairs: pl.DataFrame
    modes: pl.DataFrame
    mode_spread: pl.DataFrame
    drivers: pl.DataFrame
    driver_pairs: pl.DataFrame
    scaffolds: pl.DataFrame
    scaffold_pairs: pl.DataFrame
    levels: pl.DataFrame
    level_contrasts: pl.DataFrame
    static_interactive: pl.DataFrame
    correlations: pl.DataFrame
    multi_single: pl.DataFrame
    curves: pl.DataFrame
    truncations: pl.DataFrame
    seeds: pl.DataFrame
    costs: pl.DataFrame
    failures: pl.DataFrame
    usage: pl.DataFrame

    @property
    def groups(self) -> list[tuple[str, str]]:
        """``(model, mode)`` pairs that have a table, sorted; ``free`` before other modes."""
        rank = {mode: place for place, mode in enumerate(factors.MODE_ORDER)}
        pairs = {(str(model), str(mode)) for model, mode in _pairs(self.cells)}
        return sorted(pairs, key=lambda pair: (pair[0], rank.get(pair[1], len(rank)), pair[1]))


def compare(results: Results, *, seed: int = 0) -> Comparison:
    """All comparisons of ``results``.

    Args:
        results: One sweep or several.
        seed: Of every resampling.

    Raises:
        ResultsError: There are no runs.
    """
    runs = with_standing(results.runs)
    means = item_tests.item_means(results, runs)
    by_cell = item_tests.with_item_intervals(cells(runs), means, seed=seed)
    of_modes = factors.modes(by_cell)
    points = factors.static_interactive(by_cell)
    return Comparison(
        runs=runs,
        cells=by_cell,
        pairs=item_tests.stack_pairs(means, runs, seed=seed),
        modes=of_modes,
        mode_spread=factors.mode_spread(of_modes),
        drivers=factors.sensitivity(by_cell, "driver"),
        driver_pairs=factors.sensitivity_pairs(by_cell, "driver", seed=seed),
        scaffolds=factors.sensitivity(by_cell, "agent"),
        scaffold_pairs=factors.sensitivity_pairs(by_cell, "agent", seed=seed),
        levels=factors.level_means(by_cell),
        level_contrasts=factors.level_contrasts(by_cell, seed=seed),
        static_interactive=points,
        correlations=factors.static_interactive_correlation(points),
        multi_single=factors.multi_single(by_cell),
        curves=budget.budget_curves(results.submissions, runs),
        truncations=budget.truncations(results.submissions, runs),
        seeds=repeats.over_seeds(runs),
        costs=repeats.costs(runs),
        failures=failures(runs),
        usage=budget.usage_by_hour(results.driver_calls, runs),
    )


def _pairs(cells: pl.DataFrame) -> list[tuple[object, object]]:
    return [(model, mode) for model, mode in cells.select("model", "mode").unique().iter_rows()]
