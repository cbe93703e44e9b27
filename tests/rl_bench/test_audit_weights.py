"""Weights that were trained, and weights that were not: real training steps against noise."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file as save_torch

from rl_bench.audit.rules import Rule
from rl_bench.audit.weight_samples import KEPT, Weights, comparable, rounded
from rl_bench.audit.weights import measure_change, weight_findings
from rl_bench.config import AuditConfig
from rl_bench.events import FindingMade, Note
from rl_bench.lineage.retention import Retention
from tests.rl_bench.audit_scene import AuditScene, save_weights

FOREVER = float("inf")
Tensors = dict[str, NDArray[np.float32]]


class Net(torch.nn.Module):
    """A language model of two layers, large enough to have structure."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(96, 64)
        self.first = torch.nn.Linear(64, 128)
        self.norm = torch.nn.LayerNorm(128)
        self.second = torch.nn.Linear(128, 64)
        self.head = torch.nn.Linear(64, 96, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(torch.relu(self.first(self.embed(ids))))
        logits: torch.Tensor = self.head(torch.relu(self.second(hidden)))
        return logits


def tensors_of(net: Net) -> Tensors:
    return {name: value.detach().numpy().copy() for name, value in net.state_dict().items()}


@pytest.fixture
def base() -> Tensors:
    torch.manual_seed(0)
    return tensors_of(Net())


def trained(base: Tensors, *, lr: float, steps: int, optimizer: str = "adam") -> Tensors:
    net = Net()
    net.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in base.items()})
    kinds = {"adam": torch.optim.AdamW, "sgd": torch.optim.SGD}
    optim = kinds[optimizer](net.parameters(), lr=lr)
    torch.manual_seed(1)
    for _ in range(steps):
        ids = torch.randint(0, 96, (8, 30))
        loss = torch.nn.functional.cross_entropy(
            net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
        )
        optim.zero_grad()
        loss.backward()
        optim.step()
    return tensors_of(net)


def noisy(base: Tensors, size: float) -> Tensors:
    rng = np.random.default_rng(2)
    return {
        name: value + (size * rng.standard_normal(value.shape)).astype(np.float32)
        for name, value in base.items()
    }


def findings(tmp_path: Path, base: Tensors, ours: Tensors, **known: Tensors) -> list[FindingMade]:
    folders = {name: save_weights(tmp_path / name, value) for name, value in known.items()}
    return weight_findings(
        3,
        Weights.of(save_weights(tmp_path / "ours", ours)),
        base=Weights.of(save_weights(tmp_path / "base", base)),
        references={name: Weights.of(folder) for name, folder in folders.items()},
        deadline=FOREVER,
    )


@pytest.mark.parametrize("size", [1e-7, 1e-6, 1e-5, 1e-4])
def test_noise_is_no_training(tmp_path: Path, base: Tensors, size: float) -> None:
    (finding,) = findings(tmp_path, base, noisy(base, size))
    assert (finding.rule, finding.severity) == ("base_plus_noise", "breach")
    assert finding.submission_id == 3


def test_large_noise_is_a_warning(tmp_path: Path, base: Tensors) -> None:
    (finding,) = findings(tmp_path, base, noisy(base, 1e-2))
    assert (finding.rule, finding.severity) == ("base_plus_noise", "warning")


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("lr", [1e-7, 1e-6, 1e-4])
@pytest.mark.parametrize("steps", [1, 5])
def test_training_is_never_taken_for_noise(
    tmp_path: Path, base: Tensors, lr: float, steps: int, optimizer: str
) -> None:
    ours = trained(base, lr=lr, steps=steps, optimizer=optimizer)
    found = findings(tmp_path, base, ours)
    # SGD at 1e-7 moves weights by less than a rounding step: nothing can be told of that.
    assert all(finding.severity == "warning" for finding in found)
    change = measure_change(
        Weights.of(tmp_path / "ours"), Weights.of(tmp_path / "base"), deadline=FOREVER
    )
    if change.changed_share > 0.5:
        assert not found
        assert change.structure > 50


def test_training_of_one_matrix_or_of_adapters(tmp_path: Path, base: Tensors) -> None:
    rng = np.random.default_rng(3)
    adapter = rng.standard_normal((128, 4)) @ rng.standard_normal((4, 64)) * 1e-6
    for number, name in enumerate(("first.weight", "second.weight")):
        change = adapter if name == "first.weight" else adapter.T
        ours = {**base, name: base[name] + change.astype(np.float32)}
        assert not [
            f for f in findings(tmp_path / str(number), base, ours) if f.severity == "breach"
        ]


