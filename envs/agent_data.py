"""Where an agent's train data lie: the folder that its workspace names in ``DATA_PATH``.

Environments and protocols look here when nothing else is given, so that their plain names work in
an agent's workspace. Only train data are ever put there.
"""

import os
from pathlib import Path

VARIABLE = "DATA_PATH"


def find_agent_data(name: str) -> Path | None:
    """``name`` below the agent's data folder; ``None`` without a folder, or when it lacks it.

    In mode multi every task has a folder of its own there: the first that holds ``name`` counts.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    root = Path(folder)
    found = (place for place in (root / name, *sorted(root.glob(f"*/{name}"))) if place.exists())
    return next(found, None)
