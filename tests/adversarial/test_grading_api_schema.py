"""The grading API does what its OpenAPI description says, whatever is sent to it."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import given
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rl_bench.grading_api import create_app
from tests.adversarial.bounds import FEW
from tests.rl_bench.grading_scene import Scene, make_spec

# Left out on purpose: a method that a route lacks is a 404 like all that is not there, not a 405;
# and a well-formed request may name a checkpoint that does not exist.
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
ROUTES = ("submit", "submissions/{submission_id}", "scores", "time", "health")


@pytest.fixture(scope="module", params=["one task", "multi"])
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    names = ("a", "b") if request.param == "multi" else ("alfworld",)
    with Scene(tmp_path_factory.mktemp("api"), make_spec(*names)).serving() as scene:
        path = scene.checkpoint("m", value=7)
        assert httpx.post(f"{scene.server.url}/submit", json={"model_path": path}).is_success
        yield scene


def described(scene: Scene) -> dict[str, Any]:
    """The description, of paths without the token, which the base URL holds."""
    raw = create_app(scene.desk, token=scene.server.token, base_url=scene.server.url).openapi()
    for path in list(raw["paths"]):
        operations = raw["paths"][path.replace("/{token_given}", "")] = raw["paths"].pop(path)
        for operation in operations.values():
            kept = [p for p in operation["parameters"] if p["name"] != "token_given"]
            operation["parameters"] = kept
    return raw


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_is_one_that_is_described(scene: Scene, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_dict(described(scene))
    seen: set[str] = set()

    def play(operation: Any) -> None:  # noqa: ANN401  schemathesis' own
        @FEW
        @given(case=operation.as_strategy(generation_mode=mode))
        def each(case: Any) -> None:  # noqa: ANN401  likewise
            seen.add(case.operation.path)
            case.call_and_validate(base_url=scene.server.url, checks=CHECKS)

        each()

    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        has_input = operation.body or any(operation.iter_parameters())
        if mode is GenerationMode.POSITIVE or has_input:
            play(operation)
    expected = ROUTES if mode is GenerationMode.POSITIVE else ROUTES[:2]
    assert seen == {f"/{route}" for route in expected}


@pytest.mark.parametrize(
    "path",
    ["abc", "1.5", "-1", "0", "9" * 40, "9" * 5000, "%00", "%ff", "1/", "1/2", "null", "NaN", "１"],
)
def test_what_is_no_submission_is_the_one_refusal(scene: Scene, path: str) -> None:
    answer = httpx.get(f"{scene.server.url}/submissions/{path}")

    assert answer.status_code == 404
    assert answer.json()["reason"] in ("not_found", "unknown_submission")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST", "BREW"])
def test_no_other_method_does_anything(scene: Scene, method: str) -> None:
    before = httpx.get(f"{scene.server.url}/scores").json()
    for path in ("scores", "submissions/1", "time", "health", "openapi.json", "docs"):
        answer = httpx.request(method, f"{scene.server.url}/{path}")
        assert (answer.status_code, answer.json()["reason"]) == (404, "not_found")
    assert httpx.get(f"{scene.server.url}/scores").json() == before
