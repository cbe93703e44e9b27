"""Game files: the built-in generator, and the collection of those on disk.

Files have the public layout, ``<root>/<split>/<task>/<trial>/{game.tw-pddl,traj_data.json}``, and
the engine's own format, so the stock engine plays them too. Domain, grammar and goals come from the
installed ``alfworld`` package; households are original.

Train and evaluation games never share a room: a room belongs to the one split that its content
digest names, whatever the seed or the settings. Generation is deterministic.
"""

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypedDict

from envs import alfworld_rooms as rooms
from envs.alfworld_dialect import Dialect, older_command, older_domain, older_grammar
from envs.alfworld_layout import Entity, Layout, LayoutSettings, TaskType, sample_layout
from envs.errors import EnvironmentBroken

ROOT = "json_2.1.1"
"""The folder that holds the splits, as the public archives name it."""
GAME_FILE = "game.tw-pddl"
TRAJ_FILE = "traj_data.json"
GENERATOR_VERSION = "1"
"""Part of every cache key: changes whenever the same seed would give other games."""

Split = Literal["train", "valid_unseen"]
_MAX_DRAWS_A_GAME = 2000
_EVAL_SHARE = 4  # one room in four belongs to the evaluation split


class GameData(TypedDict):
    """The content of a ``game.tw-pddl`` file."""

    pddl_domain: str
    grammar: str
    pddl_problem: str
    solvable: bool
    walkthrough: list[str]


def generate_games(
    folder: Path,
    *,
    split: Split,
    num_games: int,
    seed: int,
    settings: LayoutSettings | None = None,
    dialect: Dialect = Dialect.MOVE,
) -> list[Path]:
    """Writes ``num_games`` different games below ``folder/split``.

    Args:
        folder: The root of the layout; made if missing.
        split: The split that every room belongs to.
        num_games: Number of games; task types have equal shares up to rounding.
        seed: Equal arguments give byte-equal files.
        settings: Sizes and types.
        dialect: How the games want objects put down; changes nothing else of note.

    Returns:
        The game files, sorted.

    Raises:
        EnvironmentBroken: The settings allow fewer different games than asked for, or ``alfworld``
            is not installed.
    """
    layouts = sample_layouts(
        split=split, num_games=num_games, seed=seed, settings=settings or LayoutSettings()
    )
    return sorted(
        write_game(folder / split, layout=layout, seed=seed, dialect=dialect) for layout in layouts
    )


def sample_layouts(
    *, split: Split, num_games: int, seed: int, settings: LayoutSettings
) -> Iterator[Layout]:
    """The layouts behind `generate_games`: different from each other, and all of ``split``."""
    seen: set[str] = set()
    for index in range(num_games):
        task_type = settings.task_types[index % len(settings.task_types)]
        layout = _sample_new(
            random.Random(f"alfworld|{seed}|{split}|{index}"),  # noqa: S311  no secret
            task_type=task_type,
            split=split,
            seen=seen,
            settings=settings,
        )
        seen.add(layout.digest)
        yield layout


def _sample_new(
    rng: random.Random,
    *,
    task_type: TaskType,
    split: Split,
    seen: set[str],
    settings: LayoutSettings,
) -> Layout:
    for _ in range(_MAX_DRAWS_A_GAME):
        layout = sample_layout(rng, task_type=task_type, settings=settings)
        if layout is None or split_of(layout) != split or layout.digest in seen:
            continue
        if layout.is_solved_by(layout.walkthrough()) and not layout.is_solved_by([]):
            return layout
    raise EnvironmentBroken(
        f"no further game of type {task_type} after {_MAX_DRAWS_A_GAME} draws ({len(seen)} made); "
        "ask for fewer games, more objects, more receptacles or more rooms"
    )


def split_of(layout: Layout) -> Split:
    """The one split that the layout's room belongs to."""
    return "valid_unseen" if int(layout.room_digest[:8], 16) % _EVAL_SHARE == 0 else "train"


