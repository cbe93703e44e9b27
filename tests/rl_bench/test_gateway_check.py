"""What is found out about a driver before a run, without spending anything."""

import socket
from contextlib import ExitStack
from time import monotonic

import pytest

from rl_bench.config import Api, BudgetConfig
from rl_bench.errors import DriverError, PreflightError
from rl_bench.gateway.check import check_driver, doubtful_version, find_key
from rl_bench.gateway.reach import find_silent, is_loopback
from rl_bench.gateway.routes import check_base_url, upstream_url
from tests.rl_bench.gateway_scene import KEY, make_driver

DRIVER = make_driver(Api.OPENAI, key_variable="THE_KEY")
CAPPED = BudgetConfig(name="b", wall_clock_s=1, max_driver_usd=1)


def test_the_key_is_found() -> None:
    assert find_key(DRIVER, {"THE_KEY": f" {KEY}\n"}) == KEY
    assert find_key(make_driver(Api.OPENAI), {}) == ""


@pytest.mark.parametrize("environ", [{}, {"THE_KEY": ""}, {"THE_KEY": "  "}])
def test_a_missing_key_is_told_with_its_cure(environ: dict[str, str]) -> None:
    with pytest.raises(PreflightError, match=r"THE_KEY is not set.*Export THE_KEY"):
        find_key(DRIVER, environ)


def test_a_damaged_key_is_told_without_showing_it() -> None:
    with pytest.raises(PreflightError, match="THE_KEY: the key has blanks") as caught:
        find_key(DRIVER, {"THE_KEY": "sk-a b"})
    assert "sk-a" not in str(caught.value)


def test_what_is_well() -> None:
    environ = {"THE_KEY": KEY}
    assert check_driver(DRIVER, budget=CAPPED, environ=environ) == "key in THE_KEY"
    free = make_driver(Api.OPENAI, usd_per_million_input=0, usd_per_million_output=0)
    assert check_driver(free) == "no key needed, no prices: cost will be shown as 0"
    with pytest.raises(PreflightError, match="max_driver_usd cannot hold"):
        check_driver(free, budget=CAPPED)


@pytest.mark.parametrize(
    "variable",
    ["sk-proj-4f9d2c71b3a85e60", "AIzaSyA4f9d2c71b3a85e60wxyz", "MY KEY", "4KEY", "ключ"],
)
def test_a_key_in_the_place_of_its_variable_is_not_shown(variable: str) -> None:
    driver = make_driver(Api.OPENAI, key_variable=variable)
    with pytest.raises(PreflightError, match=r"driver\.key_variable.*looks like a key") as caught:
        find_key(driver, {})
    assert variable not in str(caught.value)


def test_a_variable_that_is_set_is_one_however_it_looks() -> None:
    driver = make_driver(Api.OPENAI, key_variable="keyOfAccount0001")
    assert find_key(driver, {"keyOfAccount0001": KEY}) == KEY


@pytest.mark.parametrize(
    ("api", "url", "base"),
    [
        (Api.OPENAI, "https://x/openai/v1/chat/completions", "https://x/openai/v1"),
        (Api.OPENAI, "https://x/v1/responses/", "https://x/v1"),
        (Api.ANTHROPIC, "https://x/api/v1/messages", "https://x/api"),
        (Api.ANTHROPIC, "https://x/v1/messages/count_tokens", "https://x"),
        (Api.GOOGLE, "https://x/v1beta/models/g-2.5:generateContent", "https://x"),
    ],
)
def test_an_endpoint_is_no_base(api: Api, url: str, base: str) -> None:
    with pytest.raises(PreflightError, match="is an endpoint") as caught:
        check_driver(make_driver(api, base_url=url))
    assert caught.value.cure == f"Set driver.base_url={base}"
    assert check_driver(make_driver(api, base_url=base))


def test_a_version_that_clients_append_is_doubted() -> None:
    assert "usually https://x" in doubtful_version(
        make_driver(Api.ANTHROPIC, base_url="https://x/v1")
    )
    assert doubtful_version(make_driver(Api.OPENAI, base_url="https://x/v1")) == ""
    assert doubtful_version(make_driver(Api.ANTHROPIC, base_url="https://x/api")) == ""


def test_an_address_is_tried_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        assert find_silent([url, url]) == {}
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1) == b""
    assert "refused" in find_silent([url])[url]


def test_all_addresses_together_take_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as stack:
        port = server.getsockname()[1]
        for _ in range(4):  # a full queue: no connection comes, and none is refused
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        urls = [f"http://127.0.0.1:{port}/{number}" for number in range(5)]
        begin = monotonic()
        silent = find_silent(urls, limit_s=3.0)
        assert monotonic() - begin < 40.0
        assert set(silent) == set(urls)


def test_what_only_a_proxy_can_reach_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert find_silent(["https://127.0.0.1:9/v1"]) == {}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:9/v1", True),
        ("http://127.8.8.8", True),
        ("http://[::1]:80", True),
        ("http://localhost/v1", True),
        ("http://10.0.0.1", False),
        ("https://localhost.example", False),
    ],
)
def test_what_is_on_this_machine(url: str, *, expected: bool) -> None:
    assert is_loopback(url) is expected


@pytest.mark.parametrize("port", ["99999", "0", "-1", "abc"])
def test_a_port_that_cannot_be(port: str) -> None:
    with pytest.raises(DriverError):
        check_base_url(f"http://127.0.0.1:{port}/v1")


@pytest.mark.parametrize(
    "url",
    ["", "api.openai.com/v1", "ftp://x", "http://", "http://[", "https://a:b@x/v1", "http://x?k=1"],
)
def test_what_is_no_base_url(url: str) -> None:
    with pytest.raises(DriverError) as caught:
        check_base_url(url)
    assert "a:b" not in str(caught.value)


@pytest.mark.parametrize(
    ("api", "base", "path", "expected"),
    [
        (Api.OPENAI, "https://x/api/v4/", "/v1/responses", "https://x/api/v4/responses"),
        (Api.OPENAI, "https://x/v1", "/v1/models", "https://x/v1/models"),
        (Api.ANTHROPIC, "https://x/api", "/v1/messages", "https://x/api/v1/messages"),
        (Api.GOOGLE, "https://x:8443", "/v1beta/models", "https://x:8443/v1beta/models"),
    ],
)
def test_where_requests_go(api: Api, base: str, path: str, expected: str) -> None:
    assert str(upstream_url(api, check_base_url(base), path=path, query=b"")) == expected
