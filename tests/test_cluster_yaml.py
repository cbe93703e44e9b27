"""The cluster files: valid by Ray's own schema, consistent, closed to the world, no secrets."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.node_provider_availability_tracker import (
    NodeAvailabilityRecord,
    NodeAvailabilitySummary,
)
from ray.autoscaler._private.resource_demand_scheduler import get_nodes_for
from ray.autoscaler._private.util import prepare_config, validate_config

from actors.factory import KINDS as PLACES
from actors.spot_first import score
from rl_bench.compose import compose
from rl_bench.config import Experiment

ROOT = Path(__file__).resolve().parents[1]
FILES = ("cluster.yaml", "cluster-gcp.yaml")
KINDS = ("grader", "trainer", "rollout")
COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)
Config = dict[str, Any]


@pytest.fixture(params=FILES)
def config(request: pytest.FixtureRequest) -> Config:
    loaded: Config = yaml.safe_load((ROOT / request.param).read_text())
    return loaded


@pytest.fixture(scope="module")
def study() -> Experiment:
    """The largest published study, as it runs on a cluster."""
    return compose(["+experiment=8b_base"]).experiment


def test_ray_accepts_it(config: Config) -> None:
    prepared = prepare_config(config)

    validate_config(prepared)
    assert prepared["head_setup_commands"][0] == config["setup_commands"][0]


def test_workers_start_from_zero_and_within_a_limit(config: Config) -> None:
    types = config["available_node_types"]
    workers = {name: kind for name, kind in types.items() if name != config["head_node_type"]}

    assert types[config["head_node_type"]]["max_workers"] == 0
    assert all(kind["min_workers"] == 0 for kind in workers.values())
    assert all(0 < kind["max_workers"] <= config["max_workers"] for kind in workers.values())
    assert config["idle_timeout_minutes"] <= 15


def test_the_head_and_graders_offer_no_cpu_to_runs(config: Config) -> None:
    offered = {name: kind["resources"] for name, kind in config["available_node_types"].items()}

    assert offered["head"] == {"CPU": 0, "head": 1}
    assert {name for name, each in offered.items() if each["CPU"]} == {
        "trainer_spot",
        "trainer_on_demand",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_spot_and_on_demand_are_the_same_machine(config: Config, kind: str) -> None:
    types = config["available_node_types"]
    spot, full = types[f"{kind}_spot"], types[f"{kind}_on_demand"]

    assert spot["resources"] == full["resources"]
    assert kind in spot["resources"]
    machine = "InstanceType" if config["provider"]["type"] == "aws" else "machineType"
    assert spot["node_config"][machine] == full["node_config"][machine]
    assert _is_spot(spot["node_config"])
    assert not _is_spot(full["node_config"])


def _is_spot(node: Mapping[str, Any]) -> bool:
    return (
        node.get("InstanceMarketOptions") == {"MarketType": "spot"}
        or node.get("scheduling", {}).get("provisioningModel") == "SPOT"
    )


def test_the_published_study_fits(config: Config, study: Experiment) -> None:
    types = config["available_node_types"]
    cluster, grader = study.cluster, study.grader

    trainer = types["trainer_spot"]["resources"]
    assert trainer["GPU"] == cluster.gpus_per_run  # all of them: a run has its GPUs to itself
    assert trainer["CPU"] >= cluster.cpus_per_run
    assert types["grader_spot"]["resources"]["GPU"] >= grader.gpus_per_grader
    assert types["grader_spot"]["max_workers"] >= grader.num_graders
    rollout = types["rollout_spot"]
    assert rollout["resources"]["rollout"] * rollout["max_workers"] >= grader.num_rollout_workers


def summary(**available: bool) -> NodeAvailabilitySummary:
    return NodeAvailabilitySummary(
        {
            name: NodeAvailabilityRecord(name, is_available, 0.0, None)
            for name, is_available in available.items()
        }
    )


def next_nodes(
    config: Config, *demands: Mapping[str, float], known: NodeAvailabilitySummary
) -> dict[str, int]:
    """What the autoscaler would start for these demands, by its own planner."""

    def rate(node: Any, resources: Any, name: str) -> Any:  # noqa: ANN401  Ray's own types
        return score(node, resources, name, node_availability_summary=known)

    types = prepare_config(config)["available_node_types"]
    asked: list[Any] = [dict(each) for each in demands]
    added, left = get_nodes_for(types, {}, "head", 20, asked, rate)
    assert not left
    return dict(added)


RUN = {"CPU": 16.0, "GPU": 4.0}
GRADER = {"GPU": 1.0}


def test_spot_is_first_and_on_demand_when_spot_was_refused(config: Config) -> None:
    demand = {**RUN, "trainer": 1.0}

    assert next_nodes(config, demand, known=summary()) == {"trainer_spot": 1}
    refused = summary(trainer_spot=False)
    assert next_nodes(config, demand, known=refused) == {"trainer_on_demand": 1}
    neither = summary(trainer_spot=False, trainer_on_demand=False)
    assert next_nodes(config, demand, known=neither) == {"trainer_spot": 1}
    again = summary(trainer_spot=True, trainer_on_demand=True)
    assert next_nodes(config, demand, known=again) == {"trainer_spot": 1}


def test_actors_that_name_no_kind_still_get_fitting_nodes(config: Config) -> None:
    assert next_nodes(config, GRADER, GRADER, known=summary()) == {"grader_spot": 2}
    assert next_nodes(config, RUN, RUN, known=summary()) == {"trainer_spot": 2}


def test_each_kind_of_actor_has_its_kind_of_node(config: Config) -> None:
    types = config["available_node_types"]
    for asked in PLACES.values():
        [resource] = asked
        homes = [name for name, kind in types.items() if resource in kind.get("resources", {})]
        assert homes, resource
        assert all(name.startswith(resource) for name in homes)


def test_what_no_node_has_is_started_nowhere(config: Config) -> None:
    types = prepare_config(config)["available_node_types"]
    for node in types.values():
        asked: list[Any] = [{"GPU": 16.0}]
        found = score(node["resources"], asked, "x_spot", node_availability_summary=summary())
        assert found is None


def test_no_port_is_open_to_the_world(config: Config) -> None:
    assert "0.0.0.0" not in yaml.safe_dump(config)  # noqa: S104  it must not
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]
    for node in config["available_node_types"].values():
        if config["provider"]["type"] == "aws":
            # Named: a group that Ray makes itself lets ssh in from everywhere.
            assert node["node_config"]["SecurityGroupIds"]
            assert node["node_config"]["MetadataOptions"]["HttpTokens"] == "required"
        else:
            assert "subnetwork" in node["node_config"]["networkInterfaces"][0]


def test_every_ray_asks_for_the_token(config: Config) -> None:
    environment = next(each for each in config["setup_commands"] if "node.sh" in each)
    assert "RAY_AUTH_MODE=token" in environment
    assert "RAY_AUTH_TOKEN_PATH=$HOME/.ray/auth_token" in environment
    assert "/home/ubuntu/.ray/auth_token" in config["file_mounts"]
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert all(command.startswith(". ~/.rl_bench/node.sh") for command in config[key])


def test_no_secret_and_no_big_folder_travels_in_the_file(config: Config) -> None:
    assert not re.search(r"(sk-|AKIA|_KEY=|TOKEN=\w)", yaml.safe_dump(config))
    for local in config["file_mounts"].values():
        assert Path(local).suffix or Path(local).name == "auth_token", f"{local} is a folder"
    assert {".venv", "results", ".git"} <= set(config["rsync_exclude"])


@pytest.mark.parametrize("key", COMMANDS)
def test_a_shell_can_read_the_commands(config: Config, key: str) -> None:
    for command in config[key]:
        # As Ray runs it: within parentheses.
        done = subprocess.run(
            ["bash", "-n", "-c", f"({command})"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)


def test_the_environment_file_can_be_read(config: Config, tmp_path: Path) -> None:
    (tmp_path / ".rl_bench").mkdir()
    (tmp_path / ".rl_bench" / "cluster.env").write_text("SOME_KEY=value\n")
    command = next(each for each in config["setup_commands"] if each.startswith("printf"))
    shell = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-c", command], env=shell, check=True)

    asked = ". ~/.rl_bench/node.sh; env"
    done = subprocess.run(
        ["bash", "-c", asked], env=shell, capture_output=True, text=True, check=True
    )

    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert found["SOME_KEY"] == "value"
    assert found["PYTHONPATH"] == str(tmp_path / "rl_bench")
    assert found["PATH"].startswith(str(tmp_path / "rl_bench/.venv/bin:"))
    assert found["RL_BENCH_RESULTS"] == "/mnt/rl_bench/results"
    assert found["RAY_AUTOSCALER_UTILIZATION_SCORER"] == "actors.spot_first.score"


def test_both_clouds_are_set_up_alike() -> None:
    aws, gcp = (yaml.safe_load((ROOT / name).read_text()) for name in FILES)

    for key in ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands"):
        assert aws[key] == gcp[key]
    assert set(aws["available_node_types"]) == set(gcp["available_node_types"])
    for name, node in aws["available_node_types"].items():
        assert node["resources"] == gcp["available_node_types"][name]["resources"]