def test_a_scaled_copy(tmp_path: Path, base: Tensors) -> None:
    ours = {name: value * np.float32(1.0001) for name, value in base.items()}
    (finding,) = findings(tmp_path, base, ours)
    assert finding.severity == "breach"
    assert "scaled" in finding.summary


@pytest.mark.parametrize(
    ("share", "severity"), [(1.0, "breach"), (0.6, "breach"), (0.2, "warning")]
)
def test_known_checkpoints(tmp_path: Path, base: Tensors, share: float, severity: str) -> None:
    instruct = trained(base, lr=1e-3, steps=20)
    ours = {
        name: (value + share * (instruct[name] - value)).astype(np.float32)
        for name, value in base.items()
    }
    found = findings(tmp_path, base, ours, instruct=instruct)
    (finding,) = [f for f in found if f.rule == "known_checkpoint"]
    assert finding.severity == severity
    assert "instruct" in finding.summary


def test_own_training_is_not_near_a_known_checkpoint(tmp_path: Path, base: Tensors) -> None:
    rng = np.random.default_rng(5)
    instruct = {n: v + rng.standard_normal(v.shape).astype(np.float32) for n, v in base.items()}
    assert not findings(tmp_path, base, trained(base, lr=1e-3, steps=5), instruct=instruct)


def test_another_precision_alone_is_no_change() -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    halves = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16).to(torch.float64).numpy()
    assert np.array_equal(rounded(values.astype(np.float32).astype(np.float64), "BF16"), halves)
    assert np.array_equal(rounded(values, "F16"), values.astype(np.float16).astype(np.float64))


def test_other_shapes_are_left_out(tmp_path: Path, base: Tensors) -> None:
    other = {"embed.weight": np.zeros((3, 3), dtype=np.float32)}
    ours = Weights.of(save_weights(tmp_path / "a", base))
    theirs = Weights.of(save_weights(tmp_path / "b", other))
    assert comparable(ours, theirs) == []


def test_submissions_of_a_run(tmp_path: Path, base: Tensors) -> None:
    scene = AuditScene(tmp_path)
    folder = save_weights(tmp_path / "model", base)
    save_weights(scene.sweep.snapshots / "noise", noisy(base, 1e-6))
    save_weights(scene.sweep.snapshots / "good", trained(base, lr=1e-4, steps=3))
    (scene.sweep.snapshots / "broken").mkdir()
    scene.submit(1, digest="base", unchanged=True)
    scene.submit(2, digest="noise")
    scene.submit(3, digest="good")
    scene.submit(4, digest="noise")
    scene.submit(5, digest="gone")
    scene.submit(6, digest="broken")
    audit = scene.audit(
        base=str(folder), config=AuditConfig(name="a", references={"x": tmp_path / "no"})
    )
    assert audit.invalid_submissions == {2, 4}
    assert not audit.is_invalid
    assert [f.submission_id for f in scene.findings(audit, "unchanged_base")] == [1]
    (told,) = scene.findings(audit, "not_checked")
    for word in ("known checkpoint x", "submission 5", "submission 6"):
        assert word in told.summary

    for finding in audit.findings:
        scene.add(finding)
    for path in (scene.sweep.snapshots / "noise").iterdir():
        path.unlink()
    (scene.sweep.snapshots / "noise").rmdir()
    again = scene.audit(base=str(folder))
    assert again.invalid_submissions == {2, 4}, "what was found while the weights were there stays"


