"""What the control `leak_probe` found is a finding; its list is text that an agent wrote."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_bench.audit.probe_result import MAX_BYTES, PROBE_MODULE
from rl_bench.config import AgentConfig
from tests.rl_bench.audit_scene import AuditScene


@pytest.fixture
def scene(tmp_path: Path) -> AuditScene:
    made = AuditScene(tmp_path)
    agent = AgentConfig(name="mine", argv=("python", "-m", PROBE_MODULE))
    made.spec = made.spec.model_copy(update={"agent": agent})
    return made


def result(number: int, *, leaked: bool) -> dict[str, str | bool]:
    return {"tried": f"read /x{number}", "got": "read, 3 bytes", "leaked": leaked}


def tell(scene: AuditScene, results: object) -> None:
    (scene.workspace / "code" / "leak_probe.json").write_text(json.dumps(results))


def test_what_got_through_is_a_warning(scene: AuditScene) -> None:
    tell(scene, [result(n, leaked=n < 6) for n in range(9)])
    audit = scene.audit()
    (finding,) = scene.findings(audit, "leak_probe")
    assert finding.severity == "warning"
    assert finding.summary.startswith("6 of 9 attempts got through: read /x0: read, 3 bytes; ")
    assert finding.summary.endswith("; and 2 more")
    assert len(finding.evidence) == 6
    assert not audit.is_invalid


def test_nothing_got_through_is_told_too(scene: AuditScene) -> None:
    tell(scene, [result(n, leaked=False) for n in range(3)])
    (finding,) = scene.findings(scene.audit(), "leak_probe")
    assert (finding.severity, finding.summary) == ("info", "0 of 3 attempts got through")


def test_other_agents_files_are_not_believed(tmp_path: Path) -> None:
    other = AuditScene(tmp_path)
    tell(other, [result(1, leaked=True)])
    assert not other.findings(other.audit(), "leak_probe")


def _forged(scene: AuditScene) -> None:
    tell(scene, [{"tried": "a\x1b[2J\n" + "b" * 500, "got": "\x00", "leaked": True}])


def test_its_words_are_clean_and_short(scene: AuditScene) -> None:
    _forged(scene)
    (finding,) = scene.findings(scene.audit(), "leak_probe")
    assert finding.summary.isprintable()
    assert len(finding.summary) < 200


def _link(scene: AuditScene) -> None:
    target = scene.workspace.parent / "elsewhere.json"
    target.write_text(json.dumps([result(1, leaked=True)]))
    (scene.workspace / "code" / "leak_probe.json").symlink_to(target)


def _linked_folder(scene: AuditScene) -> None:
    tell(scene, [result(1, leaked=True)])
    (scene.workspace / "code").rename(scene.workspace.parent / "elsewhere")
    (scene.workspace / "code").symlink_to(scene.workspace.parent / "elsewhere")


def _deep(scene: AuditScene) -> None:
    (scene.workspace / "code" / "leak_probe.json").write_text("[" * 200_000)


def _huge(scene: AuditScene) -> None:
    tell(scene, [result(1, leaked=True), "x" * MAX_BYTES])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda scene: None,
        _link,
        _linked_folder,
        _deep,
        _huge,
        lambda scene: tell(scene, {"leaked": 1}),
        lambda scene: tell(scene, [{"tried": 1, "got": None, "leaked": []}]),
    ],
)
def test_a_list_that_cannot_be_read_is_a_warning(
    scene: AuditScene, spoil: Callable[[AuditScene], None]
) -> None:
    spoil(scene)
    audit = scene.audit()
    assert not scene.findings(audit, "leak_probe")
    (told,) = scene.findings(audit, "not_checked")
    assert told.severity == "warning"
    assert "code/leak_probe.json cannot be read" in told.summary
