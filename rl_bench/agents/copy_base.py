"""Control agent: submits the untouched base model, whose improvement is 0 by definition.

Speaks to the grading API as any agent does, with nothing but the standard library.
"""

import json
import os
import sys
import urllib.error
import urllib.request


def main() -> int:
    """Submits ``MODEL_PATH`` and prints the reply; 0 if it was graded."""
    request = urllib.request.Request(  # noqa: S310  the runner's own loopback URL
        f"{os.environ['GRADING_SERVER_URL']}/submit",
        data=json.dumps({"model_path": os.environ["MODEL_PATH"]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as reply:  # noqa: S310  likewise
            sys.stdout.write(reply.read().decode() + "\n")
    except urllib.error.HTTPError as error:
        sys.stderr.write(f"{error.code}: {error.read().decode()}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