def write_game(folder: Path, *, layout: Layout, seed: int, dialect: Dialect = Dialect.MOVE) -> Path:
    """Writes one game below ``folder`` and returns its game file."""
    task = f"{layout.task_type}-{layout.object_kind}-None-{layout.target_kind}-{layout.room}"
    trial = folder / task / f"trial_T{layout.digest[:16]}"
    trial.mkdir(parents=True, exist_ok=True)
    (trial / TRAJ_FILE).write_text(json.dumps(_traj_data(layout, trial=trial.name)))
    game = trial / GAME_FILE
    game.write_text(json.dumps(game_data(layout, seed=seed, dialect=dialect)))
    return game


def game_data(layout: Layout, *, seed: int, dialect: Dialect = Dialect.MOVE) -> GameData:
    """The game in the engine's own format. ``seed`` picks the wording of the task."""
    domain, grammar, goals = _engine_texts()
    walkthrough = layout.walkthrough()
    if dialect is Dialect.PUT:
        domain, grammar = older_domain(domain), older_grammar(grammar)
        walkthrough = [older_command(command) for command in walkthrough]
    goal, templates = goals[layout.task_type]
    rng = random.Random(f"{seed}|{layout.digest}")  # noqa: S311  no secret
    words = {
        "obj": layout.object_kind.lower(),
        "recep": layout.target_kind.lower(),
        "toggle": layout.target_kind.lower(),
    }
    goal = goal.format(
        obj=layout.object_kind, recep=layout.target_kind, toggle=layout.target_kind
    ).replace("#", "-")
    return GameData(
        pddl_domain=domain,
        grammar=grammar.replace("UNKNOWN GOAL", rng.choice(templates).format(**words)),
        pddl_problem=_problem(layout, goal=goal),
        solvable=True,
        walkthrough=walkthrough,
    )


