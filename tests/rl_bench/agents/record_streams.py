"""Records what the real CLIs write to stdout, for the tests of the reader.

    python -m tests.rl_bench.agents.record_streams

plays one session that works and one whose key is refused with each CLI that is installed, and
writes `tests/rl_bench/data/streams/NAME.{session,refused}.stdout`, less this machine's paths.
"""

import re
import sys
import tempfile
from pathlib import Path

from rl_bench.compose import compose_agent
from rl_bench.drivers.session import Fault, Session, Step
from tests.rl_bench.agents.cli_scene import play

STREAMS = Path(__file__).parents[1] / "data" / "streams"
MAX_OTHER_LINES = 8
NAMES = ("claude_code", "codex", "gemini_cli", "opencode", "openhands")
SESSION = Session(
    steps=(
        Step(say='I look around: "quotes", ünïcode.', run="ls data && echo 'one \"two\"'"),
        Step(say="A command that fails.", run="cat absent.txt"),
    ),
    last="Two commands ran, one of them failed.",
)
REFUSED = SESSION.model_copy(
    update={"faults": (Fault(before_step=1, kind="status", status=401, times=None),)}
)


def shortened(text: str) -> str:
    """Without the many lines that OpenHands shows to people; some stay, to be passed over."""
    kept, others = [], 0
    for line in text.splitlines(keepends=True):
        others += not line.startswith("{")
        if line.startswith("{") or others <= MAX_OTHER_LINES:
            kept.append(line)
    return "".join(kept)


def record(name: str, *, what: str, session: Session) -> None:
    """Plays one session with one CLI and keeps its stdout."""
    agent = compose_agent(name)
    assert agent is not None
    with tempfile.TemporaryDirectory() as folder:
        played = play(Path(folder), agent, session=session)
        root = str(played.scene.workspace.root)
    text = played.stdout.decode().replace(root, "/workspace")
    text = text.replace(root.replace("/", "-").replace("_", "-"), "-workspace")
    text = re.sub(r"127\.0\.0\.1:\d+/[\w-]+", "127.0.0.1:1/token", text)
    text = re.sub(r'"hostname": "[^"]*"', '"hostname": "host"', text)
    text = text.replace(sys.executable, "/python")
    text = shortened(text)
    (STREAMS / f"{name}.{what}.stdout").write_text(text, encoding="utf-8")
    # A command, not a test.
    print(name, what, played.exit_.exit_code, len(text), [e.kind for e in played.events])  # noqa: T201


if __name__ == "__main__":
    STREAMS.mkdir(parents=True, exist_ok=True)
    for each in NAMES:
        record(each, what="session", session=SESSION)
        record(each, what="refused", session=REFUSED)
