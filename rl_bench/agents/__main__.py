"""``python -m rl_bench.agents``: installs the CLIs of published agents, and tells what is there.

Exit codes: 0 everything that was asked for is there and works; 1 something is missing or could not
be installed; 2 bad input, nothing done; 130 interrupted.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rl_bench.command_line import Words, run_command
from rl_bench.lines import printable
from rl_bench.option_files import option_values

_HELP = """\
usage: python -m rl_bench.agents [--config-dir DIR] list
       python -m rl_bench.agents [--config-dir DIR] install NAME ... [KEY=VALUE ...]
       python -m rl_bench.agents [--config-dir DIR] check [NAME ...]

Installs the command-line programs of published agents, each at the version that its file in
conf/agent pins, into a folder of the project's own. Sweeps look there first, then on PATH.

  list      the agents that are packages of a registry: version, whether installed, size
  install   gets them; what is installed already is left as it is; "all" for every one
  check     starts each one that is named, or installed, and compares its version

packages:
{packages}

overrides:
  paths.agents=FOLDER     where they are installed; so do RL_BENCH_AGENTS and, as its parent,
                          paths.cache= or RL_BENCH_CACHE (~/.cache/rl_bench)
  agent.version=VERSION   another version than the pinned one, for one NAME; a sweep needs the
                          same override

Packages come through npm and pip as they are set up here. npm needs Node.js 20 or newer; where it
is missing, one comes from PyPI into the same folder. A package that needs another Python than this
one wants it installed (on PATH, or by pyenv or uv).

exit codes:
  0    everything that was asked for is there and works
  1    something is missing or could not be installed
  2    bad input; nothing was done
  130  interrupted; the same command starts again with what it had not finished
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the command line asks for.

    Args:
        argv: Words after the program's name; by default the process's own.

    Returns:
        The exit code, see the module's docstring.
    """
    return run_command(
        "rl-bench-agents",
        argv,
        command=_start,
        help_text=lambda folders: _HELP.format(packages="\n".join(_packages(folders))),
        interrupted="the same command starts again with what it had not finished",
    )


def _start(words: Words) -> int:
    # Imported here: what composes and installs takes longer to load than the help to read.
    from rl_bench.agents.command import start

    return start(words)


def _packages(config_dirs: Sequence[Path]) -> Iterator[str]:
    """The agents whose files name a package, a line each."""
    for name, keys in option_values("agent", config_dirs=config_dirs).items():
        package = keys.get("package")
        if isinstance(package, Mapping):
            where = f"{package.get('registry')} {package.get('name')}"
            yield printable(f"  {keys.get('name', name)!s:<12} {keys.get('version')!s:<10} {where}")


if __name__ == "__main__":
    sys.exit(main())
