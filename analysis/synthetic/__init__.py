"""A sweep that never ran, in the real formats and with known truths: what the analysis must find.

    python -m analysis.synthetic OUT --runs 1000 --seed 0

    conditions   stacks, tasks, modes, and the planted effects
    outline      what one run is going to do: phases, steps, scores, how it ends
    story        an outline as ledger entries
    scripts      training scripts of each method; `history` keeps them in code histories
    sweep        ledgers, tables and ``truth.json``

Ledger lines are the runner's own events, and tables are folded from them by its own record code.
The same seed gives the same bytes.
"""
