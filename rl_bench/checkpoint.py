"""A checkpoint folder as its headers describe it: what the grader knows without loading a tensor.

`inspect` reads config, safetensors headers and tokenizer files; `check_submission` compares what a
submission holds with the base model and refuses, with the file and the cure, what the engine could
not load or would load wrongly; `content_hash` names a checkpoint by its bytes. Finiteness of the
weights is not a matter of headers: `rl_bench.engine.weights` checks it on the way to the engine.

A tied model (``tie_word_embeddings``) may hold ``lm_head.weight`` or leave it out.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rl_bench.checkpoint_files import MAX_JSON_BYTES, check_bounds, checkpoint_files, is_content
from rl_bench.clone import open_regular, read_regular
from rl_bench.counts import plural
from rl_bench.errors import SubmissionError
from rl_bench.safetensors_header import TensorSpec, check_headers_length, read_tensor_specs

HEAD = "lm_head.weight"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_MAX_NAME_BYTES = 255
WEIGHT_DTYPES = ("F64", "F32", "BF16", "F16")
"""How weights may be stored whatever the base's dtype, as safetensors spells it."""
_FULL_SAVE = "save the whole model and its tokenizer with save_pretrained into one folder"
_MERGE = "merge the adapter into the base (merge_and_unload) and save the whole model"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHeader:
    """What the headers of a checkpoint say.

    Attributes:
        folder: Where it lies.
        architecture: The model class, e.g. ``Qwen3ForCausalLM``.
        model_type: The config's ``model_type``.
        vocab_size: Rows of the embedding by the config; 0 when it does not say.
        tied: The output head shares the input embedding.
        tensors: Every weight by name.
        tokenizer_class: As the tokenizer's config spells it; empty when it does not say.
        max_token_id: The highest id that the tokenizer's files define; -1 when they do not tell.
        chat_template_hash: SHA-256 of the chat template's text; empty without one.
        saved_with: The transformers version that wrote the config; empty when it does not say.
    """

    folder: Path
    architecture: str
    model_type: str
    vocab_size: int
    tied: bool
    tensors: Mapping[str, TensorSpec]
    tokenizer_class: str
    max_token_id: int
    chat_template_hash: str
    saved_with: str

    @property
    def num_parameters(self) -> int:
        """Elements of all tensors, a tied head counted once."""
        return sum(_numel(spec) for spec in self.weights().values())

    def weights(self) -> dict[str, TensorSpec]:
        """The tensors that make up the model: a tied model's own copy of the head left out."""
        return {
            name: spec for name, spec in self.tensors.items() if not (self.tied and name == HEAD)
        }


def content_hash(folder: Path) -> str:
    """SHA-256 over the names and bytes of `checkpoint_files`, in hex.

    Files are hashed in parallel; times, owners and the folder's own name do not count.

    Raises:
        SubmissionError: A file vanished or cannot be read.
    """
    try:
        files = checkpoint_files(folder)
        with ThreadPoolExecutor(max_workers=4) as pool:
            digests = list(pool.map(_file_digest, files))
    except OSError as error:
        raise SubmissionError(
            f"{error.filename or folder} cannot be read: {error.strerror}",
            cure="leave the folder alone until the submission is answered",
            reason="unreadable",
        ) from error
    total = hashlib.sha256()
    for path, digest in zip(files, digests, strict=True):
        name = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
        total.update(len(name).to_bytes(8, "little") + name + digest)
    return total.hexdigest()


def _file_digest(file: Path) -> bytes:
    with open_regular(file, follow=True) as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def inspect(folder: Path) -> CheckpointHeader:
    """Reads the headers of the checkpoint in ``folder``.

    Raises:
        SubmissionError: It is no complete, well-formed checkpoint; ``reason`` tells in what way.
    """
    if not folder.exists():
        raise SubmissionError(
            f"{folder} does not exist", cure="give a folder that is there", reason="not_found"
        )
    if not folder.is_dir():
        raise SubmissionError(
            f"{folder} is a file, not a checkpoint folder",
            cure="give the folder that holds config.json and the weights",
            reason="not_a_folder",
            file=folder.name,
        )
    try:
        return _inspect(folder)
    except OSError as error:
        raise SubmissionError(
            f"{error.filename or folder} cannot be read: {error.strerror}",
            cure="make every file of the folder readable, and leave it alone while it is graded",
            reason="unreadable",
        ) from error


