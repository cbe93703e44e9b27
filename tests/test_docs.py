"""The documentation as a site: whole, without a broken link, and with a word on every setting."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from rl_bench import config, option_files
from rl_bench.config import Frozen
from tools import reference_docs

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LIMIT_S = 240.0
GENERATED = ("configuration", "grading_api", "commands")
CONF = """\
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
html_theme = "basic"
myst_heading_anchors = 4
nitpicky = True
"""


def build(source: Path, built: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` runs, to another folder."""
    flags = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(built / "trees")]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *flags, str(source), str(built / "html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def written() -> list[Path]:
    return sorted(DOCS.glob("*.md"))


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_every_page_is_reached(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    site = tmp_path / "html"
    reached, waiting = set(), {site / "index.html"}
    while waiting:
        page = waiting.pop()
        reached.add(page)
        waiting |= links(page, site) - reached
    expected = {site / f"{page.stem}.html" for page in written()}
    expected |= {site / "reference" / f"{name}.html" for name in GENERATED}
    assert expected <= reached
    assert any((site / "_downloads").rglob("openapi.json"))


def links(page: Path, site: Path) -> set[Path]:
    """Pages that the body of a page links to, its table of contents included."""
    body = page.read_text(encoding="utf-8").partition("<article")[2]
    paths = re.findall(r'href="([^"#:]+\.html)', body)
    return {path for name in paths if (path := (page.parent / name).resolve()).is_relative_to(site)}


@pytest.mark.parametrize(
    "link",
    ["[gone](no_such_page.md)", "[gone](#no-such-heading)", "![gone](no_such_picture.png)"],
)
def test_a_broken_link_fails(tmp_path: Path, link: str) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    (source / "conf.py").write_text(CONF)
    (source / "index.md").write_text(f"# Title\n\nText, {link}.\n")

    done = build(source, tmp_path / "built")

    assert done.returncode != 0
    assert "no_such" in done.stderr or "no-such" in done.stderr


def test_a_whole_page_passes(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "index.md").write_text("# Title\n\nText, [here](#title).\n")

    assert build(tmp_path, tmp_path / "built").returncode == 0


def test_the_theme_and_settings_of_the_small_site_are_those_of_the_docs() -> None:
    """Or a broken link might be found there and not here."""
    ours = (DOCS / "conf.py").read_text()
    for line in CONF.splitlines():
        assert line.startswith("html_theme") or line in ours


# --- the pages as a clone or a Git host shows them

LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


def linked(page: Path) -> Iterator[Path]:
    """What a page links to within the checkout, pictures included; code is no link."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        yield (page.parent / target).resolve()


def test_every_relative_link_leads_to_a_file_in_git() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a Git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tracked = {ROOT / name for name in listed.stdout.split("\0") if name}
    pages = [*ROOT.glob("*.md"), *written()]
    found = {page: list(linked(page)) for page in pages}
    assert DOCS / "quickstart.md" in found[ROOT / "README.md"]
    assert DOCS / "images" / "overview-light.png" in found[ROOT / "README.md"]
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page, targets in found.items()
        for target in targets
        if target not in tracked
    ]
    assert dead == []


# --- the reference


def config_classes() -> Iterator[type[Frozen]]:
    waiting: list[type[Frozen]] = [*reference_docs.GROUPS.values(), config.SweepConfig]
    seen: list[type[Frozen]] = []
    while waiting:
        cls = waiting.pop()
        if cls not in seen:
            seen.append(cls)
            yield cls
            waiting += [nested for _, nested in reference_docs.nested(cls)]


@pytest.mark.parametrize("cls", list(config_classes()), ids=lambda cls: cls.__name__)
def test_every_setting_has_a_meaning_and_no_other_is_described(cls: type[Frozen]) -> None:
    assert set(reference_docs.described(cls)) == set(cls.model_fields)


def test_nested_classes_are_looked_at_too() -> None:
    found = {cls.__name__ for cls in config_classes()}
    assert {"StreamRule", "JudgeConfig", "WandbConfig", "BlockConfig", "EndpointConfig"} <= found


def test_every_option_says_what_it_is() -> None:
    silent = [
        f"{group}={name}"
        for group in option_files.groups()
        for name in reference_docs.own_options(group)
        if not option_files.first_comments(group).get(name)
    ]
    assert silent == []


@pytest.fixture(scope="module")
def reference() -> str:
    return reference_docs.configuration()


def test_the_reference_has_every_group_option_and_key(reference: str) -> None:
    for group, cls in reference_docs.GROUPS.items():
        assert f"\n## {group}\n" in reference
        for key in cls.model_fields:
            assert f"| `{key}` |" in reference
    for group in option_files.groups():
        names = reference_docs.own_options(group)
        assert names
        assert all(f"`{group}={name}`" in reference for name in names)


def test_the_reference_in_git_is_what_the_code_says(reference: str) -> None:
    page = DOCS / "reference" / "configuration.md"
    made = "python tools/reference_docs.py docs/reference"
    assert page.read_text(encoding="utf-8") == reference, f"behind the code: {made}"


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (str, "text"),
        (int | None, "integer, or `null`"),
        (tuple[str, ...], "list of text"),
        (Literal["a", "b"], "`a`, `b`"),
        (config.Api, "`anthropic`, `openai`, `google`"),
        (config.Setting, "plain value"),
        (dict[str, Path], "mapping to path"),
        (config.Seeds, "list of integer ≥ 0"),
        (config.JudgeConfig | None, "keys of its own, or `null`"),
    ],
)
def test_types_are_in_the_words_of_who_writes_them(annotation: object, words: str) -> None:
    assert reference_docs.type_name(annotation) == words


def test_bounds_stand_at_the_type() -> None:
    field = config.TaskConfig.model_fields["num_eval"]
    said = reference_docs.type_name(field.annotation, field.metadata)
    assert said == "integer > 0 ≤ 100000, or `null`"


def test_a_type_without_words_is_an_error() -> None:
    with pytest.raises(TypeError, match="no words for"):
        reference_docs.type_name(frozenset[str])


def test_the_grading_api_page_has_every_route_and_body() -> None:
    page = reference_docs.grading_api(reference_docs.api_schema())
    for route in ("POST /submit", "GET /scores", "GET /time", "GET /health"):
        assert f"\n## {route}\n" in page
    links_of = set(re.findall(r"\]\(#(\w+)\)", page))
    headings = {name.lower() for name in re.findall(r"^### (\w+)$", page, re.M)}
    assert links_of <= headings
