"""How much the tests here try: the same examples every time, and so many that all take a minute."""

from hypothesis import HealthCheck, settings

FEW = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
MANY = settings(FEW, max_examples=150)
