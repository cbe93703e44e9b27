"""Whether a judge could be asked, as far as this machine can tell; nothing is sent anywhere."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from rl_bench.checks import check_all
from rl_bench.config import JudgeConfig
from rl_bench.errors import PreflightError
from rl_bench.key_variable import check_variable_name


def check_judge(
    config: JudgeConfig, *, environ: Mapping[str, str] = os.environ, where: str = "task.judge"
) -> None:
    """Checks the key, the address or the checkpoint folder; takes no time.

    Args:
        config: The judge.
        environ: Where its key is.
        where: The config's key that has it, for cures: a task's or ``audit.judge``.

    Raises:
        PreflightError: Something is missing, with its cure.
    """
    if config.kind == "vllm":
        _check_folder(config, where)
        return
    check_all(lambda: _check_url(config), lambda: _check_key(config, environ=environ, where=where))


def _check_key(config: JudgeConfig, *, environ: Mapping[str, str], where: str) -> None:
    variable = config.key_variable
    if variable:
        check_variable_name(variable, where=f"{where}.key_variable", environ=environ)
    if variable and not environ.get(variable, "").strip():
        raise PreflightError(
            f"{variable} is not set in the environment",
            cure=f"Export {variable}, or judge on this machine with {where}.kind=vllm "
            f"{where}.path=FOLDER {where}.base_url= {where}.key_variable= "
            "(docs/tasks.md, Judges)",
        )


def _check_url(config: JudgeConfig) -> None:
    try:
        parts = urlsplit(config.base_url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise PreflightError(
            f"base_url '{config.base_url}' is not an address",
            cure="It looks like https://api.openai.com/v1, up to what comes before "
            "/chat/completions",
        )


def _check_folder(config: JudgeConfig, where: str) -> None:
    folder = config.path
    if folder is None or not (folder / "config.json").is_file():
        raise PreflightError(
            f"{folder} holds no checkpoint: there is no config.json",
            cure=f"Set {where}.path to a folder as save_pretrained writes it",
        )
    if find_spec("vllm") is None:
        raise PreflightError(
            "the package vllm is not installed",
            cure="Install it, or choose a judge behind an address with "
            f"{where}.kind=openai {where}.base_url=URL (docs/tasks.md, Judges)",
        )
