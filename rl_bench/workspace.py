"""The folder that an agent works in, and the environment that tells it so.

    description.md       the task: goal, data, metric
    instructions.md      rules of the mode, budget, grading API, what a submission must be
    run_meta.json        the same for programs, and the clock
    scores.json          a copy of the scores, refreshed after each of them
    data/                train data, read-only; a folder a task in mode multi
    models/<base>        the base model, read-only
    code/  output/       the agent's own

Nothing here is the truth: ledger, snapshots and code history lie outside, and what the agent
changes in its copies is noticed, not believed. Each attempt at a run gets a fresh workspace.
"""

import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from rl_bench.agents.launch import (
    Values,
    command_line,
    search_path,
    variables,
    write_home_files,
)
from rl_bench.checkpoint import content_hash
from rl_bench.checkpoint_files import checkpoint_files
from rl_bench.clock import RunClock
from rl_bench.clone import can_reflink, clone_file, make_read_only, open_regular, remove_tree
from rl_bench.config import RunSpec
from rl_bench.errors import SubmissionError, WorkspaceError
from rl_bench.instructions import describe, instruct, listing, prompt
from rl_bench.paths import RunPaths
from rl_bench.sandbox.base import Launch
from rl_bench.tasks.base import Task
from rl_bench.whole_file import write_whole

MAX_BASE_COPY_BYTES = 512 * 1024 * 1024
"""A base model up to this is copied where it cannot be reflinked; a larger one is linked."""
PASSED_ON = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Of the runner's environment the agent gets these, which say what hardware is its own."""
CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class _Content:
    """What a file held when it was written for the agent."""

    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BaseCheck:
    """Whether the base model is what it was: the shared original, and the agent's view of it."""

    original_intact: bool
    view_intact: bool


