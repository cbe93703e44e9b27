"""The reference agent, the benchmark's control: post-training by fixed recipes, no LLM involved.

    python -m rl_bench.agents.reference

runs inside a workspace, like any agent: it reads its environment and ``run_meta.json``, trains with
TRL, submits over HTTP and reads its scores. It depends on nothing of the runner.
"""

import os
import sys
import warnings
from types import ModuleType
from typing import cast


def main() -> int:
    """Runs the agent; 2 means that it was not set up properly."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    # TRL imports vLLM wherever it is installed, which takes longer than the rest together, and
    # warns of its version. This agent samples from the very weights it trains and needs none.
    sys.modules.setdefault("vllm", cast(ModuleType, None))
    warnings.filterwarnings("ignore", category=FutureWarning)
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    from rl_bench.agents.reference.session import Session
    from rl_bench.agents.reference.settings import SettingsError, read_job

    try:
        Session(read_job()).run()
    except SettingsError as error:
        sys.stderr.write(f"reference agent: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
