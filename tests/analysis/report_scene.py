"""Sweeps for the report's tests: one that a hostile agent ran, and pages read as a browser does."""

from html.parser import HTMLParser
from pathlib import Path

from rl_bench.events import (
    AgentEvent,
    CodeChanged,
    Evidence,
    FindingMade,
    Note,
    ProcessSeen,
    RunEnd,
)
from rl_bench.lineage.code_files import Content
from rl_bench.lineage.commit import CommitNote, blob_id, import_stream
from rl_bench.lineage.git import run_git
from tests.analysis.ledger_scene import START, LedgerScene

ATTACKS = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "</title></style></script></textarea></pre><svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "[click](javascript:window.hacked=1)",
    "{{ 7 * 7 }}{% raw %}",
    "abc\u202egnp.exe",
    "nul\x00 and bell\x07",
)
ATTACK = " ".join(ATTACKS)


def hostile_sweep(root: Path) -> Path:
    """A sweep of one run whose agent wrote markup wherever it could; returns its folder."""
    scene = LedgerScene(root)
    at_s = 10.0
    for kind in ("message", "tool_call", "tool_result", "error", "result"):
        told = {"kind": kind, "name": ATTACK, "text": f"{ATTACK}\n{ATTACK}", "call_id": ATTACK}
        scene.tell(AgentEvent.model_validate({**told, "budget_used_s": at_s}), at_s)
        at_s += 1
    revision = write_commit(scene.paths.code_history, {f"{ATTACK}.py"[:200]: ATTACK})
    scene.tell(_changed(revision, at_s), at_s)
    seen = ProcessSeen(
        pid=5, parent_pid=1, argv=("python", ATTACK), began_s=20, duration_s=40, cpu_s=3
    )
    scene.tell(seen, 70)
    scene.tell(Note(level="warning", topic=ATTACK, message=ATTACK), 71)
    scene.submit(1, 80, 60.0, path=ATTACK)
    scene.refuse(90, path=ATTACK)
    scene.tell(finding(ATTACK, revision), 95)
    scene.end(100, end=RunEnd.COMPLETED)
    scene.results()
    write_ledger(scene)
    return scene.sweep.root


def finding(words: str, revision: str) -> FindingMade:
    """A warning that quotes the agent."""
    evidence = Evidence(source="code", path=words, revision=revision, line=3, quote=words)
    return FindingMade(
        rule="x", severity="warning", rules_version="1", summary=words, evidence=(evidence,)
    )


def write_ledger(scene: LedgerScene, *, first: int = 0) -> None:
    """Writes the scene's entries from number ``first`` on to the run's ledger."""
    scene.paths.root.mkdir(parents=True, exist_ok=True)
    with scene.paths.ledger.open("a", encoding="utf-8") as file:
        file.writelines(f"{entry.model_dump_json()}\n" for entry in scene.entries[first:])


def write_commit(history: Path, files: dict[str, str], *, parent: str = "") -> str:
    """One more commit of a run's code history, in the runner's own form; returns its id."""
    if not parent:
        history.mkdir(parents=True)
        run_git(history, ["init", "--bare", "--quiet", "--template="])
    contents = {
        path.replace("\0", "").encode(): Content(0o100644, text.encode())
        for path, text in files.items()
    }
    note = CommitNote(cause="change", num_files=len(files), num_changed=1, changed=tuple(files))
    stream = import_stream(
        contents,
        tree={path: (0o100644, blob_id(content.data)) for path, content in contents.items()},
        stored=(),
        note=note,
        parent=parent,
        when=START,
    )
    return run_git(history, ["fast-import", "--quiet", "--done"], stdin=stream).decode().strip()


def _changed(revision: str, at_s: float) -> CodeChanged:
    return CodeChanged(
        revision=revision,
        cause="change",
        changed=(ATTACK,),
        num_changed=1,
        num_files=1,
        budget_used_s=at_s,
    )


class Page(HTMLParser):
    """A page's elements and text, as a browser would take them.

    Attributes:
        tags: Name and attributes of every element.
        words: All text outside style and script.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self.source = path.read_text(encoding="utf-8")
        self._inside = ""
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.words += data

    def links(self) -> list[str]:
        """Every address that the page names."""
        return [
            attributes[name]
            for _, attributes in self.tags
            for name in ("href", "src", "srcset", "action", "xlink:href")
            if name in attributes
        ]
