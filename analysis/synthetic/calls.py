"""The driver's calls of a synthetic run, with tokens that grow and costs by the planted prices."""

from collections.abc import Iterator

import numpy as np

from analysis.synthetic.outline import Outline
from rl_bench.config import DriverConfig, RunSpec
from rl_bench.events import DriverCall, DriverFailure

CALLS_A_STEP = 4


def calls(
    spec: RunSpec, made: Outline, rng: np.random.Generator
) -> Iterator[tuple[float, DriverCall]]:
    """The driver's calls with the time at which each is over, on the run's clock.

    Args:
        spec: The run's conditions, with the driver's prices.
        made: What the run does.
        rng: The run's randomness.
    """
    marks = [10.0, *(training.written_s + 5 for training in made.trainings)]
    ends = [request.at_s + 60 for request in made.requests]
    context, number = 9_000, 0
    for mark in sorted([*marks, *ends]):
        for place in range(CALLS_A_STEP):
            number += 1
            context = min(context + int(rng.integers(300, 4000)), 150_000)
            at_s = min(mark + 6.0 * place, made.used_s - 2)
            yield at_s + 4, _call(spec.driver, number, context, at_s, rng)
    if made.fate == "driver_error":
        at_s = made.used_s - 1
        lost = DriverCall(
            call=number + 1,
            api=spec.driver.api or spec.agent.apis[0],
            route="/v1/messages",
            model=spec.driver.model_id,
            status=402,
            failure=DriverFailure.BILLING,
            detail="no credit is left",
            latency_s=0.2,
            budget_used_s=at_s,
        )
        yield at_s, lost


def _call(
    driver: DriverConfig, number: int, context: int, at_s: float, rng: np.random.Generator
) -> DriverCall:
    cached = int(0.85 * context) if number > 1 else 0
    made = int(rng.integers(80, 1500))
    cached_price = driver.usd_per_million_cached_input or 0.0
    cost = (
        (context - cached) * driver.usd_per_million_input
        + cached * cached_price
        + made * driver.usd_per_million_output
    ) / 1e6
    assert driver.api is not None
    return DriverCall(
        call=number,
        api=driver.api,
        route="/v1/messages",
        model=driver.model_id,
        status=200,
        latency_s=4.0,
        first_byte_s=0.8,
        input_tokens=context,
        output_tokens=made,
        cached_tokens=cached,
        cost_usd=round(cost, 6),
        num_bytes=made * 5,
        budget_used_s=at_s,
    )
