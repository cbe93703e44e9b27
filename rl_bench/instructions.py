"""The words that the agent reads first: `description.md` and `instructions.md`.

Only what the run really does stands here; whatever the mode forbids comes from `conf/mode`.
"""

from collections.abc import Sequence
from textwrap import dedent

from rl_bench.config import RunSpec
from rl_bench.tasks.base import Task


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


def _rules(spec: RunSpec) -> str:
    budget = spec.budget
    limit = (
        f"At most {budget.max_submissions} submissions are graded."
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
        When you exit, processes that you left behind are ended too. The best submission counts.
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
