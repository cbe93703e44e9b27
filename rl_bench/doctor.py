"""``python -m rl_bench.doctor``: what this machine has, what is missing, and what to do about it.

Parts: `rl_bench.machine` looks at the machine, `rl_bench.preflight` at what the quickstart needs.
With ``--deep`` a checkpoint is graded, which starts Ray and a vLLM engine.

Exit codes: 0 the built-in experiments can run; 1 something that they need failed; 2 bad usage;
130 interrupted.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from rl_bench import __version__
from rl_bench.checks import Check, Verdict
from rl_bench.command_line import EXIT_FAILED, ended, prepare_process, read_flags, say
from rl_bench.counts import plural
from rl_bench.plugins import plugin_checks

BUILT_IN = "quickstart"
DEEP_LIMIT_S = 400.0
DEEP = (
    *("task=gsm8k_mini", "task.num_eval=8", "task.num_repeats=1", "model=tiny"),
    *("grader=cpu", "grader.num_rollout_workers=1", "cluster=local"),
)
_OF_A_SWEEP = ("sweep ",)
_HELP = """\
Looks at packages, processors, memory, disk, sandbox, agents' CLIs, keys (present or not, never
shown), data sets and W&B, and tells what to do about what is missing. Takes a few seconds; changes
nothing. A cross is something that the built-in experiments need; an exclamation mark something that
only others need.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Shows the table.

    Args:
        argv: Words after the program's name; by default the process's own.

    Returns:
        The exit code.
    """
    if argv is None:
        prepare_process()
    parser = argparse.ArgumentParser(
        prog="python -m rl_bench.doctor",
        description=_HELP,
        epilog="exit codes: 0 the built-in experiments can run; 1 something that they need failed; "
        "2 bad usage; 130 interrupted",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also start Ray and a vLLM engine on the tiny model and grade it; about a minute",
    )
    parser.add_argument("--json", action="store_true", help="the checks as JSON, for programs")
    parser.add_argument("--version", action="version", version=f"rl_bench {__version__}")
    args = read_flags(parser, argv)
    return ended(
        lambda: _examine(deep=args.deep, as_json=args.json),
        interrupted="nothing was changed; start again",
    )


def _examine(*, deep: bool, as_json: bool) -> int:
    checks = [*machine_checks(), *([deep_check()] if deep else [])]
    num_failed = sum(check.verdict is Verdict.FAILED for check in checks)
    if as_json:
        say(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        from rl_bench.plan_view import checks_table, make_console, print_table

        console = make_console()
        print_table(checks_table(checks), console)
        console.print(
            f"{plural(num_failed, 'check')} failed: mend that before `make quickstart`."
            if num_failed
            else "The built-in experiments can run here.",
            style="red" if num_failed else "green",
        )
    return EXIT_FAILED if num_failed else 0


def machine_checks() -> Iterator[Check]:
    """Every check that starts nothing, in the order in which it is shown."""
    # Imported here, as below: none of it is needed for --help.
    from rl_bench import machine
    from rl_bench.compose import compose
    from rl_bench.paths import SweepPaths
    from rl_bench.plan import expand
    from rl_bench.preflight import preflight

    experiment = compose([f"+experiment={BUILT_IN}"]).experiment
    paths = SweepPaths(experiment.paths.results / experiment.sweep.name)
    yield from machine.package_checks()
    yield from machine.resource_checks()
    plan = expand(experiment)
    for check in preflight(experiment, plan=plan, paths=paths):
        if not check.name.startswith(_OF_A_SWEEP):
            yield check
    yield _wandb_check()
    yield from machine.cli_checks(experiment.paths)
    yield from machine.key_checks()
    yield from machine.data_checks(experiment.paths.data)
    yield from plugin_checks()


def _wandb_check() -> Check:
    from rl_bench.preflight import has_wandb_key

    check = Check(name="W&B login", verdict=Verdict.OK, detail="present")
    if has_wandb_key():
        return check
    return replace(
        check,
        verdict=Verdict.WARNING,
        detail="none; results are written offline",
        cure="`wandb login` before you use sink.wandb.mode=online; `wandb sync` sends later",
    )


def deep_check(*, limit_s: float = DEEP_LIMIT_S) -> Check:
    """Grades the tiny model with a Ray and an engine of its own, in another process."""
    name, started = "Ray and engine", time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rl_bench-doctor-") as folder:
        argv = [sys.executable, "-m", "rl_bench.evaluate", *DEEP, f"paths.results={folder}"]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            return Check(
                name=name,
                verdict=Verdict.FAILED,
                detail=f"no answer within {limit_s:.0f} s",
                cure=f"See what it waits for: python -m rl_bench.evaluate {' '.join(DEEP)}",
            )
    seconds = time.monotonic() - started
    if done.returncode == 0:
        detail = f"the tiny model was graded in {seconds:.0f} s"
        return Check(name=name, verdict=Verdict.OK, detail=detail)
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return Check(
        name=name,
        verdict=Verdict.FAILED,
        detail=said[-1][:300] if said else f"exit code {done.returncode}",
        cure=f"See all of it: python -m rl_bench.evaluate {' '.join(DEEP)}",
    )


if __name__ == "__main__":
    sys.exit(main())