@dataclass(slots=True)
class Workspace:
    """A run's workspace; made by `create`.

    Attributes:
        root: The folder, resolved.
        model: The agent's view of the base model.
        base_model: The shared original.
        base_hash: Content hash of the original when the workspace was made.
        prompt: What the agent is started with.
    """

    root: Path
    spec: RunSpec
    paths: RunPaths
    model: Path
    base_model: Path
    base_hash: str
    prompt: str = ""
    _written: dict[str, "_Content"] = field(default_factory=dict)
    _clock: RunClock | None = None
    _started_utc: datetime | None = None
    _refreshing: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @classmethod
    def create(
        cls,
        paths: RunPaths,
        spec: RunSpec,
        *,
        tasks: Sequence[Task],
        base_model: Path,
        base_hash: str | None = None,
    ) -> Self:
        """Lays a fresh workspace out, in place of one that is there.

        Args:
            paths: The run's paths.
            spec: The run.
            tasks: Its tasks, in the order of ``spec.tasks``.
            base_model: A checkpoint folder.
            base_hash: Its content hash, if it is known.

        Raises:
            WorkspaceError: The disk refused.
            PreflightError: A task's data are missing.
        """
        try:
            remove_tree(paths.workspace)
            paths.workspace.mkdir(parents=True)
            root = paths.workspace.resolve()
            workspace = cls(
                root=root,
                spec=spec,
                paths=paths,
                model=root / "models" / spec.model.name,
                base_model=base_model.resolve(),
                base_hash=base_hash or content_hash(base_model),
            )
            workspace._fill(tasks)
        except OSError as error:
            raise WorkspaceError(
                f"the workspace {paths.workspace} could not be made: {error}",
                cure="Check free space and permissions of the results folder",
            ) from error
        return workspace

    @property
    def code(self) -> Path:
        return self.root / "code"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def home(self) -> Path:
        return self.root / ".home"

    @property
    def tmp(self) -> Path:
        return self.root / ".tmp"

    def launch(
        self,
        grading_url: str,
        *,
        agents_dir: Path,
        driver_url: str = "",
        num_threads: int = 1,
        message: str = "",
    ) -> Launch:
        """The agent's command as it is started; writes its files below HOME the first time.

        Args:
            grading_url: The run's grading API, token included.
            agents_dir: The folder of the published CLIs.
            driver_url: The gateway; empty without a driver.
            num_threads: OMP threads of each process that the agent starts.
            message: It goes on with its session, and is told this.

        Raises:
            WorkspaceError: A file could not be written, or a value is too long for the system.
        """
        agent = self.spec.agent
        values = self._values(driver_url, prompt=message or self.prompt)
        if not message:
            write_home_files(agent, values)
        return Launch(
            argv=command_line(agent, values, agents_dir=agents_dir, resumes=bool(message)),
            env={
                **self._environment(grading_url, num_threads=num_threads),
                "PATH": search_path(agent, agents_dir=agents_dir),
                **variables(agent, values),
            },
            cwd=self.root,
        )

    def environment(self, grading_url: str, *, num_threads: int = 1) -> dict[str, str]:
        """The whole environment of an agent without a driver.

        Of the runner's own only `PASSED_ON` is in it.

        Args:
            grading_url: The run's grading API, token included.
            num_threads: OMP threads of each process that the agent starts.
        """
        agent = self.spec.agent
        return {
            **self._environment(grading_url, num_threads=num_threads),
            "PATH": search_path(agent),
            **variables(agent, self._values("", prompt=self.prompt)),
        }

    def argv(self) -> tuple[str, ...]:
        """The command of an agent without a driver, with its placeholders filled in."""
        return command_line(self.spec.agent, self._values("", prompt=self.prompt))

    def _values(self, driver_url: str, *, prompt: str) -> Values:
        return Values(
            workspace=self.root,
            home=self.home,
            prompt=prompt,
            driver_model=self.spec.driver.model_id,
            driver_url=driver_url,
        )

    def _environment(self, grading_url: str, *, num_threads: int) -> dict[str, str]:
        spec = self.spec
        inherited = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return {
            **inherited,
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            # The first makes Gymnasium know the environments' ids; see envs/startup.
            "PYTHONPATH": os.pathsep.join((str(CHECKOUT / "envs" / "startup"), str(CHECKOUT))),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": str(num_threads),
            "OMP_WAIT_POLICY": "PASSIVE",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(self.home / "huggingface"),
            "TOKENIZERS_PARALLELISM": "false",
            "TASK": ",".join(task.name for task in spec.tasks),
            "BASE_MODEL": spec.model.name,
            "WORKSPACE": str(self.root),
            "MODEL_PATH": str(self.model),
            "DATA_PATH": str(self.data),
            "OUTPUT_DIR": str(self.output),
            "GRADING_SERVER_URL": grading_url,
            "AGENT_SETTINGS": json.dumps(spec.agent.settings),
        }

    def start_clock(self, clock: RunClock) -> None:
        """Starts ``clock`` and writes it into `run_meta.json`: call it just before the agent."""
        clock.start()
        self._clock, self._started_utc = clock, datetime.now(UTC)
        self._put("run_meta.json", self._meta())

    def refresh(self, scores: Mapping[str, object]) -> tuple[str, ...]:
        """Writes `scores.json` and `run_meta.json` anew.

        Returns:
            What the agent had changed in the old ones or done to hinder the new ones, in words.
        """
        with self._refreshing:
            changed = [
                f"the agent changed {name}"
                for name in ("scores.json", "run_meta.json")
                if self._is_changed(name)
            ]
            for name, content in (("scores.json", scores), ("run_meta.json", self._meta())):
                try:
                    self._put(name, content)
                except OSError as error:
                    changed.append(f"{name} could not be written: {error}")
        return tuple(changed)

    def tampered(self) -> tuple[str, ...]:
        """Files written for the agent, train data among them, that are not as they were."""
        return tuple(sorted(name for name in self._written if self._is_changed(name)))

    def verify_base(self) -> BaseCheck:
        """Compares the base model, original and view, with what it was at the start."""
        original = _hash_or_none(self.base_model) == self.base_hash
        # A file that the agent blew up is not read to its end.
        same_sizes = not original or _sizes(self.model) == _sizes(self.base_model)
        return BaseCheck(
            original_intact=original,
            view_intact=same_sizes and _hash_or_none(self.model) == self.base_hash,
        )

    def _fill(self, tasks: Sequence[Task]) -> None:
        for name in ("code", "output", "data", "models", ".home", ".tmp"):
            (self.root / name).mkdir()
        for task in tasks:
            folder = self.data / task.name if len(tasks) > 1 else self.data
            folder.mkdir(exist_ok=True)
            task.write_train_data(folder)
        self._view_base()
        make_read_only(self.data)
        for path in sorted(self.data.rglob("*")):
            if path.is_file():
                self._written[path.relative_to(self.root).as_posix()] = _content_of(path)
        description, instructions = describe(self.spec, tasks), instruct(self.spec)
        self._put_text("description.md", description)
        self._put_text("instructions.md", instructions)
        self._put("run_meta.json", self._meta())
        self._put("scores.json", {})
        self.prompt = prompt(
            self.spec,
            description=description,
            instructions=instructions,
            listing=listing(self.root),
        )

    def _view_base(self) -> None:
        files = checkpoint_files(self.base_model)
        size = sum(path.stat().st_size for path in files)
        parent = self.model.parent
        if size > MAX_BASE_COPY_BYTES and not can_reflink(parent, source=self.base_model):
            self.model.symlink_to(self.base_model)
            return
        for path in files:
            target = self.model / path.relative_to(self.base_model)
            target.parent.mkdir(parents=True, exist_ok=True)
            clone_file(path, target)
        make_read_only(self.model)

    def _meta(self) -> dict[str, object]:
        spec = self.spec
        return {
            "agent": spec.agent.name,
            "driver": spec.driver.name,
            "mode": spec.mode.name,
            "seed": spec.seed,
            "base_model": spec.model.name,
            "max_model_len": spec.model.max_model_len,
            "tasks": [
                {
                    "name": task.name,
                    "kind": task.kind,
                    "protocol": task.protocol,
                    "max_steps": task.max_steps,
                    "max_tokens": task.max_tokens,
                }
                for task in spec.tasks
            ],
            "budget_s": spec.budget.wall_clock_s,
            "max_submissions": spec.budget.max_submissions,
            "clock": self._clock_meta(),
        }

    def _clock_meta(self) -> dict[str, object] | None:
        clock, started = self._clock, self._started_utc
        if clock is None or started is None:
            return None
        remaining_s = clock.remaining_s
        return {
            "started_at": started.isoformat(),
            "deadline_at": (datetime.now(UTC) + timedelta(seconds=remaining_s)).isoformat(),
            "used_s": round(clock.used_s, 3),
            "remaining_s": round(remaining_s, 3),
            "queue_credit_s": round(clock.queue_credit_s, 3),
        }

    def _put(self, name: str, content: Mapping[str, object]) -> None:
        self._put_text(name, json.dumps(content, indent=2) + "\n")

    def _put_text(self, name: str, text: str) -> None:
        # Written outside and moved in: a link that the agent put in its place is replaced, not
        # followed.
        data = text.encode()
        write_whole(self.root / name, data, aside=self.paths.root)
        self._written[name] = _Content(len(data), hashlib.sha256(data).hexdigest())

    def _is_changed(self, name: str) -> bool:
        try:
            return _content_of(self.root / name, before=self._written[name]) != self._written[name]
        except OSError:
            return True


def _content_of(path: Path, *, before: _Content | None = None) -> _Content:
    """The file's size and digest; of another size than ``before`` it is not read at all.

    Raises:
        OSError: It is a link or no regular file, or cannot be read.
    """
    with open_regular(path) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        if before is not None and num_bytes != before.num_bytes:
            return _Content(num_bytes, "")
        return _Content(num_bytes, hashlib.file_digest(file, "sha256").hexdigest())


def _hash_or_none(folder: Path) -> str | None:
    try:
        return content_hash(folder)
    except (SubmissionError, OSError):
        return None


def _sizes(folder: Path) -> dict[str, int] | None:
    """Sizes of the checkpoint's files by name: what differs in them need not be hashed."""
    try:
        files = checkpoint_files(folder)
        return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    except OSError:
        return None
