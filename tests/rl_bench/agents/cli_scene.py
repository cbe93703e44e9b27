"""A published CLI in a real workspace: gateway, scripted driver, grading API, its own process."""

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rl_bench.agents.program import binary_of
from rl_bench.agents.stream_watch import StreamWatch
from rl_bench.compose import compose_agent, compose_paths
from rl_bench.config import AgentConfig, DriverConfig
from rl_bench.drivers.scripted import ScriptedDriver
from rl_bench.drivers.session import Session, load_session
from rl_bench.events import AgentEvent, DriverCall
from rl_bench.gateway.gateway import Gateway
from rl_bench.process.agent_process import AgentExit, AgentProcess
from rl_bench.sandbox.base import Launch
from tests.needs import needs
from tests.rl_bench.grading_scene import Scene, make_spec

AGENTS_DIR = compose_paths([]).agents
SCRIPTED = DriverConfig(name="scripted", kind="scripted", session="smoke", model_id="scripted-1")


def installed(name: str) -> AgentConfig:
    """The agent; the test skips, or fails, where its CLI is not."""
    agent = compose_agent(name)
    assert agent is not None
    needs(name, is_there=is_installed(name), cure=f"python -m rl_bench.agents install {name}")
    return agent


def is_installed(name: str) -> bool:
    """Whether the agent's CLI is here."""
    agent = compose_agent(name)
    return agent is not None and binary_of(agent, AGENTS_DIR) is not None


@dataclass(slots=True, kw_only=True)
class Played:
    """What a CLI did in one session."""

    exit_: AgentExit
    launch: Launch
    events: list[AgentEvent]
    calls: list[DriverCall]
    stdout: bytes
    stderr: str
    scene: Scene = field(repr=False)


def play(
    root: Path, agent: AgentConfig, *, session: Session | None = None, again: str = ""
) -> Played:
    """Runs the agent once against the scripted driver, and once more if told how to go on."""
    spec = make_spec(agent=agent).model_copy(update={"driver": SCRIPTED})
    api = SCRIPTED.api_for(agent)
    assert api is not None
    calls: list[DriverCall] = []
    events: list[AgentEvent] = []
    with ExitStack() as stack:
        scene = stack.enter_context(Scene(root, spec).serving())
        driver = stack.enter_context(ScriptedDriver(session or load_session("smoke")))
        gateway = stack.enter_context(
            Gateway(
                SCRIPTED,
                api=api,
                base_url=driver.url_for(api),
                key=driver.key,
                max_calls=60,
                used_s=lambda: scene.clock.used_s,
                on_call=calls.append,
            )
        )
        watch = stack.enter_context(
            StreamWatch(
                scene.paths.logs / "agent.stdout",
                rules=agent.stream,
                budget_used_s=lambda: scene.clock.used_s,
                on_event=events.append,
            )
        )
        for message in ("", again)[: 2 if again else 1]:
            launch = scene.workspace.launch(
                scene.server.url, agents_dir=AGENTS_DIR, driver_url=gateway.url, message=message
            )
            watch.forget_result()
            exit_ = run(launch, scene)
        assert driver.key not in str(launch)
    logs = scene.paths.logs
    return Played(
        exit_=exit_,
        launch=launch,
        events=events,
        calls=calls,
        stdout=(logs / "agent.stdout").read_bytes(),
        stderr=(logs / "agent.stderr").read_text(errors="replace"),
        scene=scene,
    )


def run(launch: Launch, scene: Scene) -> AgentExit:
    """Runs a command to its end; it has no terminal and nothing of this process's environment."""
    assert not set(os.environ) & {name for name in launch.env if name.startswith("PYTEST_")}
    process = AgentProcess.start(
        launch.argv,
        env=launch.env,
        cwd=launch.cwd,
        stdout=scene.paths.logs / "agent.stdout",
        stderr=scene.paths.logs / "agent.stderr",
    )
    return process.wait(remaining_s=lambda: scene.clock.remaining_s, grace_s=5.0)
