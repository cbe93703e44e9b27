"""The entry point: ``python -m rl_bench.sweep OVERRIDES`` runs a sweep, or resumes it.

Hops from here to the agent's process:
    1. `actors.sweep_driver.run_sweep`   what is left to run; starts Ray
    2. `actors.sweep_loop.SweepLoop`     gives runs to run actors as resources free up
    3. `actors.run_actor`                holds a run's CPUs and GPUs
    4. `rl_bench.run.Run`                workspace, baseline, grading API, clock
    5. `rl_bench.process.agent_process`                starts the supervisor, in a sandbox
    6. `rl_bench.process.supervisor`             starts the agent, and ends its whole tree

Exit codes: 0 every run finished without an infrastructure failure (with ``dry_run=true``: the plan
is valid, whatever preflight says); 1 some did not; 2 bad input, nothing started; 130 interrupted.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rl_bench.checks import Verdict
from rl_bench.command_line import Words, run_command, say
from rl_bench.errors import ConfigError
from rl_bench.option_files import default_options, first_comments, groups

if TYPE_CHECKING:
    from rl_bench.config import RunSpec
    from rl_bench.paths import SweepPaths

_ABOUT = """\
Runs a sweep: agents that post-train a base model against a grading API, in parallel, each within
a wall-clock budget. The same command again resumes it; finished runs are not repeated.
"""
_EXAMPLES = """\
examples:
  python -m rl_bench.sweep +experiment=quickstart                two modes on two tasks, no GPU
  python -m rl_bench.sweep +experiment=8b_base dry_run=true      plan, GPU-hours and checks only
  python -m rl_bench.sweep agent=noop task=alfworld_mini         one run of the groups' choices
  python -m rl_bench.sweep +experiment=quickstart budget.wall_clock_s=600 sweep.name=longer
  python -m rl_bench.sweep agent=command 'agent.argv=[bash,/path/start.sh]' task=alfworld_mini

