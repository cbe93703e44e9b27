"""Makes small distributions with entry points, as an installer leaves them, for plug-ins' tests."""

from collections.abc import Mapping
from pathlib import Path


def install(
    site: Path,
    name: str,
    entries: Mapping[str, Mapping[str, str]],
    files: Mapping[str, str],
    *,
    version: str = "1.2",
) -> None:
    """Lays a distribution out in ``site``.

    Args:
        site: A folder on Python's path.
        name: Of the distribution.
        entries: Entry points: group, then name, then value.
        files: Its files' texts by their paths.
        version: Of the distribution.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in entries.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for path, text in files.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))
