"""Sphinx's settings: Markdown pages, a reference made anew from the code, broken links are errors.

make docs
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

project = "rl_bench"
author = "the rl_bench developers"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["build"]
html_theme = "furo"
html_title = "rl_bench"
# Headings are link targets; a link that leads to none of them, or to no file, is a warning, and
# `make docs` turns warnings into errors.
myst_heading_anchors = 4
nitpicky = True


def setup(app: Sphinx) -> None:
    """Writes the reference pages before every build."""
    app.connect("builder-inited", _write_reference)


def _write_reference(_app: Sphinx) -> None:
    from tools.reference_docs import write_pages

    write_pages(ROOT / "docs" / "reference")
