"""The smallest CLI agent: asks a model, runs the commands it calls for, tells JSON lines.

It is no part of the project: tests run it as a user's own agent would be, by config alone.

    python mini_cli.py BASE_URL PROMPT [--resume]

It speaks OpenAI's Chat Completions. Behaviours that tests want come by environment variables:
``MINI_HANG`` stays for so many seconds after its last line; ``MINI_EXIT`` is its exit code when the
model could not be asked (0, as a CLI in use does on a refused key, unless given).
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx

HISTORY = Path(os.environ["HOME"], "history.json")
TOOL = {
    "type": "function",
    "function": {
        "name": "shell",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}


def tell(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def ask(url: str, messages: list[dict[str, object]]) -> dict[str, object]:
    body = {"model": os.environ["MINI_MODEL"], "messages": messages, "tools": [TOOL]}
    headers = {"Authorization": "Bearer dummy"}
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    answer = reply.raise_for_status().json()
    message: dict[str, object] = answer["choices"][0]["message"]
    tell(type="usage", tokens=answer["usage"]["prompt_tokens"])
    return message


def main() -> int:
    url, prompt = sys.argv[1:3]
    messages = json.loads(HISTORY.read_text()) if "--resume" in sys.argv else []
    messages.append({"role": "user", "content": prompt})
    while True:
        try:
            message = ask(url, messages)
        except httpx.HTTPStatusError as error:
            tell(type="error", status=error.response.status_code)
            return int(os.environ.get("MINI_EXIT", "0"))
        messages.append(message)
        calls = message.get("tool_calls") or []
        assert isinstance(calls, list)
        for call in calls:
            command = json.loads(call["function"]["arguments"])["command"]
            tell(type="call", id=call["id"], tool="shell", command=command)
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, check=False
            )
            output = done.stdout + done.stderr
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
            tell(type="output", id=call["id"], text=output, failed=done.returncode != 0)
        if not calls:
            tell(type="done", text=message["content"])
            HISTORY.write_text(json.dumps(messages))
            time.sleep(float(os.environ.get("MINI_HANG", "0")))
            return 0


if __name__ == "__main__":
    sys.exit(main())
