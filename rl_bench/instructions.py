"""The words that the agent reads first: `description.md`, `instructions.md`, and its prompt.

Only what the run really does stands here; whatever the mode forbids comes from `conf/mode`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent

from rl_bench.config import RunSpec
from rl_bench.counts import plural
from rl_bench.tasks.base import Task

MAX_PROMPT_BYTES = 100_000
"""A prompt is one argument of a command, for which the kernel has a limit of 128 KiB."""
MAX_LISTED = 100
"""Files of the workspace that the prompt names."""
_LEFT_BEHIND = {
    "kill": "When you exit, processes that you left behind are ended too.",
    "wait": "Processes that you leave behind when you exit may run on until the deadline.",
    "resume": "Processes that you leave behind when you exit may run on until the deadline; you "
    "are asked to go on when they have ended.",
}


def describe(spec: RunSpec, tasks: Sequence[Task]) -> str:
    """Markdown of what is to be improved, one section a task."""
    several = len(tasks) > 1
    intro = (
        f"# Improve {spec.model.name} on {', '.join(task.name for task in tasks)}\n\n"
        f"Post-train the base model `{spec.model.name}` so that it scores higher on "
        f"{'each of the tasks below' if several else 'the task below'}. Evaluation uses held-out "
        "items that you cannot see.\n"
    )
    sections = [
        f"## {task.name}\n\n"
        + (f"Training data: `data/{task.name}/`\n\n" if several else "Training data: `data/`\n\n")
        + task.description().strip()
        + "\n"
        for task in tasks
    ]
    return "\n".join([intro, *sections])


def instruct(spec: RunSpec) -> str:
    """Markdown of the rules, the budget, the grading API and what a submission must be."""
    return "\n".join(
        [
            "# Instructions\n",
            _rules(spec),
            _layout(spec),
            _api(spec),
            _contract(spec),
        ]
    )


def prompt(
    spec: RunSpec,
    *,
    description: str,
    instructions: str,
    listing: str,
    max_bytes: int = MAX_PROMPT_BYTES,
) -> str:
    """What an agent is started with: the work, the rules, the budget and the files.

    Args:
        spec: The run.
        description: What `describe` gave.
        instructions: What `instruct` gave.
        listing: The workspace's files.
        max_bytes: The longest part gives way to the name of its file until the prompt fits.

    Returns:
        A text without NUL, encodable as UTF-8.
    """
    parts = {
        "description.md": description.strip(),
        "instructions.md": instructions.strip(),
        "the folder itself": f"# Files\n\n{listing.strip()}",
    }
    text = _joined(spec, parts)
    while len(text.encode(errors="replace")) > max_bytes:
        longest = max(parts, key=lambda name: len(parts[name]))
        title = parts[longest].partition("\n")[0][:200]
        shortened = f"{title}\n\n(Too long to be shown here: read {longest}.)"
        if len(shortened) >= len(parts[longest]):
            break
        parts[longest] = shortened
        text = _joined(spec, parts)
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def listing(root: Path, *, limit: int = MAX_LISTED) -> str:
    """The workspace's files with their sizes, one a line; empty folders; nothing hidden."""
    lines = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name.startswith("."):
            continue
        if not path.is_dir():
            lines.append(f"{name}  {path.stat().st_size} bytes")
        elif path.is_symlink() or not any(path.iterdir()):
            lines.append(f"{name}/")
    more = [f"... and {len(lines) - limit} more"] if len(lines) > limit else []
    return "\n".join([*lines[:limit], *more])


def _joined(spec: RunSpec, parts: Mapping[str, str]) -> str:
    opening = (
        f"Post-train the base model {spec.model.name} in the current folder, your workspace, as "
        "the task and the instructions below say; they are also in description.md and "
        f"instructions.md. You have {spec.budget.wall_clock_s:g} seconds. Work on your own from "
        "start to end: nobody answers questions, and your last message ends the session. Use the "
        "budget: measure, submit, learn from the score, improve, submit again."
    )
    return "\n\n".join([opening, *parts.values()]) + "\n"


def go_on(*, remaining_s: float) -> str:
    """What an agent is told when processes that it left behind have ended."""
    return (
        "The processes that you had left running have ended. "
        f"{remaining_s:.0f} seconds of the budget are left. Look at what they did and go on with "
        "the work; end when nothing is left that would help."
    )


