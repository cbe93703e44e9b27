"""Evaluation items in an agent's files: found in every format, the train split left alone."""

import gzip
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_bench.audit.contamination import contamination
from rl_bench.audit.ngrams import FileScan, TextIndex, words_of
from rl_bench.compose import compose
from rl_bench.config import DataSource, TaskConfig
from rl_bench.errors import PreflightError
from rl_bench.events import FindingMade
from rl_bench.tasks.registry import make_task
from tests.rl_bench.audit_scene import AuditScene
from tests.rl_bench.grading_scene import WordTask

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jon")
PUBLIC = TaskConfig(
    name="words", kind="x", level="L1", source=DataSource.PATH, data_path=Path("/d"), max_tokens=9
)
GENERATED = PUBLIC.model_copy(update={"source": DataSource.BUILTIN, "data_path": None})


def question(number: int) -> str:
    name, other = NAMES[number % 10], NAMES[(number * 7 + 3) % 10]
    return (
        f"{name} keeps {number + 20} bees in the garden behind house {number} and gives "
        f"{other} {number + 3} of them before the winter. How many bees are left for {name}?"
    )


def answer(number: int) -> str:
    return f"From {number + 20} bees {number + 3} are given away, so 17 are left. #### 17"


class BeeTask(WordTask):
    """Questions 0 to 99 are evaluated; 100 to 199, and 7, are the train split."""

    def write_train_data(self, folder: Path) -> None:
        rows = [{"question": question(n), "answer": answer(n)} for n in (7, *range(100, 200))]
        (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        for number in range(100):
            yield f"bee-{number}", question(number)
            yield f"bee-{number}", answer(number)
            yield f"bee-{number}", "17"


def look(scene: AuditScene, *, config: TaskConfig = PUBLIC) -> Sequence[FindingMade]:
    from rl_bench.audit.sources import read_history

    history = read_history(scene.paths.code_history, attempt=0, budget_s=30)
    result = contamination(
        [BeeTask("words")],
        [config],
        workspace=scene.workspace.resolve(),
        versions=history.versions,
        budget_s=60,
    )
    assert not result.problems
    return result.findings


def rows(numbers: Sequence[int]) -> list[dict[str, str]]:
    return [{"prompt": question(n), "completion": answer(n)} for n in numbers]


def as_jsonl(path: Path, numbers: Sequence[int]) -> None:
    path.write_text("\n".join(map(json.dumps, rows(numbers))))


def as_messages(path: Path, numbers: Sequence[int]) -> None:
    chats = [
        {"messages": [{"role": "user", "content": f"Solve:\n\n{question(n)}"}]} for n in numbers
    ]
    path.write_text(json.dumps(chats, indent=1))


def as_parquet(path: Path, numbers: Sequence[int]) -> None:
    table = [{"messages": [{"role": "user", "content": question(n)}]} for n in numbers]
    pq.write_table(pa.Table.from_pylist(table), path)


def as_arrow(path: Path, numbers: Sequence[int]) -> None:
    table = pa.Table.from_pylist(rows(numbers))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def as_csv(path: Path, numbers: Sequence[int]) -> None:
    path.write_text("q,a\n" + "".join(f'"{question(n)}","{answer(n)}"\n' for n in numbers))


def as_gzip(path: Path, numbers: Sequence[int]) -> None:
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows(numbers))).encode()))


def as_shouting(path: Path, numbers: Sequence[int]) -> None:
    path.write_text("\n".join(question(n).upper().replace(",", " ,") for n in numbers))


