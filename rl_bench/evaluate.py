"""``python -m rl_bench.evaluate task=NAME``: grades one checkpoint, without an agent.

The checkpoint goes through the graders, rollout workers and tasks of a sweep, as a sweep's baseline
does. Parts: `rl_bench.evaluation` reads the command line and keeps verdicts, `.evaluation_view`
shows them, `actors.evaluation_driver` grades. This module parses and checks.

Exit codes: 0 every task has a score (with ``dry_run=true``: the command line is valid); 1 some have
none; 2 bad input, nothing started; 130 interrupted.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rl_bench.command_line import Words, run_command
from rl_bench.option_files import groups

_HELP = """\
usage: python -m rl_bench.evaluate [--config-dir DIR] task=NAME [KEY=VALUE ...]

Grades one checkpoint on one or more tasks, without an agent, exactly as a sweep grades the base
model before an agent starts.

{options}

examples:
  python -m rl_bench.evaluate task=gsm8k_mini                      the tiny base model, no GPU
  python -m rl_bench.evaluate 'task=[gsm8k,humaneval]' model=qwen3_8b_base grader=gpu
  python -m rl_bench.evaluate task=gsm8k_mini checkpoint=output/my_model
  python -m rl_bench.evaluate task=gsm8k task.num_eval=100 task.num_repeats=3
  python -m rl_bench.evaluate task=gsm8k grader=openai grader.endpoint.model_id=M \\
    grader.endpoint.base_url=http://host:8000/v1                 a model that is served there

overrides (Hydra's grammar):
  task=NAME, task=[A,B]         what to grade on
  model=NAME                    the base model; graded itself unless a checkpoint is named
  grader=openai                 a served model, whose weights are not seen; model= is then what you
                                say it descends from, and may be left out
  checkpoint=FOLDER             a checkpoint of the base model; it must not change meanwhile
  name=NAME                     of the results' folder, which must be new; by default made from
                                model, tasks and time
  task.KEY=VALUE                change a key of every task: num_eval, num_repeats, max_tokens, ...
  options.task.NAME.KEY=VALUE   change a key of one of several tasks
  grader.KEY=VALUE              num_graders=2 grades two tasks at a time
  dry_run=true                  show the tasks and the checks, start nothing

results:
  RESULTS/evaluations/NAME/ holds evaluations.jsonl (a line a task), items/TASK.parquet and logs/.
  A repeated grading (num_repeats) also tells the noise floor: two gradings of one checkpoint
  differ by less in 95 of 100 cases.

environment variables: RL_BENCH_RESULTS, RL_BENCH_CACHE, RL_BENCH_DATA, as for a sweep.

flags:
  --config-dir DIR  a folder with more options, laid out like conf/; may be repeated
  --version, --help

exit codes:
  0    every task has a score; a dry run: the command line is valid
  1    some have none, or the evaluation broke off
  2    bad input or something is missing; nothing was started
  130  interrupted; verdicts that were reached are kept
"""
_GROUPS = ("task", "model", "grader", "cluster", "paths")


def main(argv: Sequence[str] | None = None) -> int:
    """Grades what the command line names.

    Args:
        argv: Words after the program's name; by default the process's own.

    Returns:
        The exit code, see the module's docstring.
    """
    return run_command(
        "rl-bench-evaluate",
        argv,
        command=_start,
        help_text=_help_text,
        interrupted="verdicts that were reached are kept",
    )


def _start(words: Words) -> int:
    """Plans and checks, then shows the plan or grades."""
    # Imported here, since none of it is needed to tell what can be graded.
    from rl_bench.evaluation import own_checks, plan_evaluation
    from rl_bench.lines import print_line
    from rl_bench.plan_view import checks_table, make_console, print_table, show_refusal
    from rl_bench.preflight import grading_checks, require

    plan = plan_evaluation(words.overrides, config_dirs=words.config_dirs)
    checks = grading_checks(plan.experiment, plan=plan.specs)
    if plan.dry_run:
        checks += own_checks(plan)  # a start finds these out when it makes its folder
        console = make_console()
        tasks = ", ".join(task.name for task in plan.tasks)
        print_line(console, f"{plan.subject} on {tasks}; to {plan.paths.root}")
        print_table(checks_table(checks), console)
        show_refusal(checks, console=console)
        console.print("dry run, nothing started")
        return 0
    require(checks)
    # Imported here, since Ray takes longer to import than a plan takes to show.
    from actors.evaluation_driver import run_evaluation

    return run_evaluation(plan)


def _help_text(config_dirs: Sequence[Path]) -> str:
    options = groups(config_dirs=config_dirs)
    listed = "\n".join(f"  {group:<8} {', '.join(options[group])}" for group in _GROUPS)
    return _HELP.format(options=f"groups and their options (conf/GROUP/OPTION.yaml):\n{listed}")


if __name__ == "__main__":
    sys.exit(main())