def _rules(spec: RunSpec) -> str:
    budget = spec.budget
    verb = "is" if budget.max_submissions == 1 else "are"
    limit = (
        f"At most {plural(budget.max_submissions, 'submission')} {verb} graded."
        if budget.max_submissions
        else "The number of submissions is not limited."
    )
    credit = (
        "Time that a submission waits for a free grader is given back "
        f"(at most {budget.max_queue_credit_s:g} s in total); grading itself counts."
        if budget.credit_queue_wait
        else "Waiting for a grader and grading both count."
    )
    return dedent(
        f"""\
        ## Mode: {spec.mode.name}

        {{rules}}

        ## Budget

        {budget.wall_clock_s:g} seconds of wall-clock time from your start. {credit} {limit}
        Ask `GET /time` for what is left. At the deadline every process that you started is ended.
        {_LEFT_BEHIND[spec.agent.on_live_children]} The best submission counts.
        """
    ).replace("{rules}", spec.mode.rules.strip())


def _layout(spec: RunSpec) -> str:
    return dedent(
        f"""\
        ## Workspace

        You start in `$WORKSPACE`.

        | path | what |
        |---|---|
        | `data/` (`$DATA_PATH`) | training data, read-only |
        | `models/{spec.model.name}` (`$MODEL_PATH`) | the base model, read-only |
        | `code/` | put your code here; it is kept with each submission |
        | `output/` (`$OUTPUT_DIR`) | put your checkpoints here |
        | `run_meta.json` | task, mode, limits, budget and clock, as JSON |
        | `scores.json` | a copy of your scores so far |
        """
    )


def _api(spec: RunSpec) -> str:
    several = len(spec.tasks) > 1
    one = spec.tasks[0].name
    is_noise_known = any(task.num_repeats > 1 for task in spec.tasks)
    figures = (
        '"score": 93.28, "baseline_score": 4.85, "improvement": 88.43, '
        + ('"within_noise": false, ' if is_noise_known else "")
        + '"best": {"submission_id": 8, "score": 93.28}'
    )
    reply = (
        f'{{"submission_id": 8, "total_submissions": 8, "tasks": {{"{one}": {{{figures}}}}}}}'
        if several
        else f'{{"submission_id": 8, {figures}, "total_submissions": 8}}'
    )
    noise = (
        "\n`within_noise` is true when the improvement is no larger than the noise floor, by which "
        "two\ngradings of one checkpoint can differ; null: the task's noise was not measured.\n"
        if is_noise_known
        else ""
    )
    task_field = (
        f'\n`"task": "{one}"` grades on that task only; without it on all of them.\n'
        if several
        else ""
    )
    return f"""\
## Grading API

    curl -s -X POST "$GRADING_SERVER_URL/submit" -H 'Content-Type: application/json' \\
         -d '{{"model_path": "output/my_model"}}'

answers when the score is there:

    {reply}
{noise}{task_field}
`"wait": false` answers at once with 202 and a `status_url` to poll. Other requests:

    curl -s "$GRADING_SERVER_URL/submissions/8"   # one submission
    curl -s "$GRADING_SERVER_URL/scores"          # all of them
    curl -s "$GRADING_SERVER_URL/time"            # remaining_s, used_s, budget_s, queue_credit_s
    curl -s "$GRADING_SERVER_URL/health"

A 4xx answer says in `reason` and `message` what is wrong and in `cure` what to do; 410 means that
the deadline has passed. A 503 means that grading is down: send the same request again after
`Retry-After` seconds; it is the same submission and costs nothing. Submitting the same content
again returns the score it has.
"""


def _contract(spec: RunSpec) -> str:
    return dedent(
        f"""\
        ## What a submission must be

        A folder inside the workspace with a whole Hugging Face checkpoint: `config.json`, weights
        as safetensors (with the index if sharded), and the tokenizer. Same architecture, tensor
        names, shapes and vocabulary as `{spec.model.name}`. Adapters must be merged first. The
        folder is copied when it is accepted, so later changes to it do not matter. Do not write
        to it while the request is being accepted.
        """
    )