def check_submission(folder: Path, base: CheckpointHeader) -> None:
    """Refuses a submission that could not be graded as a descendant of ``base``.

    Headers only: under a second for a checkpoint of eight billion parameters.

    Raises:
        SubmissionError: With ``reason``, ``file`` and the cure.
    """
    header = inspect(folder)
    _check_architecture(header, base)
    _check_tensors(header, base)
    _check_tokenizer(header, base)


def _inspect(folder: Path) -> CheckpointHeader:
    check_bounds(folder)
    has_config = (folder / "config.json").is_file()
    weights = weight_files(folder)
    if not has_config:
        raise SubmissionError(
            "config.json is missing", cure=_FULL_SAVE, reason="no_config", file="config.json"
        )
    config = read_json(folder / "config.json")
    architectures = config.get("architectures")
    listed = isinstance(architectures, list) and architectures
    tokenizer = _tokenizer_config(folder)
    vocab_size = config.get("vocab_size")
    return CheckpointHeader(
        folder=folder,
        architecture=str(architectures[0]) if isinstance(architectures, list) and listed else "",
        model_type=str(config.get("model_type") or ""),
        vocab_size=vocab_size if isinstance(vocab_size, int) else 0,
        tied=bool(config.get("tie_word_embeddings", False)),
        tensors=_read_tensors(folder, weights),
        tokenizer_class=str(tokenizer.get("tokenizer_class") or ""),
        max_token_id=_max_token_id(folder),
        chat_template_hash=_chat_template_hash(folder, tokenizer),
        saved_with=str(config.get("transformers_version") or ""),
    )


def read_json(file: Path) -> dict[str, object]:
    """The JSON object in ``file``.

    Raises:
        SubmissionError: ``malformed_json``: it is none.
    """
    cure = "write it again with save_pretrained, or copy the base model's"
    problem = "is not a JSON object"
    try:
        if file.stat().st_size > MAX_JSON_BYTES:
            problem = f"is larger than {MAX_JSON_BYTES} bytes"
            raise ValueError(problem)
        value = json.loads(read_regular(file))
        if isinstance(value, dict):
            return value
    except (ValueError, RecursionError) as error:
        raise SubmissionError(
            f"{file.name} {problem}: {str(error)[:200]}",
            cure=cure,
            reason="malformed_json",
            file=file.name,
        ) from error
    raise SubmissionError(
        f"{file.name} {problem}", cure=cure, reason="malformed_json", file=file.name
    )


def weight_files(folder: Path) -> list[Path]:
    """The single weight file or the index's shards; refuses what has two readings."""
    present = sorted(
        path for path in folder.glob("*.safetensors") if path.name != "consolidated.safetensors"
    )
    if (folder / INDEX).is_file():
        named = sorted(set(_weight_map(folder).values()))
        others = (path.name for path in present if is_content(path))
        stray = next((name for name in others if name not in {*named, SINGLE}), None)
        if stray is not None:
            raise SubmissionError(
                f"{stray} lies beside the shards, but {INDEX} does not name it",
                cure="save the model again into an empty folder, or delete the file",
                reason="stale_index",
                file=stray,
            )
        return [folder / name for name in named]
    if all(path.name.startswith("adapter_") for path in present):
        raise _no_weights(folder)
    if [path.name for path in present] != [SINGLE]:
        stray = next(path.name for path in present if path.name != SINGLE)
        raise SubmissionError(
            f"{stray} is there, but there is no {INDEX} that says what it is for",
            cure="save the whole, merged model with save_pretrained into an empty folder; a single "
            f"weight file is called {SINGLE}",
            reason="stale_shard",
            file=stray,
        )
    return present


def _no_weights(folder: Path) -> SubmissionError:
    adapters = sorted(path.name for path in folder.glob("adapter_*"))
    if adapters:
        return SubmissionError(
            f"{adapters[0]} is an adapter; there are no whole weights beside it",
            cure=_MERGE,
            reason="adapter_only",
            file=adapters[0],
        )
    pickles = sorted(path.name for path in folder.glob("pytorch_model*.bin"))
    if pickles:
        return SubmissionError(
            f"{pickles[0]} is a pickle, which is not loaded: it could run any code",
            cure="save the model as safetensors (save_pretrained does)",
            reason="pickle_only",
            file=pickles[0],
        )
    return SubmissionError(
        f"the folder has no {SINGLE}", cure=_FULL_SAVE, reason="no_weights", file=SINGLE
    )