overrides (Hydra's grammar):
  GROUP=OPTION                  choose an option
  GROUP.KEY=VALUE               change a key of the chosen option
  options.GROUP.NAME.KEY=VALUE  change a key of another option that the sweep names
  sweep.name=NAME               a name fixes its config; without one it is the experiment's, or
                                made from the conditions: the same command resumes
  sweep.seeds=[0,1,2]           seeds of every block that names none
  sweep.exclude=["agent=codex,task=humaneval"]
  sweep.blocks=[{modes: [sft_only, rl_only], tasks: [gsm8k_mini, alfworld_mini]}]
  dry_run=true                  show the plan and the checks, start nothing

an agent:
  It starts in its workspace, where instructions.md states the task and how to submit. Its
  environment has MODEL_PATH (the base model), OUTPUT_DIR (where checkpoints go) and
  GRADING_SERVER_URL (where a checkpoint is submitted), among others.

results:
  RESULTS/SWEEP/ holds sweep.json, tables/ and runs/RUN_ID/, each with ledger.jsonl and logs/.

environment variables:
  RL_BENCH_RESULTS  where results go (./results); paths.results= goes before it
  RL_BENCH_CACHE    models and data that are built here (~/.cache/rl_bench)
  RL_BENCH_DATA     public data sets, e.g. gsm8k/ (RL_BENCH_CACHE/data);
                    `python -m rl_bench.prepare task=NAME` gets them
  COLUMNS           how wide tables may be in files and pipes (200); numbers are never cut

exit codes:
  0    every run finished without an infrastructure failure; a dry run: the plan is valid
  1    some runs did not, or the sweep broke off
  2    bad input, nothing was named, or something is missing; nothing was started
  130  interrupted; the same command keeps what has finished and starts the others again
"""
_DESCRIBED = ("experiment", "agent", "budget")
_WIDTH = 25


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the sweep that the command line describes.

    Args:
        argv: Words after the program's name; by default the process's own.

    Returns:
        The exit code, see the module's docstring.
    """
    return run_command(
        "rl-bench",
        argv,
        command=_start,
        help_text=_help_text,
        interrupted="the same command keeps what has finished and starts the others again",
    )


def _start(words: Words) -> int:
    """Composes and checks, then shows the plan or runs it."""
    # Imported here, since none of it is needed to tell what can be run.
    from rl_bench.compose import compose
    from rl_bench.paths import SweepPaths
    from rl_bench.plan import expand
    from rl_bench.plan_view import make_console, show_plan
    from rl_bench.preflight import preflight, require
    from rl_bench.sweep_claim import claim_sweep
    from rl_bench.waiting import told_while

    _check_names_something(words)
    composed = compose(words.overrides, config_dirs=words.config_dirs)
    experiment = composed.experiment
    plan = expand(experiment)
    paths = SweepPaths(experiment.paths.results / experiment.sweep.name)
    with told_while("looking at what the plan needs", partial(say, to_stderr=True)):
        checks = preflight(experiment, plan=plan, paths=paths)
    if composed.dry_run:
        show_plan(experiment, plan, checks, console=make_console())
        return 0
    require(checks)
    for check in checks:
        if check.verdict is Verdict.WARNING:
            say(f"warning: {check.name}: {check.detail}", to_stderr=True)
    # Imported here, since Ray takes longer to import than a plan takes to show.
    from actors.sweep_driver import run_sweep

    with claim_sweep(paths, experiment=experiment, plan=plan):
        for line in _first_words(plan, paths):
            say(line, to_stderr=True)
        return run_sweep(experiment, plan, paths)


def _check_names_something(words: Words) -> None:
    """Refuses to start hours of work that nobody named."""
    if not words.overrides:
        experiments = ", ".join(groups(config_dirs=words.config_dirs)["experiment"])
        raise ConfigError(
            "nothing is named to run",
            cure=f"Write +experiment=NAME: {experiments}; or options, such as agent=noop "
            "task=gsm8k_mini. dry_run=true alone shows what is taken when nothing is named; "
            "--help tells all",
        )


def _first_words(plan: Sequence["RunSpec"], paths: "SweepPaths") -> Iterator[str]:
    """What is about to start, where its results go, and how to look at them meanwhile."""
    from rl_bench.counts import plural
    from rl_bench.run_table import duration
    from rl_bench.summary import interpreter

    budget = duration(plan[0].budget.wall_clock_s)
    runs = f"{plural(len(plan), 'run')}, budget {budget} each"
    yield f"sweep {paths.root.name}: {runs}; results go to {paths.root}"
    yield f"to watch it from elsewhere: {interpreter()} -m analysis.watch {quote(str(paths.root))}"


def _help_text(config_dirs: Sequence[Path]) -> str:
    options = groups(config_dirs=config_dirs)
    defaults = default_options()
    width = max(map(len, options))
    listed = "\n".join(
        f"  {group:<{width}}  "
        + ", ".join(f"{name}*" if name == defaults.get(group) else name for name in names)
        for group, names in options.items()
    )
    described = "\n".join(
        f"  {f'{group}={name}':<{_WIDTH}}  {said}"
        for group in _DESCRIBED
        for name, said in first_comments(group, config_dirs=config_dirs).items()
    )
    return (
        "usage: python -m rl_bench.sweep [--config-dir DIR] [GROUP=OPTION | KEY=VALUE ...]\n\n"
        f"{_ABOUT}\n"
        "groups and their options (conf/GROUP/OPTION.yaml; * is taken when none is named):\n"
        f"{listed}\n\n{described}\n\n"
        f"{_EXAMPLES}\n"
        "flags:\n"
        "  --config-dir DIR  a folder with more options, laid out like conf/; may be repeated\n"
        "  --version, --help\n"
    )


if __name__ == "__main__":
    sys.exit(main())
