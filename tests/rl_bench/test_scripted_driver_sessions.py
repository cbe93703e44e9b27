"""Sessions: how they are read, and those that ship with the project, run in a real shell."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path

import httpx
import pytest

from rl_bench.checkpoint import content_hash, inspect
from rl_bench.drivers.scripted import main
from rl_bench.drivers.session import SESSIONS, Session, Step, load_session, session_names
from rl_bench.errors import ConfigError
from rl_bench.models.tiny import build_tiny
from rl_bench.tasks.gsm8k.data import generate_rows
from tests.rl_bench.grading_scene import write_checkpoint

REFUSED = re.compile(r"\$\(|`|[<>]\(")
"""What Gemini CLI refuses anywhere in a command."""


@pytest.mark.parametrize("name", session_names())
def test_shipped_sessions_pass_every_cli(name: str) -> None:
    session = load_session(name)

    assert session.name == name
    assert session.about
    for step in session.steps:
        assert not REFUSED.search(step.command)
        # Beyond its first line a command has nothing but the files that it writes.
        assert step.write or "\n" not in step.command
        checked = subprocess.run(["bash", "-n", "-c", step.command], check=False)
        assert checked.returncode == 0


def test_a_session_is_read_from_a_path(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('it''s')\n")
    path = tmp_path / "mine.yaml"
    path.write_text(
        "steps:\n- {say: Hi, run: python a/b.py, write: {a/b.py: !file hello.py}}\nlast: Bye.\n"
    )
    session = load_session(path)

    assert session == load_session(str(path))
    assert session.name == "mine"
    assert session.steps[0].command == (
        "mkdir -p a && cat > a/b.py <<'END_OF_FILE' && python a/b.py\nprint('it''s')\nEND_OF_FILE\n"
    )


def test_files_are_written_as_they_are(tmp_path: Path) -> None:
    odd = "x = '$HOME `ls` \\\\ \"q\"'\n\n\n# ü\n"
    step = Step(write={"a b/c.txt": odd, "d.txt": "d\n"}, run="ls")

    subprocess.run(["sh", "-c", step.command], cwd=tmp_path, check=True)

    assert (tmp_path / "a b" / "c.txt").read_text() == odd
    assert (tmp_path / "d.txt").read_text() == "d\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("- a\n", "no mapping"),
        ("steps: [\n", "no YAML"),
        ("steps: []\nlast: x\n", "steps"),
        ("steps: [{run: ls}]\n", "last"),
        ("steps: [{run: ls}]\nlast: ''\n", "last"),
        ("steps: [{run: 3}]\nlast: x\n", "steps.0.run"),
        ("steps: [{}]\nlast: x\n", "says, runs or writes"),
        ("steps: [{run: ls, shell: sh}]\nlast: x\n", "steps.0.shell: unknown key"),
        ("steps: [{runn: ls}]\nlast: x\n", "steps.0.runn: unknown key. Did you mean run?"),
        ("steps: [{run: ls}]\nlats: x\n", "lats: unknown key. Did you mean last?"),
        ("steps: ls\nlast: x\n", "steps: it must be a list, not 'ls'"),
        ("steps: [{run: ls}]\nlast: x\nmore: 1\n", "more"),
        ('steps: [{run: "a\\nb", write: {f: x}}]\nlast: x\n', "one line"),
        ('steps: [{write: {f: "END_OF_FILE\\n"}}]\nlast: x\n', "END_OF_FILE"),
        ("steps: [{write: {f: !file absent.py}}]\nlast: x\n", "absent.py"),
        ("steps: [{write: {f: !other x}}]\nlast: x\n", "no YAML"),
    ],
)
def test_a_bad_session_is_an_error_that_names_it(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
        load_session(path)

    assert str(path) in str(caught.value)
    assert not re.search("Input should|Extra inputs|Field required|Value error", str(caught.value))


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("{before_step: 3, kind: cut}", "step 3"),
        ("{before_step: 0, kind: cut}", "before_step"),
        ("{before_step: 1, kind: status}", "status"),
        ("{before_step: 1, kind: cut, status: 500}", "status"),
        ("{before_step: 1, kind: status, status: 200}", "status"),
        ("{before_step: 1, kind: cut, seconds: 2}", "seconds"),
        ("{before_step: 1, kind: hang, retry_after_s: 2}", "retry_after_s"),
        ("{before_step: 1, kind: explode}", "kind"),
    ],
)
def test_a_bad_fault_is_an_error(tmp_path: Path, fault: str, problem: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"steps: [{{run: ls}}]\nlast: x\nfaults: [{fault}]\n")

    with pytest.raises(ConfigError, match=problem):
        load_session(path)


@pytest.mark.parametrize("name", ["absent", "/nowhere/absent.yaml"])
def test_an_absent_session_is_an_error_with_the_choices(name: str) -> None:
    with pytest.raises(ConfigError, match="improve") as caught:
        load_session(name)

    assert name in str(caught.value)


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--session", "absent"]) == 2
    assert "there is no session 'absent'" in capsys.readouterr().err


def test_a_port_in_use_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--session", "smoke", "--port", str(port)]) == 2
    said = capsys.readouterr()
    assert f"port {port} is in use" in said.err
    assert not said.out


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_what_is_no_port_is_an_error(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([f"--port={port}"])
    assert f"'{port}' is no port" in capsys.readouterr().err


def test_the_command_serves_until_it_is_interrupted() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_bench.drivers.scripted", "--session", "smoke"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        shown = dict(process.stdout.readline().split() for _ in range(4))
        models = httpx.get(
            f"{shown['openai']}/models", headers={"authorization": f"Bearer {shown['key']}"}
        )
        assert models.status_code == 200
        assert process.stdout.readline().split() == ["200", "GET", "models", "aside"]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.communicate()


# Sessions in a real shell


class Grading(BaseHTTPRequestHandler):
    """Takes submissions and remembers them."""

    submitted: list[str]

    def do_GET(self) -> None:
        self._answer({"remaining_s": 100})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.submitted.append(body["model_path"])
        self._answer({"submission_id": len(self.submitted), "score": 1.0})

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def _answer(self, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def grading() -> Iterator[tuple[str, list[str]]]:
    """A grading API's URL, and what was submitted to it."""

    class Fresh(Grading):
        submitted: list[str] = []  # noqa: RUF012  the server makes the instances

    with ThreadingHTTPServer(("127.0.0.1", 0), Fresh) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", Fresh.submitted
        finally:
            server.shutdown()
            thread.join()