def _weight_map(folder: Path) -> dict[str, str]:
    entries = read_json(folder / INDEX).get("weight_map")
    if not isinstance(entries, dict) or not all(
        isinstance(file, str) and file.endswith(".safetensors") and _is_name(file)
        for file in entries.values()
    ):
        raise SubmissionError(
            f"{INDEX} has no valid weight_map",
            cure="save the model again with save_pretrained into an empty folder",
            reason="malformed_index",
            file=INDEX,
        )
    return entries


def _is_name(file: str) -> bool:
    return Path(file).name == file and len(file.encode("utf-8", "surrogatepass")) <= _MAX_NAME_BYTES


def _read_tensors(folder: Path, files: list[Path]) -> dict[str, TensorSpec]:
    tensors: dict[str, TensorSpec] = {}
    place: dict[str, str] = {}
    for file in files:
        if not file.is_file():
            raise SubmissionError(
                f"{file.name} is missing, though {INDEX} names it",
                cure="save the model again into an empty folder, or copy the missing shard",
                reason="missing_shard",
                file=file.name,
            )
    check_headers_length(files)
    for file in files:
        specs = read_tensor_specs(file)
        tensors.update(specs)
        place.update(dict.fromkeys(specs, file.name))
    if (folder / INDEX).is_file():
        _check_index(folder, place)
    return tensors


def _check_index(folder: Path, place: Mapping[str, str]) -> None:
    """``place``: the file that really holds each tensor."""
    cure = "the index is older than the shards: save the model again into an empty folder"
    weight_map = _weight_map(folder)
    for name, file in weight_map.items():
        if place.get(name) != file:
            raise SubmissionError(
                f"{file} lacks {name}, though {INDEX} says that it holds it",
                cure=cure,
                reason="missing_tensor",
                file=file,
            )
    extra = sorted(place.keys() - weight_map.keys())
    single = (folder / SINGLE).is_file() and SINGLE not in weight_map.values()
    if extra or single:
        file = place[extra[0]] if extra else SINGLE
        what = f"{file} holds {extra[0]}" if extra else f"{SINGLE} lies beside shards"
        raise SubmissionError(
            f"{what}, which {INDEX} does not name", cure=cure, reason="stale_index", file=file
        )


