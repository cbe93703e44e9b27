"""What the agent learns from: the prompts are the evaluation's, the loss is on answers alone."""

import json
from collections.abc import Sequence
from pathlib import Path

import gymnasium
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from envs.protocol import Prompt, Turn
from envs.protocol_chat import ChatProtocol
from envs.protocols import get_protocol
from rl_bench.agents.reference.data import choose, load_demos
from rl_bench.agents.reference.demo_episodes import protocol_of
from rl_bench.agents.reference.demos import Step
from rl_bench.agents.reference.rows import IGNORED, Row, make_rows
from rl_bench.agents.reference.settings import Job, SettingsError, TaskMeta
from rl_bench.agents.reference.tokens import decode, encode_answer
from rl_bench.agents.reference.worlds import check_mode, check_world
from rl_bench.compose import compose
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest, Sampling
from rl_bench.models.tiny import build_tiny
from rl_bench.plan import expand
from rl_bench.rollout import RolloutSpec, play_episode
from rl_bench.tasks.base import Episode
from rl_bench.tasks.registry import make_task

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}<think></think>{% endif %}{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def lay_out(root: Path, option: str, *overrides: str) -> TaskMeta:
    """The train data of a shipped task, as a workspace has them."""
    experiment = compose([f"task={option}", *overrides]).experiment
    config = expand(experiment)[0].tasks[0]
    data = root / config.name
    make_task(config, cache=root / "cache").write_train_data(data)
    return TaskMeta(
        name=config.name,
        kind=config.kind,
        protocol=config.protocol,
        max_steps=config.max_steps,
        max_tokens=config.max_tokens,
        data=data,
    )


def prompt_of(step: Step) -> Prompt:
    return next(iter(step.prompts()))


def learnt(row: Row) -> list[int]:
    return [label for label in row.labels if label != IGNORED]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    base = build_tiny(tmp_path_factory.mktemp("tiny"))
    made: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(base)
    return made


class Rehearsed:
    """Says what a demonstration says, and keeps the prompts that it was asked with."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[Prompt] = []

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        [request] = requests
        self.asked.append(Prompt(messages=request.messages, text=request.text))
        return [
            Completion(
                text=self._answers.pop(0),
                num_prompt_tokens=1,
                num_tokens=1,
                finish_reason=FinishReason.STOP,
            )
        ]


@pytest.mark.parametrize(
    ("option", "env_id"),
    [
        ("webshop_mini", "rl_bench/WebShop-v0"),
        ("deepsearchqa_mini", "rl_bench/DeepSearchQA-v0"),
        ("alfworld_mini", "rl_bench/ALFWorld-v0"),
    ],
)
async def test_an_episodes_prompts_are_those_of_its_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, env_id: str
) -> None:
    task = lay_out(tmp_path, option, "task.num_train=6")
    monkeypatch.setenv("DATA_PATH", str(task.data))
    env = gymnasium.make(env_id, max_steps=task.max_steps)
    lines = [json.loads(line) for line in (task.data / "train.jsonl").read_text().splitlines()]
    for number, (line, demo) in enumerate(zip(lines, load_demos(task), strict=True)):
        chosen = {"game": str(task.data / line["game"])} if "game" in line else {"episode": number}
        policy = Rehearsed([step.answer for step in demo])
        outcome = await play_episode(
            env,
            Episode(episode_id="0", env_id=env_id, env_kwargs={}, options=chosen),
            policy=policy,
            protocol=protocol_of(task),
            spec=RolloutSpec(
                protocol=task.protocol,
                sampling=Sampling(max_tokens=task.max_tokens),
                max_steps=task.max_steps,
            ),
        )
        assert outcome.score == 1.0
        assert policy.asked == [prompt_of(step) for step in demo]
    env.close()


def test_a_protocols_settings_are_those_of_the_evaluation(tmp_path: Path) -> None:
    task = lay_out(tmp_path, "webshop_mini", "task.num_train=3", "task.settings.history_steps=0")
    assert protocol_of(task) != get_protocol(task.protocol)
    later = prompt_of(load_demos(task)[0][-1])
    assert later.messages is not None
    assert later.messages[-1]["content"].count("Observation ") == 1


def test_questions_come_with_worked_examples_where_they_fit(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    task = lay_out(tmp_path, "gsm8k_mini", "task.num_train=5", "task.settings.shots=[1, 3]")
    shots = json.loads((task.data / "shots.json").read_text())
    demos = load_demos(task)
    [step] = demos[0]
    with_shots, alone = step.prompts()
    assert with_shots.messages is not None
    assert alone.messages is not None
    assert list(with_shots.messages) == [*shots, *alone.messages]
    whole = make_rows(tokenizer, demos, max_length=1024).rows
    short = make_rows(tokenizer, demos, max_length=64).rows
    assert len(whole) == len(short) == 5
    assert max(len(row.input_ids) for row in short) <= 64
    assert all(len(row.input_ids) > 64 for row in whole)
    assert [learnt(row) for row in whole] == [learnt(row) for row in short]


@pytest.mark.parametrize("protocol", ["chat", "base"])
def test_functions_are_learnt_as_the_protocol_wants_them(tmp_path: Path, protocol: str) -> None:
    task = lay_out(tmp_path, "humaneval", "task.num_train=3", f"task.protocol={protocol}")
    line = json.loads((task.data / "train.jsonl").read_text().splitlines()[0])
    [step] = load_demos(task)[0]
    whole = line["prompt"] + line["canonical_solution"]
    if protocol == "base":
        assert prompt_of(step) == Prompt(text=line["prompt"])
        assert line["prompt"] + step.answer == whole
    else:
        messages = prompt_of(step).messages
        assert messages is not None
        template = (task.data / "prompt.txt").read_text()
        assert messages[0]["content"] == template.replace("{prompt}", line["prompt"])
        assert step.answer == f"```python\n{whole.rstrip()}\n```"


def test_instructions_are_asked_as_they_are(tmp_path: Path) -> None:
    task = lay_out(tmp_path, "alpacaeval_mini", "task.num_train=3")
    line = json.loads((task.data / "train.jsonl").read_text().splitlines()[0])
    [step] = load_demos(task)[0]
    assert prompt_of(step).messages == ({"role": "user", "content": line["question"]},)
    assert step.answer == line["answer"]


def test_questions_without_a_way_to_the_answer_teach_the_answer(tmp_path: Path) -> None:
    row = {"problem": "Where?", "answer": "Here", "answer_type": "Single Answer", "category": ""}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n")
    [step] = load_demos(meta(tmp_path, kind="deepsearchqa", protocol="search_react"))[0]
    assert (step.answer, step.stop) == (" Action: answer[Here]", "\nObservation:")
    assert "Question: Where?\nAnswer type: Single Answer\n" in str(prompt_of(step).text)


def test_a_growing_conversation_is_one_row_with_the_loss_on_its_answers(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    task = lay_out(tmp_path, "alfworld_mini", "task.num_train=4")
    demos = load_demos(task)
    rows = make_rows(tokenizer, demos, max_length=1024).rows
    assert len(rows) == len(demos)
    for row, demo in zip(rows, demos, strict=True):
        said = "".join(f"{step.answer}<|im_end|>" for step in demo)
        assert decode(tokenizer, learnt(row), special=True) == said
        assert len(row.input_ids) == len(row.labels)


def test_prompts_made_anew_are_rows_of_their_own(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    task = lay_out(tmp_path, "webshop_mini", "task.num_train=3")
    [demo, *_] = load_demos(task)
    rows = make_rows(tokenizer, [demo], max_length=4096)
    assert len(rows.rows) == len(demo) > 2
    few = make_rows(tokenizer, [demo], max_length=700)
    assert len(few.rows) + few.num_too_long == len(demo)
    assert few.num_too_long > 0


def test_long_episodes_lose_turns_as_an_evaluation_drops_them(tmp_path: Path) -> None:
    turns = [Turn(f"room {i}", f"go {i}") for i in range(6)]
    line = {"turns": [{"observation": t.observation, "action": t.action} for t in turns]}
    (tmp_path / "train.jsonl").write_text(json.dumps(line) + "\n")
    [*_, last] = load_demos(meta(tmp_path, kind="alfworld"))[0]
    kept = [[turns[0], *turns[first:-1]] for first in (1, 2, 3, 4)] + [[turns[0]]]
    speak = ChatProtocol()
    assert list(last.prompts()) == [speak.prompt(some, "room 5") for some in kept]


def test_an_answer_ends_as_the_template_ends_it(tokenizer: PreTrainedTokenizerBase) -> None:
    prompt = Prompt(messages=({"role": "user", "content": "go?"},))
    shipped = tokenizer.chat_template
    tokenizer.chat_template = CHATML
    wrapped = encode_answer(tokenizer, prompt, "yes")
    tokenizer.chat_template = None
    bare = encode_answer(tokenizer, prompt, "yes")
    tokenizer.chat_template = shipped
    assert decode(tokenizer, wrapped, special=True) == "<think></think>yes<|im_end|>"
    assert decode(tokenizer, bare, special=True) == "yes<|im_end|>"


def meta(data: Path, *, kind: str, protocol: str = "chat") -> TaskMeta:
    return TaskMeta(name="mine", kind=kind, protocol=protocol, max_steps=5, max_tokens=9, data=data)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (None, r"task mine \(kind new\): .*train.jsonl: no demonstrations"),
        ("", "no demonstrations"),
        ("{", "no demonstrations"),
        ('{"question": "?", "answer": "!"}', "no prompt template: .*prompt.txt"),
        ('{"x": 1, "y": 2}', r"train.jsonl: rows have x, y; .* knows rows with turns, or"),
        ('{"turns": [{"observation": "x"}]}', "a row is not like .*'action'"),
    ],
)
def test_data_that_nobody_can_learn_from_are_named(
    tmp_path: Path, lines: str | None, words: str
) -> None:
    if lines is not None:
        (tmp_path / "train.jsonl").write_text(lines)
    with pytest.raises(SettingsError, match=words):
        load_demos(meta(tmp_path, kind="new"))


@pytest.mark.parametrize("kind", ["humaneval", "alpacaeval", "webshop", "deepsearchqa", "new"])
def test_tasks_without_rewards_are_refused_with_the_reason(tmp_path: Path, kind: str) -> None:
    words = f"kind '{kind}': .*It has for alfworld, gsm8k; choose mode=sft_only"
    with pytest.raises(SettingsError, match=words):
        check_world(meta(tmp_path, kind=kind))


def test_modes_are_checked_before_a_model_is_loaded(tmp_path: Path) -> None:
    task = meta(tmp_path, kind="webshop")
    with pytest.raises(SettingsError, match="does not know mode 'no_such_mode'"):
        check_mode(job(task, mode="no_such_mode"))
    with pytest.raises(SettingsError, match="no reinforcement learning"):
        check_mode(job(task, mode="rl_only"))
    check_mode(job(task, mode="free"))
    check_mode(job(meta(tmp_path, kind="gsm8k"), mode="rl_only"))


def job(task: TaskMeta, *, mode: str) -> Job:
    nowhere = Path("nowhere")
    return Job(
        mode=mode,
        seed=0,
        max_model_len=None,
        tasks=(task,),
        settings={},
        workspace=nowhere,
        model=nowhere,
        output=nowhere,
        grading_url="",
    )


def test_a_transcript_is_no_chat_to_roll_out(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="plain text"):
        check_world(meta(tmp_path, kind="alfworld", protocol="search_react"))


def test_demonstrations_are_chosen_by_seed() -> None:
    demos = [[Step(prompts=tuple, answer=str(i))] for i in range(9)]
    assert choose(demos, num=4, seed=1) == choose(demos, num=4, seed=1)
    assert choose(demos, num=4, seed=1) != choose(demos, num=4, seed=2)
    assert choose(demos, num=0, seed=1) == demos