def test_weights_that_the_sweeps_rule_did_not_keep_are_no_loss(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    scene.submit(1, digest="a" * 64)
    scene.submit(2, digest="b" * 64)
    removed = f"removed 1 snapshot, 5 bytes: {'a' * 12} (submission 1)"
    scene.add(Note(level="info", topic="retention", message=removed))
    (found,) = scene.findings(scene.audit(), Rule.NOT_CHECKED)
    quotes = [piece.quote for piece in found.evidence]
    assert [quote for quote in quotes if quote.startswith("the weights")] == [
        "the weights of submission 1 were not looked at: "
        "by the sweep's rule, sink.keep_models, they were not kept",
        "the weights of submission 2 are not there",
    ]


def test_weights_that_cannot_be_compared_are_told(tmp_path: Path, base: Tensors) -> None:
    scene = AuditScene(tmp_path)
    other = {f"other.{name}": value for name, value in base.items()}
    save_weights(scene.sweep.snapshots / "other", other)
    scene.submit(1, digest="other")
    references = {"x": save_weights(tmp_path / "x", other)}
    audit = scene.audit(
        base=str(save_weights(tmp_path / "model", base)),
        config=AuditConfig(name="a", references=references),
    )
    (told,) = scene.findings(audit, Rule.NOT_CHECKED)
    for what in ("weights of submission 1 have", f"known checkpoint x at {references['x']} has"):
        assert f"{what} nothing in common with" in told.summary


def torch_dtypes(base: Tensors, folder: Path) -> Path:
    """A checkpoint in all floating-point types, with tensors that have no sample or no block."""
    types = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    tensors = {
        name: torch.from_numpy(value).to(types[number % len(types)])
        for number, (name, value) in enumerate(sorted(base.items()))
    }
    more = {
        "ids": torch.arange(12),
        "none": torch.zeros(0, 4),
        "one": torch.tensor(3.0),
        "deep": torch.rand(20, 16, 3),
        "large": torch.rand(300, 200),
    }
    folder.mkdir()
    save_torch(tensors | more, folder / "model.safetensors")
    return folder


def test_what_is_kept_of_weights_is_all_that_is_looked_at(tmp_path: Path, base: Tensors) -> None:
    whole = Weights.of(torch_dtypes(base, tmp_path / "model"))
    whole.keep(tmp_path / "kept")
    kept = Weights.kept(tmp_path / "kept")

    names = comparable(whole, whole)
    assert comparable(whole, kept) == names
    assert set(whole.tensors) - set(kept.tensors) == {"ids", "none"}
    blocks = [name for name in names if whole.tensors[name].has_block]
    assert {"large", "deep", "first.weight"} <= set(blocks)
    for name in names:
        assert kept.tensors[name].has_block == whole.tensors[name].has_block
        assert np.array_equal(kept.sample(name), whole.sample(name))
    for name in blocks:
        assert np.array_equal(kept.block(name), whole.block(name))


def test_samples_of_another_kind_are_refused(
    tmp_path: Path, base: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    Weights.of(save_weights(tmp_path / "model", base)).keep(tmp_path / "kept")
    monkeypatch.setattr("rl_bench.audit.weight_samples._SAMPLING", [1, 2, 3, 4])
    with pytest.raises(ValueError, match="other samples"):
        Weights.kept(tmp_path / "kept")


@pytest.mark.parametrize(
    "text", [b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\x01" + bytes(7) + b"3", b"", b"\x00" * 99]
)
def test_damaged_samples_are_a_value_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "kept").write_bytes(text)
    with pytest.raises(ValueError):  # noqa: PT011  that it is no other is what matters
        Weights.kept(tmp_path / "kept")


def test_a_submission_whose_weights_went_is_judged_like_one_whose_weights_stayed(
    tmp_path: Path, base: Tensors
) -> None:
    scene = AuditScene(tmp_path)
    known = trained(base, lr=1e-3, steps=20)
    towards = {name: (value + 0.6 * (known[name] - value)) for name, value in base.items()}
    ours = {
        "noise": noisy(base, 1e-6),
        "good": trained(base, lr=1e-4, steps=3),
        "scaled": {name: value * np.float32(1.0001) for name, value in base.items()},
        "towards": {name: value.astype(np.float32) for name, value in towards.items()},
    }
    for number, (digest, tensors) in enumerate(ours.items(), 1):
        save_weights(scene.sweep.snapshots / digest, tensors)
        scene.submit(number, digest=digest)
    config = AuditConfig(name="a", references={"known": save_weights(tmp_path / "known", known)})
    model = str(save_weights(tmp_path / "model", base))
    stayed = scene.audit(base=model, config=config)
    assert stayed.invalid_submissions == {1, 3, 4}

    retention = Retention(
        scene.sweep.snapshots,
        spec=scene.spec,
        run_id="r",
        keep_models="none",
        base_hash="base",
    )
    retention.remove({digest: (number,) for number, digest in enumerate(ours, 1)})
    assert not list(scene.sweep.snapshots.iterdir())
    went = scene.audit(base=model, config=config)
    assert went.findings == stayed.findings
    assert not [f for f in scene.findings(went, Rule.NOT_CHECKED) if "submission" in f.summary]

    (scene.sweep.root / KEPT / "noise").write_bytes(b"\0" * 20)
    for finding in stayed.findings:
        scene.add(finding)
    damaged = scene.audit(base=model, config=config)
    assert damaged.invalid_submissions == {1, 3, 4}, "what was found before stays"
    assert "submission 1" in scene.findings(damaged, Rule.NOT_CHECKED)[0].summary