def _tokenizer_config(folder: Path) -> dict[str, object]:
    if not any(
        (folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")
    ):
        raise SubmissionError(
            "tokenizer.json is missing",
            cure="save the tokenizer beside the model: tokenizer.save_pretrained(folder)",
            reason="missing_tokenizer",
            file="tokenizer.json",
        )
    file = folder / "tokenizer_config.json"
    return read_json(file) if file.is_file() else {}


def _max_token_id(folder: Path) -> int:
    """From tokenizer.json or vocab.json; a SentencePiece model alone does not tell."""
    ids = [-1]
    if (folder / "tokenizer.json").is_file():
        content = read_json(folder / "tokenizer.json")
        model, added = content.get("model"), content.get("added_tokens")
        vocab = model.get("vocab") if isinstance(model, dict) else None
        if not isinstance(vocab, dict | list):
            raise SubmissionError(
                "tokenizer.json has no vocabulary",
                cure="copy the base model's tokenizer files",
                reason="malformed_tokenizer",
                file="tokenizer.json",
            )
        ids.extend(vocab.values() if isinstance(vocab, dict) else [len(vocab) - 1])
        entries = added if isinstance(added, list) else []
        ids.extend(entry.get("id", -1) for entry in entries if isinstance(entry, dict))
    elif (folder / "vocab.json").is_file():
        ids.extend(v for v in read_json(folder / "vocab.json").values() if isinstance(v, int))
    return max(value for value in ids if isinstance(value, int))


def _chat_template_hash(folder: Path, tokenizer: Mapping[str, object]) -> str:
    """The file wins over the entry in the tokenizer's config, as in transformers."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return hashlib.sha256(read_regular(file)).hexdigest()
    template = tokenizer.get("chat_template")
    if not template:
        return ""
    text = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
    # JSON can hold lone surrogates, which UTF-8 cannot.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check_architecture(header: CheckpointHeader, base: CheckpointHeader) -> None:
    if (header.architecture, header.model_type) != (base.architecture, base.model_type):
        raise SubmissionError(
            f"config.json describes a {header.architecture or header.model_type or 'model'}, "
            f"the base model is a {base.architecture}",
            cure="submit a descendant of the base model, with the base model's architecture",
            reason="architecture",
            file="config.json",
        )
    if header.vocab_size != base.vocab_size:
        raise SubmissionError(
            f"config.json has vocab_size {header.vocab_size}, the base model {base.vocab_size}",
            cure="do not resize the embeddings; use the base model's tokenizer",
            reason="vocabulary",
            file="config.json",
        )
    if header.tied != base.tied:
        raise SubmissionError(
            f"config.json says tie_word_embeddings={header.tied}, the base model {base.tied}",
            cure="keep the base model's tie_word_embeddings",
            reason="architecture",
            file="config.json",
        )


def _check_tensors(header: CheckpointHeader, base: CheckpointHeader) -> None:
    ours, theirs = header.weights(), base.weights()
    file = SINGLE if (header.folder / SINGLE).is_file() else INDEX
    missing, extra = sorted(theirs.keys() - ours.keys()), sorted(ours.keys() - theirs.keys())
    if missing or extra:
        some = ", ".join((missing or extra)[:3])
        verb = "lacks" if missing else "holds"
        raise SubmissionError(
            f"the checkpoint {verb} {plural(len(missing or extra), 'tensor')} that the base model "
            f"{'has' if missing else 'lacks'}: {some}",
            cure=_MERGE if any("lora" in name for name in extra) else _FULL_SAVE,
            reason="tensor_names",
            file=file,
        )
    names = sorted(theirs)
    if HEAD in header.tensors and HEAD not in ours:
        # A tied model's copy of the head is allowed, but only as a copy of the embedding.
        ours[HEAD] = header.tensors[HEAD]
        embedding = [spec for name, spec in theirs.items() if name.endswith("embed_tokens.weight")]
        theirs[HEAD] = embedding[0] if embedding else ours[HEAD]
        names.append(HEAD)
    for name in names:
        if ours[name].shape != theirs[name].shape:
            embeds = name.endswith(("embed_tokens.weight", HEAD))
            raise SubmissionError(
                f"{name} has the shape {ours[name].shape}, the base model's {theirs[name].shape}",
                cure="keep the base model's architecture and vocabulary",
                reason="vocabulary" if embeds else "tensor_shapes",
                file=file,
            )
        if ours[name].dtype not in WEIGHT_DTYPES and ours[name].dtype != theirs[name].dtype:
            # Nothing looks for NaN in them, nor compares them with known weights.
            raise SubmissionError(
                f"{name} is stored as {ours[name].dtype}, the base model's as {theirs[name].dtype}",
                cure=f"store weights as one of {', '.join(WEIGHT_DTYPES)}: {_FULL_SAVE}",
                reason="tensor_dtypes",
                file=file,
            )


def _check_tokenizer(header: CheckpointHeader, base: CheckpointHeader) -> None:
    if base.vocab_size and header.max_token_id >= base.vocab_size:
        raise SubmissionError(
            f"the tokenizer defines token {header.max_token_id}, the model has "
            f"{base.vocab_size} embeddings",
            cure="use the base model's tokenizer, without added tokens",
            reason="vocabulary",
            file="tokenizer.json",
        )
    name = header.tokenizer_class
    if name in ("", base.tokenizer_class) or _is_known_tokenizer(name):
        return
    raise SubmissionError(
        f"tokenizer_config.json names the class {name}, which the installed transformers "
        f"{importlib.metadata.version('transformers')} does not know (the checkpoint was saved "
        f"with {header.saved_with or 'an unknown version'})",
        cure="copy the base model's tokenizer files, or save with the installed version",
        reason="unknown_tokenizer",
        file="tokenizer_config.json",
    )


def _is_known_tokenizer(name: str) -> bool:
    # Lazy: transformers takes about a second to import, and only an unusual class asks for it.
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    return tokenizer_class_from_name(name) is not None


def _numel(spec: TensorSpec) -> int:
    total = 1
    for size in spec.shape:
        total *= size
    return total
