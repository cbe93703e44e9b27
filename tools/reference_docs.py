"""Makes the reference pages of the docs from the code that they describe.

    python tools/reference_docs.py FOLDER

Writes ``configuration.md`` from the config classes and the options' files, ``grading_api.md`` and
``openapi.json`` from the grading API's app, ``commands.md`` from each command's ``--help``, and
``licences.md`` from the installed packages. `docs/conf.py` calls it before every build, so
that the pages cannot fall behind. Git holds ``configuration.md``, to which written pages link, and
a test holds it equal to the code; the others are made by builds only.
"""

import contextlib
import importlib
import inspect
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo

from rl_bench import config, option_files, wire
from rl_bench.grading_api import Desk, create_app

GROUPS: Mapping[str, type[config.Frozen]] = {
    "agent": config.AgentConfig,
    "driver": config.DriverConfig,
    "mode": config.ModeConfig,
    "task": config.TaskConfig,
    "model": config.ModelConfig,
    "budget": config.BudgetConfig,
    "sandbox": config.SandboxConfig,
    "grader": config.GraderConfig,
    "sink": config.SinkConfig,
    "audit": config.AuditConfig,
    "cluster": config.ClusterConfig,
    "paths": config.PathsConfig,
}
COMMANDS = (
    "rl_bench.sweep",
    "rl_bench.evaluate",
    "rl_bench.prepare",
    "rl_bench.agents",
    "rl_bench.audit",
    "rl_bench.doctor",
    "analysis.report",
    "analysis.watch",
    "analysis.wandb_view",
    "analysis.case_study",
    "analysis.synthetic",
)
_OVERLAYS = {
    "experiment": "Whole sweeps",
    "debug": "Changes that make an experiment short",
}
"""Groups without a class: their files set keys of the others."""
MAX_LICENCE = 120
LICENCES_LIMIT_S = 120.0
_NO_DESK = cast(Desk, None)
"""Nothing is asked of an app whose schema is read."""
_ENTRY = re.compile(r"^    (?P<names>\w[\w, ]*): (?P<text>.*(?:\n {8}.*)*)", re.MULTILINE)
_WORDS = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    Path: "path",
}
"""Types as somebody who writes YAML calls them."""
_NO_LIMITS = (config.MAX_SECONDS, config.MAX_SEED)
"""Bounds that nobody meets."""
_OR_NULL = ", or `null`"
_OF_EVERY_OPTION = {"name": "The option's name, as in its file and in tables."}
_REST_ROLE = re.compile(r"(?<!`)``([^`]+)``(?!`)")


def main() -> int:
    """Writes the pages into the folder named on the command line."""
    write_pages(Path(sys.argv[1]))
    return 0


def write_pages(folder: Path) -> None:
    """Writes the pages into ``folder``; one that is as it was is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Every generated file, by its name."""
    schema = api_schema()
    return {
        "configuration.md": configuration(),
        "grading_api.md": grading_api(schema),
        "openapi.json": json.dumps(schema, indent=2) + "\n",
        "commands.md": commands(),
        "licences.md": licences(),
    }


# --- configuration


def configuration() -> str:
    """Every group: its options, and what each key means; plug-ins' options are left out."""
    defaults = option_files.default_options()
    told: dict[type, str] = {}
    parts = [
        "# Configuration\n",
        "A command line composes these groups, each an option's file and the keys that it sets. "
        "`GROUP=OPTION` chooses, `GROUP.KEY=VALUE` changes a key, unknown keys are errors. "
        "Types and defaults below are those of the classes in `rl_bench/config/`; what an "
        "option's file sets goes before them.\n",
    ]
    for group, cls in GROUPS.items():
        parts.append(f"## {group}\n\n{_markdown(_summary(cls))}\n")
        parts.append(_options(group, own_options(group), defaults.get(group, "")))
        parts.append(_fields(cls))
        for key, inner in nested(cls):
            shown = _keys(inner, at=f"{group}.{key}", told=told)
            parts.append(f"### {group}.{key}\n\n{_markdown(_summary(inner))}\n\n{shown}")
    parts.append(f"## sweep\n\n{_markdown(_summary(config.SweepConfig))}\n")
    parts.append(_fields(config.SweepConfig))
    parts.append(f"### sweep.blocks\n\n{_markdown(_summary(config.BlockConfig))}\n")
    parts.append(_fields(config.BlockConfig))
    for group, about in _OVERLAYS.items():
        parts.append(f"## {group}\n\n{about}, chosen by `+{group}=NAME`.\n")
        parts.append(_options(group, own_options(group), ""))
    return "\n".join(parts)


