"""Renders chat templates, which are programs of an agent, away from the grader's process.

Run as a script. Each line of input is ``[template, chats, special tokens]`` as JSON, each line of
output ``{"texts": …}``, one a chat, or ``{"error": …}``. A template that computes for ever, or asks
for more memory than it may have, ends this process and nothing else.
"""

import json
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

MAX_MEMORY_BYTES = 1 << 30
MAX_CHARS = 4_000_000
ALARM_S = 30
"""Ends the process should whoever asked be gone; it would have given up long before."""


def answer(line: str) -> dict[str, Any]:
    """What one line of input comes to."""
    try:
        template, chats, special = json.loads(line)
        # Declared as a string, but it is a list of texts and one of spans.
        rendered: Any = render_jinja_template(
            chats, chat_template=template, add_generation_prompt=True, **special
        )
        texts = rendered[0]
        longest = max(map(len, texts), default=0)
        if longest > MAX_CHARS:
            return {"error": f"it renders {longest} characters"}
        return {"texts": texts}
    except Exception as error:  # noqa: BLE001  the template is the agent's: it may raise anything
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def main() -> None:
    """Answers until the input ends."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MAX_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        signal.alarm(ALARM_S)
        sys.stdout.write(json.dumps(answer(line)) + "\n")
        sys.stdout.flush()
        signal.alarm(0)


if __name__ == "__main__":
    main()
