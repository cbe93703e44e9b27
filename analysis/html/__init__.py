"""The HTML report: what pages show, their templates, and how they are written."""