def own_options(group: str) -> list[str]:
    """The names of a group's options in ``conf/``: the same whatever is installed beside."""
    return sorted(path.stem for path in (option_files.CONF_DIR / group).glob("*.yaml"))


def described(cls: type[config.Frozen]) -> dict[str, str]:
    """What the docstrings of ``cls`` and its bases say of each field."""
    found = dict(_OF_EVERY_OPTION) if cls in GROUPS.values() else {}
    for base in reversed([base for base in cls.__mro__ if issubclass(base, config.Frozen)]):
        _, _, attributes = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        for entry in _ENTRY.finditer(attributes):
            text = " ".join(entry["text"].split())
            found.update({name.strip(): text for name in entry["names"].split(",")})
    return found


def _summary(cls: type[config.Frozen]) -> str:
    return inspect.cleandoc(cls.__doc__ or "").partition("Attributes:")[0].strip()


def _options(group: str, names: Sequence[str], default: str) -> str:
    said = option_files.first_comments(group)
    rows = [
        (f"`{group}={name}`" + (" (default)" if name == default else ""), said.get(name, ""))
        for name in names
    ]
    return _table(("option", ""), rows)


def _fields(cls: type[config.Frozen]) -> str:
    meaning = described(cls)
    rows = [
        (f"`{name}`", _type(field), _default(field), _markdown(meaning.get(name, "")))
        for name, field in cls.model_fields.items()
    ]
    return _table(("key", "type", "default", "meaning"), rows)


def _keys(cls: type[config.Frozen], *, at: str, told: dict[type, str]) -> str:
    """The table of a nested class, once; later a link to the place that ``told`` remembers."""
    if cls in told:
        place = told[cls]
        return f"Its keys are those of [{place}](#{place.replace('.', '')}).\n"
    told[cls] = at
    return _fields(cls)


def _type(field: FieldInfo) -> str:
    return type_name(field.annotation, field.metadata)


def nested(cls: type[config.Frozen]) -> Iterator[tuple[str, type[config.Frozen]]]:
    """Keys of ``cls`` that have keys of their own, each with its class."""
    for name, field in cls.model_fields.items():
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, config.Frozen):
                yield name, part


def _parts(annotation: object) -> list[object]:
    inside = getattr(annotation, "__args__", ())
    return [annotation, *(part for each in inside for part in _parts(each))]


def type_name(annotation: object, metadata: Sequence[object] = ()) -> str:
    """A type in the words of somebody who writes YAML, as Markdown.

    Args:
        annotation: Of a field of a config or wire class.
        metadata: The bounds that its field adds.
    """
    words, null, _ = _kind(annotation).partition(_OR_NULL)
    return words + "".join(f" {bound}" for bound in _bounds(metadata)) + null


def _kind(annotation: object) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(inside[0], inside[1:])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if origin in (UnionType, Union):
        return _alternatives(inside)
    if origin in (tuple, list):
        return f"list of {_kind(inside[0])}"
    if inside and isinstance(origin, type) and issubclass(origin, Mapping):
        value = _kind(inside[1])
        return f"mapping to ({value})" if " or " in value else f"mapping to {value}"
    if isinstance(annotation, type):
        return _class_name(annotation)
    raise TypeError(f"no words for {annotation!r}")


def _alternatives(kinds: Sequence[object]) -> str:
    """The types of a union, ``null`` last."""
    plain = get_args(config.Setting)
    if set(plain) <= set(kinds):
        others = [_kind(kind) for kind in kinds if kind not in plain]
        return ", or ".join(["plain value", *others])
    others = [_kind(kind) for kind in kinds if kind is not NoneType]
    return " or ".join(others) + (_OR_NULL if NoneType in kinds else "")


def _class_name(cls: type) -> str:
    if issubclass(cls, config.Frozen):
        is_config = cls.__module__.startswith(config.__name__)
        return "keys of its own" if is_config else _body_link(cls.__name__)
    if issubclass(cls, StrEnum):
        return ", ".join(f"`{value}`" for value in cls)
    return _WORDS[cls]


