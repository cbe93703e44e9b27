"""The flags by which commands are told who writes accounts of runs; see `analysis.narrative`."""

import argparse
from typing import TYPE_CHECKING

from analysis.errors import ResultsError

if TYPE_CHECKING:
    from rl_bench.config import JudgeConfig


def add_account_options(parser: argparse.ArgumentParser) -> None:
    """The flags that `account_config` reads."""
    told = parser.add_argument_group(
        "account", "A language model's account of each run, from the facts alone and marked as such"
    )
    told.add_argument("--account-url", help="base URL of an OpenAI-compatible endpoint")
    told.add_argument("--account-model", help="the model's id there")
    told.add_argument("--account-key", default="", help="environment variable with the key")


def account_config(args: argparse.Namespace) -> "JudgeConfig | None":
    """Whom to ask; ``None``: nobody.

    Raises:
        ResultsError: Only one of address and model is given.
    """
    if bool(args.account_url) != bool(args.account_model):
        raise ResultsError("--account-url and --account-model go together")
    if not args.account_url:
        return None
    from rl_bench.config import JudgeConfig

    return JudgeConfig(
        name="account",
        annotator="account",
        model_id=args.account_model,
        base_url=args.account_url,
        key_variable=args.account_key,
    )
