#!/usr/bin/env bash
# Makes a virtual environment and installs a lock file into it, without resolving anything.
#   tools/install.sh VENV LOCK
# PYTHON: the interpreter to use. TORCH_INDEX: where pip finds torch's CPU build if its usual place
# has none. Running it again installs only what is missing.
set -euo pipefail
venv=$1 lock=$2

fail() {
    printf 'error: %s\n' "$@" >&2
    exit 2
}

is_311() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python; do
        if command -v "$candidate" >/dev/null && is_311 "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 found; install it (with its venv module), or name it: make PYTHON=/path/to/python3.11"
}

if ! [ -x "$venv/bin/python" ]; then
    python=$(find_python)
    echo "making $venv with $("$python" --version)"
    "$python" -m venv "$venv" || fail "$python cannot make a virtual environment; install its venv module"
fi
pip=("$venv/bin/python" -m pip install --no-deps --disable-pip-version-check -qq --progress-bar off)

# torch first: it is the one package that may live elsewhere, so a miss shows before the long part.
torch=$(grep '^torch==' "$lock")
echo "installing $torch"
if ! "${pip[@]}" "$torch"; then
    [ -n "${TORCH_INDEX:-}" ] || fail \
        "pip finds no $torch in its usual place" \
        "PyTorch keeps its CPU builds in an index of its own; its address is in the pip command that" \
        "PyTorch's install page shows for CPU. Run: make install TORCH_INDEX=<that address>"
    echo "trying the index in TORCH_INDEX"
    "${pip[@]}" --index-url "$TORCH_INDEX" "$torch" || fail "TORCH_INDEX has no $torch either"
fi
SECONDS=0
while sleep 20 >/dev/null 2>&1; do echo "  still installing, $SECONDS s"; done &
heartbeat=$!
trap 'kill "$heartbeat"' EXIT
echo "installing $(grep -c == "$lock") packages from $lock; a few minutes the first time"
"${pip[@]}" -r "$lock"
"${pip[@]}" --no-build-isolation --editable .