def _bounds(metadata: Sequence[object]) -> Iterator[str]:
    for constraint in metadata:
        if isinstance(constraint, FieldInfo):
            yield from _bounds(constraint.metadata)
        for name, sign in (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤")):
            limit = getattr(constraint, name, None)
            if limit is not None and limit not in _NO_LIMITS:
                yield f"{sign} {limit:g}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.default
    if isinstance(value, config.Frozen):
        return "see below"
    return f"`{json.dumps(value, default=str)}`"


# --- the grading API


def api_schema() -> dict[str, Any]:
    """The grading API as OpenAPI."""
    return create_app(_NO_DESK, token="", base_url="").openapi()


def grading_api(schema: Mapping[str, Any]) -> str:
    """Its routes and the JSON that crosses them."""
    parts = [
        "# Grading API\n",
        "HTTP on loopback, one server a run. `GRADING_SERVER_URL` holds the run's token in its "
        "path, so a route is `$GRADING_SERVER_URL/submit`. Inside a sandbox the same address "
        "leads there through a forwarded socket. The schema as OpenAPI: "
        "{download}`openapi.json`.\n",
    ]
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            name = path.replace("/{token_given}", "")
            parts.append(f"## {method.upper()} {name}\n\n{route['description']}\n")
            if method == "post":
                parts.append(f"Body:\n\n{_model(wire.SubmitRequest)}")
            rows = [
                (status, answer["description"], _bodies(answer))
                for status, answer in route["responses"].items()
            ]
            parts.append(_table(("status", "when", "body"), rows))
    parts.append("## Bodies\n")
    bodies = [
        cls
        for _, cls in inspect.getmembers(wire, inspect.isclass)
        if issubclass(cls, config.Frozen) and cls.__name__ in schema["components"]["schemas"]
    ]
    for cls in bodies:
        parts.append(f"### {cls.__name__}\n\n{_markdown(_summary(cls))}\n\n{_model(cls)}")
    return "\n".join(parts)


def _model(cls: type[config.Frozen]) -> str:
    rows = [
        (f"`{name}`", _type(field), "" if field.is_required() else _default(field))
        for name, field in cls.model_fields.items()
    ]
    return _table(("key", "type", "default"), rows)


def _bodies(answer: Mapping[str, Any]) -> str:
    names = re.findall(r"#/components/schemas/(\w+)", json.dumps(answer))
    return " or ".join(_body_link(name) for name in names)


def _body_link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


# --- commands


def commands() -> str:
    """What each command says of itself."""
    parts = ["# Commands\n"]
    for name in COMMANDS:
        parts.append(f"## python -m {name}\n\n```text\n{_help(name)}```\n")
    return "\n".join(parts)


def _help(name: str) -> str:
    module = importlib.import_module(name)
    if not hasattr(module, "main"):
        module = importlib.import_module(f"{name}.__main__")
    said, before = io.StringIO(), sys.argv
    sys.argv = [f"python -m {name}"]
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            module.main(["--help"])
    finally:
        sys.argv = before
    return said.getvalue()


# --- licences


def licences() -> str:
    """The installed dependencies, with version and licence as their packages state it."""
    listed = subprocess.run(
        [sys.executable, "-m", "piplicenses", "--format=json", "--ignore-packages=rl_bench"],
        capture_output=True,
        text=True,
        timeout=LICENCES_LIMIT_S,
        check=True,
    )
    rows = [
        (each["Name"], each["Version"], _one_line(each["License"]))
        for each in json.loads(listed.stdout)
    ]
    about = (
        "# Licences\n\nrl_bench is under the MIT licence. The packages that were installed when "
        "this page was built, those of the lock file, by their own statements:\n\n"
    )
    return about + _table(("package", "version", "licence"), rows)


def _one_line(licence: str) -> str:
    """Some packages state the whole text of their licence."""
    line = licence.strip().partition("\n")[0]
    return line if len(line) <= MAX_LICENCE else f"{line[:MAX_LICENCE]} …"


# --- Markdown


def _markdown(text: str) -> str:
    return _REST_ROLE.sub(r"`\1`", text)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