FORMATS = {
    "a.jsonl": as_jsonl,
    "a.json": as_messages,
    "a.parquet": as_parquet,
    "a.arrow": as_arrow,
    "a.csv": as_csv,
    "a.jsonl.gz": as_gzip,
    "a.txt": as_shouting,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(tmp_path: Path, name: str) -> None:
    scene = AuditScene(tmp_path)
    FORMATS[name](scene.workspace / "output" / name, [1, 2, 3, 150])
    (finding,) = look(scene)
    assert finding.severity == "breach"
    assert finding.evidence[0].path == f"output/{name}"
    assert "bee-1, bee-2, bee-3" in finding.evidence[0].quote
    assert "150" not in finding.evidence[0].quote


def test_code_at_an_earlier_revision(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    texts = ", ".join(repr(question(n)) for n in range(10, 14))
    revision = scene.write("data.py", f"ROWS = [{texts}]")
    scene.write("data.py", "ROWS = []", at_s=2.0)
    (finding,) = look(scene)
    assert (finding.evidence[0].path, finding.evidence[0].revision) == ("code/data.py", revision)


def test_the_train_split_and_its_own_texts_are_not_flagged(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    as_jsonl(scene.workspace / "output" / "mix.jsonl", [7, *range(100, 200)])
    (scene.workspace / "output" / "own.txt").write_text(
        "Zoe keeps 20 bees in the garden behind house 4000 and gives Ada some of them before noon."
    )
    assert look(scene) == ()


def test_a_train_split_that_the_agent_changed_excuses_nothing(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    as_jsonl(scene.workspace / "data" / "train.jsonl", [1, 2, 3])
    as_jsonl(scene.workspace / "output" / "mine.jsonl", [1, 2, 3])
    (finding,) = look(scene)
    assert finding.severity == "breach"


@pytest.mark.parametrize(
    ("numbers", "config", "severity"),
    [
        ([1], PUBLIC, "warning"),
        ([1, 2, 3], PUBLIC, "breach"),
        (range(40), GENERATED, "warning"),
        (range(60), GENERATED, "breach"),
    ],
)
def test_few_or_generated_items_are_a_warning(
    tmp_path: Path, numbers: Sequence[int], config: TaskConfig, severity: str
) -> None:
    scene = AuditScene(tmp_path)
    as_jsonl(scene.workspace / "output" / "a.jsonl", numbers)
    (finding,) = look(scene, config=config)
    assert finding.severity == severity


def test_an_item_over_the_edge_of_two_pieces() -> None:
    index = TextIndex.of([("a", question(5))])
    words = question(5).split()
    scan = FileScan(index)
    scan.take(" ".join(words[:9]))
    scan.take(" ".join(words[9:]))
    assert scan.items() == {"a": 1.0}


def test_words() -> None:
    assert words_of('{"a": "Two\\nlines, caf\\u00e9"}') == ["a", "two", "lines", "café"]


def test_torn_tables_and_streams_raise_nothing(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    output = scene.workspace / "output"
    (output / "a.parquet").write_bytes(b"PAR1" + b"\xff" * 500 + b"PAR1")
    (output / "a.arrow").write_bytes(b"ARROW1")
    (output / "a.gz").write_bytes(b"\x1f\x8b\x08\x00torn")
    (output / "a.xz").write_bytes(b"none")
    as_jsonl(output / "z.jsonl", [1, 2, 3])
    (finding,) = look(scene)
    assert finding.evidence[0].path == "output/z.jsonl"


def test_missing_data_are_told(tmp_path: Path) -> None:
    class Missing(BeeTask):
        def evaluation_texts(self) -> Iterator[tuple[str, str]]:
            raise PreflightError("no folder")

    scene = AuditScene(tmp_path)
    audit = scene.audit(tasks=[Missing("words")])
    (told,) = scene.findings(audit, "not_checked")
    assert "no folder" in told.summary
    assert told.severity == "info"
    assert "not looked for" in scene.findings(scene.audit(), "not_checked")[0].summary


def test_much_text_is_quick(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    line = json.dumps({"text": " ".join(f"word{n % 977} stands here" for n in range(300))})
    (scene.workspace / "output" / "big.jsonl").write_text((line + "\n") * 3000)
    as_jsonl(scene.workspace / "output" / "z.jsonl", [1, 2, 3])
    began = time.monotonic()
    assert len(look(scene)) == 1
    assert time.monotonic() - began < 40


TASKS = ("gsm8k_mini", "alpacaeval_mini", "deepsearchqa_mini", "webshop_mini", "humaneval")


@pytest.mark.parametrize("name", [*TASKS, pytest.param("alfworld_mini", marks=pytest.mark.slow)])
def test_each_task_finds_its_own_items_and_not_its_train_split(tmp_path: Path, name: str) -> None:
    (config,) = compose([f"task={name}"]).experiment.options.tasks.values()
    task = make_task(config, cache=tmp_path / "cache")
    scene = AuditScene(tmp_path, tasks=[config])
    task.write_train_data(scene.workspace / "output" / "copy")
    as_given = contamination([task], [config], workspace=scene.workspace, versions=(), budget_s=60)
    assert as_given.findings == ()
    texts = list(task.evaluation_texts())
    leaked = scene.workspace / "output" / "leaked.jsonl"
    leaked.write_text("\n".join(json.dumps({"id": i, "text": text}) for i, text in texts))
    (finding,) = contamination(
        [task], [config], workspace=scene.workspace, versions=(), budget_s=60
    ).findings
    assert finding.severity == "breach"
    found, total = (int(word) for word in finding.summary.split()[:3:2])
    assert found >= 0.9 * total
    assert total >= 0.4 * len({item_id for item_id, _ in texts})