def make_workspace(root: Path) -> Path:
    for folder in ("data", "code", "output", "models"):
        (root / folder).mkdir(parents=True)
    for name in ("instructions.md", "description.md", "run_meta.json", "scores.json"):
        (root / name).write_text("{}\n")
    return root


def environment(workspace: Path, *, url: str = "") -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(workspace),
        "WORKSPACE": str(workspace),
        "MODEL_PATH": str(workspace / "models" / "base"),
        "DATA_PATH": str(workspace / "data"),
        "OUTPUT_DIR": str(workspace / "output"),
        "GRADING_SERVER_URL": url,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def play(session: Session, workspace: Path, *, url: str) -> list[str]:
    """Runs every command as an agent would; their outputs. Each must succeed."""
    outputs = []
    for step in session.steps:
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=workspace,
            env=environment(workspace, url=url),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    return outputs


def test_smoke_session_submits_the_base_and_a_changed_model(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w")
    base = write_checkpoint(workspace / "models" / "base", value=5.0)
    base.chmod(0o555)
    for path in base.iterdir():
        path.chmod(0o444)
    with grading() as (url, submitted):
        play(load_session("smoke"), workspace, url=url)

    assert submitted == ["output/v1", "output/v2"]
    assert content_hash(workspace / "output" / "v1") == content_hash(base)
    assert content_hash(workspace / "output" / "v2") != content_hash(base)
    assert inspect(workspace / "output" / "v2").tensors == inspect(base).tensors
    base.chmod(0o755)


def write_word_problems(folder: Path, *, num: int) -> None:
    settings = {"min_steps": 1, "max_steps": 2, "max_number": 40}
    rows = islice(generate_rows("train", num, settings=settings), num)
    lines = [json.dumps({"question": row.question, "answer": row.answer}) for row in rows]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "prompt.txt").write_text("{question}")


def train(workspace: Path, *, name: str = "v1") -> list[float]:
    """Runs the sessions' training script; the losses that it tells."""
    done = subprocess.run(
        [sys.executable, "code/train.py"],
        cwd=workspace,
        env=environment(workspace),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"saved {workspace / 'output' / name}" in done.stderr
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stderr)]


@pytest.mark.slow
def test_training_script_learns_word_problems_and_writes_a_whole_checkpoint(
    tmp_path: Path,
) -> None:
    workspace = make_workspace(tmp_path / "w")
    base = build_tiny(workspace / "models" / "base")
    write_word_problems(workspace / "data", num=160)
    shutil.copyfile(SESSIONS / "train_sft.py", workspace / "code" / "train.py")

    losses = train(workspace)

    trained = inspect(workspace / "output" / "v1")
    assert trained.tensors == inspect(base).tensors
    assert content_hash(workspace / "output" / "v1") != content_hash(base)
    assert losses[-1] < 0.8 * losses[0]
    from transformers import AutoTokenizer

    tokenizers = [AutoTokenizer.from_pretrained(f) for f in (base, workspace / "output" / "v1")]
    chat = [{"role": "user", "content": "Nora owns 5 stamps."}]
    ids = [t.apply_chat_template(chat, add_generation_prompt=True) for t in tokenizers]
    assert ids[0] == ids[1]


@pytest.mark.slow
def test_training_script_learns_from_played_episodes_too(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w")
    build_tiny(workspace / "models" / "base")
    turns = [
        {"observation": "You are in a room. You see a desk 1.", "action": "go to desk 1"},
        {"observation": "You arrive at desk 1.", "action": "take pen 1 from desk 1"},
    ]
    (workspace / "data" / "games").mkdir()
    lines = [json.dumps({"turns": turns})] * 64
    (workspace / "data" / "games" / "train.jsonl").write_text("\n".join(lines))
    script = (SESSIONS / "train_sft.py").read_text().replace('NAME = "v1"', 'NAME = "w"')
    (workspace / "code" / "train.py").write_text(script)

    losses = train(workspace, name="w")

    assert losses[-1] < losses[0]


def test_revision_changes_what_the_script_does(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w")
    steps = {step.title: step for step in load_session("improve").steps}
    for title in ("Write the training script", "Revise the training script"):
        subprocess.run(
            ["sh", "-c", steps[title].command],
            cwd=workspace,
            check=True,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
        )
    before = (SESSIONS / "train_sft.py").read_text().splitlines()
    after = (workspace / "code" / "train.py").read_text().splitlines()

    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == ['NAME = "v2"', "EPOCHS = 4", "RATE = 3e-3"]
