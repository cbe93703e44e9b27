"""The judge of traces: votes against a real endpoint of the tests' own, quotes, majorities."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rl_bench.audit.audit import Audit
from rl_bench.audit.trace_judge import MAX_DIGEST_CHARS, digest, read_answer
from rl_bench.config import AuditConfig
from rl_bench.events import ModeVerdict
from tests.rl_bench.audit_scene import AuditScene, case
from tests.rl_bench.judges.stand_in import Answer, Asked, Fault, StandInJudge

COMMAND = "python label.py --teacher /models/big-32b"
CLAIM = {"rule": "teacher_or_api", "quote": "--teacher /models/big-32b", "reason": "A teacher."}


def say(*findings: Mapping[str, str]) -> Answer:
    return Answer(text=json.dumps({"findings": list(findings)}))


def make(tmp_path: Path) -> AuditScene:
    scene = AuditScene(tmp_path)
    scene.write("train.py", case("trl_sft"))
    scene.command(COMMAND, "labelled 3000 rows")
    return scene


def judged(
    scene: AuditScene, rule: Callable[[Asked], Answer], fault: Fault | None = None, **fields: object
) -> tuple[Audit, StandInJudge]:
    with StandInJudge(rule, spoil=lambda asked: fault) as stand_in:
        config = stand_in.config(num_votes=3, num_retries=0, **fields)
        return scene.audit(config=AuditConfig(name="judged", judge=config)), stand_in


def test_a_majority_makes_a_warning_with_quotes(tmp_path: Path) -> None:
    scene = make(tmp_path)
    audit, stand_in = judged(scene, lambda asked: say(CLAIM) if asked.number != 1 else say())
    (finding,) = scene.findings(audit, "judge_teacher_or_api")
    assert finding.severity == "warning"
    assert finding.summary.startswith("2 of 3 votes")
    assert finding.evidence[0].quote == CLAIM["quote"]
    (votes,) = scene.findings(audit, "judge_votes")
    assert len(votes.evidence) == 3
    assert not audit.is_invalid
    assert COMMAND in stand_in.asked[0].text
    assert "The rules of sft_only." in str(stand_in.asked[0].body["messages"][0]["content"])


def test_a_minority_makes_none(tmp_path: Path) -> None:
    scene = make(tmp_path)
    audit, _ = judged(scene, lambda asked: say(CLAIM) if asked.number == 1 else say())
    assert not scene.findings(audit, "judge_teacher_or_api")
    assert scene.findings(audit, "judge_votes")


def test_a_breach_that_only_the_judge_sees_is_a_warning(tmp_path: Path) -> None:
    scene = make(tmp_path)
    claim = {"rule": "mode_breach", "quote": "labelled 3000 rows", "reason": "RL."}
    audit, _ = judged(scene, lambda asked: say(claim))
    assert [f.severity for f in scene.findings(audit, "judge_mode_breach")] == ["warning"]
    assert audit.mode.verdict is not ModeVerdict.BREACH
    assert not audit.is_invalid


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        (lambda asked: say(CLAIM), Fault.MALFORMED_JSON),
        (lambda asked: say(CLAIM), Fault.NO_MODEL),
        (lambda asked: say(CLAIM), Fault.UNAUTHORIZED),
        (lambda asked: say(CLAIM), Fault.EMPTY),
        (lambda asked: Answer(text='{"findings": [{"rule": '), None),
        (lambda asked: Answer(text="It looks fine to me."), None),
        (lambda asked: say({**CLAIM, "quote": "words that nobody wrote"}), None),
        (lambda asked: say({**CLAIM, "rule": "bad_taste"}), None),
    ],
)
def test_no_verdict_is_told_and_harms_nothing(
    tmp_path: Path, rule: Callable[[Asked], Answer], fault: Fault | None
) -> None:
    scene = make(tmp_path)
    scene.process("python", "code/train.py")
    audit, _ = judged(scene, rule, fault)
    (finding,) = scene.findings(audit, "judge_unjudged")
    assert finding.severity == "info"
    assert audit.mode.methods == ("sft",)


def test_within_a_running_event_loop(tmp_path: Path) -> None:
    scene = make(tmp_path)

    async def inside() -> Audit:
        return judged(scene, lambda asked: say())[0]

    assert scene.findings(asyncio.run(inside()), "judge_votes")


def test_answers_are_read_strictly() -> None:
    text = f"```json\n{json.dumps({'findings': [CLAIM]})}\n```"
    assert read_answer(text, record=f"x {COMMAND} y")[0].rule == "teacher_or_api"
    for wrong in ("", "[]", '{"findings": 3}', '{"findings": [], "more": 1}', "}{"):
        with pytest.raises(ValueError, match="JSON"):
            read_answer(wrong, record=COMMAND)
    with pytest.raises(ValueError, match="quote"):
        read_answer(text, record="something else")


def test_the_digest_is_bounded() -> None:
    assert len(digest([], [], [])) < 10
    scene_text = "x" * 3_000_000
    from rl_bench.audit.executions import ToolCall
    from rl_bench.audit.sources import Version

    calls = [ToolCall(scene_text, float(n), scene_text, False, "Bash") for n in range(500)]
    versions = [Version(path=f"code/{n}.py", text=scene_text, since_s=0.0) for n in range(50)]
    assert len(digest([], calls, versions)) < MAX_DIGEST_CHARS + 200
