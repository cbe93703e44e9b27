"""Code histories of synthetic runs: the runner's own commits, with dates of the story."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from analysis.synthetic.outline import Outline
from analysis.synthetic.scripts import FILES, PROBE, PROBE_FILE
from analysis.synthetic.story import text_of
from rl_bench.lineage.code_files import Content
from rl_bench.lineage.code_history import submission_tag
from rl_bench.lineage.commit import CommitNote, blob_id, import_stream
from rl_bench.lineage.git import run_git

_MODE = 0o100644


def write_history(history: Path, made: Outline, started: datetime) -> Mapping[int, str]:
    """Writes a run's code history.

    Args:
        history: The bare repository; made here.
        made: What the run did.
        started: The run's start, UTC.

    Returns:
        Commit ids by the number of the try; 0: before the first.
    """
    history.mkdir(parents=True)
    run_git(history, ["init", "--bare", "--quiet", "--template=", "--initial-branch=main"])
    attempt = int(made.fate == "retried")
    files: dict[bytes, Content] = {PROBE_FILE.encode(): Content(_MODE, PROBE.encode())}
    stored: set[str] = set()
    ids: dict[int, str] = {}
    parent = ""
    for number in range(len(made.trainings) + 1):
        at_s, changed = 20.0, PROBE_FILE
        if number:
            training = made.trainings[number - 1]
            at_s, changed = training.written_s, FILES[training.method]
            text = text_of(training)
            files[changed.encode()] = Content(_MODE, text.encode())
        tree = {path: (_MODE, blob_id(content.data)) for path, content in files.items()}
        note = CommitNote(
            cause="change",
            attempt=attempt,
            budget_used_s=round(at_s, 3),
            num_files=len(files),
            num_changed=1,
            changed=(changed,),
        )
        stream = import_stream(
            files,
            tree=tree,
            stored=stored,
            note=note,
            parent=parent,
            when=started + timedelta(seconds=at_s),
        )
        printed = run_git(history, ["fast-import", "--quiet", "--done"], stdin=stream)
        parent = printed.decode("ascii").strip()
        ids[number] = parent
        stored |= {blob for _, blob in tree.values()}
    _tag(history, made, ids, attempt)
    return ids


def _tag(history: Path, made: Outline, ids: Mapping[int, str], attempt: int) -> None:
    accepted = [request for request in made.requests if request.outcome != "rejected"]
    lines = [
        f"create refs/tags/{submission_tag(number, attempt=attempt)} {ids[request.training or 0]}\n"
        for number, request in enumerate(accepted, start=1)
    ]
    run_git(history, ["update-ref", "--stdin"], stdin="".join(lines).encode())
