"""Turns what a page shows into one self-contained HTML file.

Everything that is put into a template is escaped. Style and script stand in each page, and its
content security policy allows these two by their hashes, images beside the page, and nothing else:
no request, no other script, no form, no frame.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.html.facts import run_facts, score_facts
from analysis.html.rows import ROWS
from analysis.html.words import FILTERS, printable
from rl_bench.whole_file import write_whole

FOLDER = Path(__file__).with_name("templates")
REFRESH_S = "refresh_s"


@cache
def environment() -> Environment:
    """The templates' environment; HTML is escaped without exception."""
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        auto_reload=False,
    )
    made.filters.update(FILTERS)
    made.filters.update(ROWS)
    made.filters.update(run_facts=run_facts, score_facts=score_facts)
    return made


def render(template: str, **shown: object) -> str:
    """A page.

    Args:
        template: Its file.
        shown: What it shows; ``refresh_s`` makes it load itself anew so often.
    """
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src 'self' file: data:; base-uri 'none'; form-action 'none'"
    )
    values = {REFRESH_S: 0, **shown}
    return environment().get_template(template).render(
        style=Markup(style),  # noqa: S704  our own file
        script=Markup(script),  # noqa: S704  our own file
        policy=policy,
        **values,
    )  # fmt: skip


def write(path: Path, text: str) -> int:
    """Writes a page whole: a reader sees the old one or the new one. Returns its size in bytes."""
    data = text.encode("utf-8", "replace")
    write_whole(path, data, is_shared=True)
    return len(data)


def _shown(value: object) -> object:
    """What a template prints: text of any origin loses what hides or turns its neighbours."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