@lru_cache(maxsize=1)
def _engine_texts() -> tuple[str, str, Mapping[TaskType, tuple[str, list[str]]]]:
    """Domain, grammar, and (goal, wordings) for each task type, from the installed package."""
    spec = find_spec("alfworld")
    if spec is None or spec.origin is None:
        raise EnvironmentBroken("package alfworld is not installed; generated games need its data")
    from alfworld.gen.goal_library import gdict

    data = Path(spec.origin).parent / "data"
    goals = {t: (str(gdict[t]["pddl"]), list(gdict[t]["templates"])) for t in TaskType}
    return (data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text(), goals


def _problem(layout: Layout, *, goal: str) -> str:
    """The PDDL problem. The parser wants the sections in this order; ``goal`` closes the form."""
    return "\n".join(
        [
            f"(define (problem plan_{layout.digest[:16]})",
            "(:domain alfred)",
            "(:objects",
            *(f"    {line}" for line in _declarations(layout)),
            ")",
            "(:init",
            *(f"    ({fact})" for fact in _facts(layout)),
            ")",
            goal,
        ]
    )


def _declarations(layout: Layout) -> list[str]:
    """Entities and types. The domain's rules name the last few types, so they are always there."""
    things = [thing for thing, _ in layout.places]
    otypes = sorted({thing.kind for thing in things} | {"Knife", "ButterKnife"})
    rtypes = sorted({r.kind for r in layout.receptacles} | {"SinkBasin", "Microwave", "Fridge"})
    return [
        "agent1 - agent",
        *(f"{kind}Type - otype" for kind in otypes),
        *(f"{kind}Type - rtype" for kind in rtypes),
        *(f"{thing.pddl} - object" for thing in things),
        *(f"{receptacle.pddl} - receptacle" for receptacle in layout.receptacles),
        *(f"{_location(i)} - location" for i in range(len(layout.receptacles) + 1)),
    ]


def _location(index: int) -> str:
    return f"loc_bar_{index:02d}"


def _facts(layout: Layout) -> list[str]:
    location = {r: _location(i) for i, r in enumerate(layout.receptacles, start=1)}
    facts = [f"atLocation agent1 {_location(0)}"]
    for receptacle in layout.receptacles:
        facts.append(f"receptacleType {receptacle.pddl} {receptacle.kind}Type")
        facts.append(f"receptacleAtLocation {receptacle.pddl} {location[receptacle]}")
        if receptacle.kind in rooms.OPENABLE:
            facts.append(f"openable {receptacle.pddl}")
    for thing, home in layout.places:
        facts.append(f"objectType {thing.pddl} {thing.kind}Type")
        facts.append(f"inReceptacle {thing.pddl} {home.pddl}")
        facts.append(f"objectAtLocation {thing.pddl} {location[home]}")
        facts += [f"{ability} {thing.pddl}" for ability in _abilities(thing)]
    kinds = sorted({thing.kind for thing, _ in layout.places})
    for receptacle_kind in sorted({r.kind for r in layout.receptacles}):
        held = rooms.RECEPTACLE_OBJECTS[receptacle_kind]
        facts += [f"canContain {receptacle_kind}Type {k}Type" for k in kinds if k in held]
    return facts


def _abilities(thing: Entity) -> list[str]:
    """Predicates that say what can be done to the object. A lamp can only be switched."""
    if thing.kind in rooms.LAMP_TYPES:
        return ["toggleable"]
    table = {
        "cleanable": rooms.CLEANABLE,
        "heatable": rooms.HEATABLE,
        "coolable": rooms.COOLABLE,
        "sliceable": rooms.SLICEABLE,
    }
    return ["pickupable", *(name for name, kinds in table.items() if thing.kind in kinds)]


def _traj_data(layout: Layout, *, trial: str) -> dict[str, object]:
    look = layout.task_type is TaskType.LOOK
    return {
        "task_id": trial,
        "task_type": str(layout.task_type),
        "pddl_params": {
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": layout.object_kind,
            "parent_target": "" if look else layout.target_kind,
            "toggle_target": layout.target_kind if look else "",
        },
        "scene": {"floor_plan": layout.room, "scene_num": 0},
        "turk_annotations": {"anns": []},
    }


def collect_games(folder: Path, split: str) -> list[Path]:
    """The solvable games of ``folder/split``, sorted by path.

    Skips what the published evaluation skips: trials with movable receptacles or sliced objects,
    and games that are marked unsolvable or have no mark.

    Returns:
        Paths of game files; empty when there are none.
    """
    games = sorted((folder / split).glob(f"*/*/{GAME_FILE}"))
    kept = [g for g in games if not any(w in str(g.parent) for w in ("movable", "Sliced"))]
    return [game for game in kept if _is_marked_solvable(game)]


def _is_marked_solvable(game: Path) -> bool:
    """Reads the mark near the end of the file without parsing megabytes of JSON."""
    text = game.read_bytes()
    position = text.rfind(b'"solvable":')
    return position >= 0 and text[position + 11 : position + 16].strip().startswith(b"true")


def load_game(game: Path) -> GameData:
    """Reads one game file.

    Raises:
        EnvironmentBroken: The file is missing, torn or lacks a part; names file and part.
    """
    return parse_game(read_game(game), name=str(game))


def read_game(game: Path) -> bytes:
    """The bytes of a game file; raises as `load_game`."""
    try:
        return game.read_bytes()
    except OSError as error:
        raise EnvironmentBroken(f"game file {game} cannot be read: {error}") from error


def parse_game(raw: bytes, *, name: str) -> GameData:
    """Parses the bytes of the game file ``name``; raises as `load_game`."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise EnvironmentBroken(f"game file {name} cannot be read: {error}") from error
    missing = {"pddl_domain", "grammar", "pddl_problem"} - set(
        data if isinstance(data, dict) else ()
    )
    if missing:
        raise EnvironmentBroken(f"game file {name} lacks {', '.join(sorted(missing))}")
    return GameData(
        pddl_domain=str(data["pddl_domain"]),
        grammar=str(data["grammar"]),
        pddl_problem=str(data["pddl_problem"]),
        solvable=bool(data.get("solvable")),
        walkthrough=[str(command) for command in data.get("walkthrough") or ()],
    )


_PROBLEM_NAME = re.compile(r"\(problem\s+[^)\s]*\)")


def game_digest(game: Path) -> str:
    """Names what is played: the household and the goal, whatever the file is called.

    The problem's name, white space and the wording of the task are left out.

    Raises:
        EnvironmentBroken: As `load_game`.
    """
    problem = _PROBLEM_NAME.sub("", load_game(game)["pddl_problem"])
    return hashlib.sha256(" ".join(problem.split()).encode()).hexdigest()


@lru_cache(maxsize=4096)
def task_type_of(game: Path) -> str:
    """The type that ``traj_data.json`` beside the game states; empty when it cannot be read."""
    try:
        return str(json.loads((game.parent / TRAJ_FILE).read_bytes())["task_type"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
