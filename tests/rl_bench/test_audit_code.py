"""Reading code, commands and conditions: hostile files are bounded, odd ones are understood."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_bench.audit.code_reader import read_module
from rl_bench.audit.commands import read_argv, read_line
from rl_bench.audit.conditions import Conditions, Truth
from rl_bench.audit.facts import Guard
from rl_bench.audit.reader_process import read_sources
from rl_bench.events import ModeVerdict
from tests.rl_bench.audit_scene import AuditScene, case

HOSTILE = {
    "syntax.py": "def broken(:",
    "null.py": "x = 1\0",
    "parentheses.py": "x = " + "(" * 5000 + "1" + ")" * 5000,
    "signs.py": "x = " + "-" * 300_000 + "1",
    "chain.py": "x = " + "+".join(["1"] * 150_000),
    "attributes.py": "x = a" + ".b" * 100_000,
    "calls.py": "f" + "(1)" * 100_000,
    "strings.py": "x = " + "'a'" * 200_000,
    "indented.py": "\n".join(" " * n + "if x:" for n in range(99)) + "\n" + " " * 99 + "pass",
    "wide.py": "\n".join(f"x{n} = x{n - 1} * y{n} + z" for n in range(4_000)),
    "self.py": "x = x * x\n" * 2000 + "x.backward()",
    "large.py": "# " + "x" * 2_000_000,
    "surrogate.py": "x = '\ud800'",
    "recursive.py": "def f(a):\n    return f(f(a) * f(a))\nf(1).backward()",
}


def test_hostile_files_are_bounded_and_hide_nothing_else() -> None:
    began = time.monotonic()
    sources = {**HOSTILE, "good.py": case("trl_grpo")}
    facts = read_sources(sources, budget_s=60.0)
    assert set(facts) == set(sources)
    assert time.monotonic() - began < 60
    assert not facts["good.py"].problem
    assert [s.method for u in facts["good.py"].units for s in u.signs] == ["grpo"]
    for name in ("syntax.py", "parentheses.py", "chain.py", "large.py"):
        assert facts[name].problem, name


def test_a_file_that_kills_the_reader_is_told_and_the_rest_is_read() -> None:
    chain = "".join(f"x{n} = (x{n - 1} + 1) * (x{n - 1} - 1)\n" for n in range(3000))
    slow = chain + "".join(f"x{n}.backward()\n" for n in range(3000))
    sources = {"a.py": "import os", "slow.py": slow, "b.py": case("trl_grpo")}
    facts = read_sources(sources, budget_s=30.0, file_cpu_s=1)
    assert "took too much" in facts["slow.py"].problem
    assert not facts["a.py"].problem
    assert facts["b.py"].units[0].name == "<module>"


def test_no_time_is_told() -> None:
    facts = read_sources({"a.py": "x = 1"}, budget_s=0.0)
    assert "no time" in facts["a.py"].problem


def test_the_child_reads_nothing_but_its_input() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rl_bench.audit.reader_process", "5"],
        input=b'{"path": "a.py", "source": "import os; os.abort()"}\n',
        capture_output=True,
        check=True,
    )
    assert b'"path":"a.py"' in done.stdout


def test_a_run_with_code_that_cannot_be_read_is_judged(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    scene.write("train.py", HOSTILE["chain.py"])
    scene.process("python", "code/train.py")
    scene.submit()
    verdict = scene.audit().mode
    assert verdict.verdict is ModeVerdict.UNKNOWN
    assert "code/train.py cannot be read" in verdict.summary


def test_odd_files_in_the_workspace_raise_nothing(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    output = scene.workspace / "output"
    (output / "loop").symlink_to(output)
    (output / "dangling.jsonl").symlink_to("/nowhere")
    (output / "binary.log").write_bytes(bytes(range(256)) * 100)
    (output / "trainer_state.json").write_text("[" * 100_000)
    (output / "torn.jsonl").write_text('{"a": ')
    (output / b"na\xffme.txt".decode("utf-8", "surrogateescape")).write_text("x")
    subprocess.run(["mkfifo", str(output / "pipe.log")], check=True)
    deep = output
    for _ in range(60):
        deep = deep / "d"
    deep.mkdir(parents=True)
    scene.paths.logs.joinpath("agent.stdout").write_bytes(b"\xff\xfe" * 10)
    audit = scene.audit()
    assert audit.mode.verdict is ModeVerdict.CLEAN


def test_a_damaged_history_is_told(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    scene.write("train.py", case("trl_sft"))
    for path in scene.paths.code_history.rglob("*"):
        if path.is_file() and "objects" in path.parts:
            path.chmod(0o644)
            path.write_bytes(b"not an object")
    (not_checked,) = scene.findings(scene.audit(), "not_checked")
    assert "code history" in not_checked.summary


def test_imports_in_every_spelling() -> None:
    spellings = {
        "import trl\ntrl.GRPOTrainer(1).train()": "grpo",
        "import trl as t\nx = t.GRPOTrainer(1)\nx.train()": "grpo",
        "from trl import *\nGRPOTrainer(1).train()": "grpo",
        "import trl\ngetattr(trl, 'GRPOTrainer')(1).train()": "grpo",
        "import importlib\nt = importlib.import_module('trl')\n": "",
        "__import__('trl').DPOTrainer(1).train()": "dpo",
        "from trl.trainer.kto_trainer import KTOTrainer\nKTOTrainer(1).train()": "kto",
        "from trl import GRPOTrainer\nclass A(GRPOTrainer): pass\nA(1).train()": "grpo",
        "class GRPOTrainer: pass\nGRPOTrainer(1).train()": "",
        "from mine import GRPOTrainer\nGRPOTrainer(1).train()": "",
        "import trlx\ntrlx.train('m', reward_fn=f)": "ppo",
        "import trlx\ntrlx.train('m', samples=s, rewards=r)": "ilql",
    }
    for source, method in spellings.items():
        facts = read_module("a.py", source)
        found = [s.method for u in facts.units for s in u.signs if s.kind == "train"]
        assert found == ([method] if method else []), source


def test_trainers_of_a_class() -> None:
    source = (
        "from trl import SFTTrainer\n"
        "class Job:\n"
        "    def __init__(self): self.trainer = SFTTrainer('m')\n"
        "    def go(self): self.trainer.train()\n"
    )
    units = {unit.name: unit for unit in read_module("a.py", source).units}
    assert [sign.kind for sign in units["Job.go"].signs] == ["train"]


def test_conditions() -> None:
    def truth(
        guard: Guard, args: str = "", values: dict[str, frozenset[str]] | None = None
    ) -> Truth:
        return Conditions(args.split(), {}, values or {}).all_of([guard])

    method = Guard(subject="method", values=("grpo", "rl"), is_option=True)
    assert truth(method, "--method rl") is Truth.YES
    assert truth(method, "--method=sft,grpo") is Truth.YES
    assert truth(method, "train.method=sft") is Truth.NO
    assert truth(method) is Truth.MAYBE
    assert truth(method, "", {"method": frozenset({"rl"})}) is Truth.YES
    assert truth(method, "", {"method": frozenset({"sft"})}) is Truth.NO
    assert truth(method, "", {"method": frozenset({"sft", "rl"})}) is Truth.MAYBE
    assert truth(method, "", {"method": frozenset({"each:rl", "each:sft"})}) is Truth.YES
    assert truth(method.model_copy(update={"negated": True}), "--method rl") is Truth.NO
    flag = Guard(subject="use_rl", is_option=True)
    assert truth(flag, "--use-rl") is Truth.YES
    assert truth(flag, "--use_rl=false") is Truth.NO
    assert truth(flag, "--no-use-rl") is Truth.NO
    assert truth(flag, "", {"use_rl": frozenset({"False"})}) is Truth.NO
    assert truth(Guard(subject="rows")) is Truth.YES
    assert truth(Guard(never=True)) is Truth.NO


def test_command_lines_are_read_as_a_shell_does() -> None:
    line = read_line(
        "cd code && A=1 nohup python -u t.py --x 'a b' > ../out.log 2>&1 &\nls | wc -l"
    )
    program, *others = line.programs
    assert (program.kind, program.target, program.folder) == ("file", "t.py", "code")
    assert program.args == ("--x", "a b")
    assert program.env == {"A": "1"}
    assert program.log == "../out.log"
    assert [other.target for other in others] == ["ls", "wc"]


@pytest.mark.parametrize(
    "text",
    [
        "'",
        "python -",
        "(((((",
        "a <<EOF",
        "$(",
        "\\",
        "bash -c",
        "cd",
        "> x",
        "timeout",
        "\0",
        ";;",
    ],
)
def test_torn_command_lines_raise_nothing(text: str) -> None:
    assert isinstance(read_line(text).programs, list)
    assert isinstance(read_argv(text.split()).programs, list)


def test_nested_shells_end(tmp_path: Path) -> None:
    text = "python t.py"
    for _ in range(12):
        text = f"bash -c {text!r}"
    assert len(read_line(text).programs) <= 1
    scene = AuditScene(tmp_path)
    scene.write("a.sh", "bash code/a.sh\nbash code/a.sh\n")
    scene.command("bash code/a.sh")
    assert scene.audit().mode.verdict is ModeVerdict.CLEAN
