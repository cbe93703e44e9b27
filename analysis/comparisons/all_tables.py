"""Which tables a comparison has, in the order in which people ask for them."""

from analysis.comparisons.compare import Comparison
from analysis.comparisons.factor_tables import (
    correlations_table,
    costs_table,
    level_contrasts_table,
    levels_table,
    mode_spread_table,
    modes_table,
    multi_single_table,
    seeds_table,
    sensitivity_pairs_table,
    sensitivity_table,
    truncations_table,
)
from analysis.comparisons.stack_tables import (
    cells_table,
    failures_table,
    pairs_table,
    stack_table,
)
from analysis.comparisons.words import of_group
from analysis.tables import Table


def all_tables(comparison: Comparison) -> list[Table]:
    """Every table that has rows, the most asked for first."""
    tables: list[Table] = []
    for model, mode in comparison.groups:
        has_gain = of_group(comparison.cells, model, mode)["gain"].count() > 0
        tables.append(stack_table(comparison, model, mode, "score"))
        tables += [stack_table(comparison, model, mode, "gain")] if has_gain else []
    for model in comparison.modes["model"].unique().sort():
        tables += [modes_table(comparison, model), mode_spread_table(comparison, model)]
    tables += [
        cells_table(comparison),
        sensitivity_table(comparison, "driver"),
        sensitivity_pairs_table(comparison, "driver"),
        sensitivity_table(comparison, "agent"),
        sensitivity_pairs_table(comparison, "agent"),
        levels_table(comparison),
        level_contrasts_table(comparison),
        correlations_table(comparison),
        multi_single_table(comparison),
    ]
    tables += [truncations_table(comparison, *group) for group in comparison.groups]
    tables += [seeds_table(comparison), costs_table(comparison), failures_table(comparison)]
    tables += [pairs_table(comparison, *group) for group in comparison.groups]
    return [table for table in tables if table.rows]
