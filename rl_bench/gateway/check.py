"""Whether a driver could be asked, as far as can be told without spending anything."""

import os
import re
from collections.abc import Mapping

from rl_bench.checks import check_all
from rl_bench.config import Api, BudgetConfig, DriverConfig
from rl_bench.errors import DriverError, PreflightError
from rl_bench.gateway.routes import check_base_url
from rl_bench.key_variable import read_key

_ENDPOINT = re.compile(
    r"/(?:chat/completions|completions|responses|embeddings|messages(?:/count_tokens)?"
    r"|models/[^/]*:\w+)/*$"
)
_VERSION = re.compile(r"/v1(?:alpha|beta)?/*$")


def find_key(driver: DriverConfig, environ: Mapping[str, str] = os.environ) -> str:
    """The driver's key; empty when it needs none.

    Raises:
        PreflightError: Its variable is not set, or holds what cannot be a key, or is no variable.
    """
    variable = driver.key_variable
    if not variable:
        return ""
    return read_key(variable, where="driver.key_variable", environ=environ)


def check_driver(
    driver: DriverConfig,
    *,
    budget: BudgetConfig | None = None,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Checks key, address and prices; sends nothing.

    Args:
        driver: With an API of its own: none and scripted ones need no check.
        budget: Its cap of cost must be one that can work.
        environ: Where the key is.

    Returns:
        What was found, for people.

    Raises:
        PreflightError: Something is missing, with its cure.
    """
    check_all(
        lambda: find_key(driver, environ),
        lambda: _check_address(driver),
        lambda: _check_cap(driver, budget),
    )
    found = [f"key in {driver.key_variable}" if driver.key_variable else "no key needed"]
    if not _has_prices(driver):
        found.append("no prices: cost will be shown as 0")
    return ", ".join(found)


def doubtful_version(driver: DriverConfig) -> str:
    """What is odd about an address that ends with a version which clients append; else empty."""
    found = _VERSION.search(driver.base_url)
    if driver.api in (None, Api.OPENAI) or found is None:
        return ""
    base = driver.base_url[: found.start()]
    return f"requests append their version to base_url: it is usually {base}"


def _has_prices(driver: DriverConfig) -> bool:
    return driver.usd_per_million_input > 0 or driver.usd_per_million_output > 0


def _check_cap(driver: DriverConfig, budget: BudgetConfig | None) -> None:
    if budget is not None and budget.max_driver_usd is not None and not _has_prices(driver):
        raise PreflightError(
            f"budget.max_driver_usd cannot hold: driver '{driver.name}' has no prices",
            cure="Set driver.usd_per_million_input and driver.usd_per_million_output, or cap "
            "calls with budget.max_driver_calls",
        )


def _check_address(driver: DriverConfig) -> None:
    """An address of one endpoint is no base: what is asked would be looked for below it."""
    try:
        check_base_url(driver.base_url)
    except DriverError as error:
        raise PreflightError(error.message, cure=error.cure) from None
    base = _ENDPOINT.sub("", driver.base_url)
    if base == driver.base_url:
        return
    if driver.api is not Api.OPENAI:
        base = _VERSION.sub("", base)
    raise PreflightError(
        f"base_url '{driver.base_url}' is an endpoint, to which agents' requests would be appended",
        cure=f"Set driver.base_url={base}",
    )
