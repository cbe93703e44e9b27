# make quickstart   install and run a small real sweep      make check   format, lint, types
# make test         install what is missing, check, test    make lock    make the lock files anew
# make docs         build the documentation, broken links are errors
# make agents       install the published agents' CLIs, run each with the scripted driver
#
# KIND=cpu|gpu       which lock file; by default what this machine has
# PYTHON=...         the Python 3.11 that makes .venv
# TORCH_INDEX=...    an index with torch's CPU builds, if pip's usual place has none
# ARGS=...           more overrides for quickstart, more options for pytest
# JOBS=2             test files that run at the same time

KIND ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
JOBS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
LOCK := requirements/$(KIND).lock
STAMP := $(VENV)/.installed-$(KIND)
SOURCES := rl_bench envs actors analysis tools benchmarks tests docs/conf.py

export PYTHON TORCH_INDEX

.PHONY: help quickstart agents test check docs format lock install clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

quickstart: install
	$(PY) -m rl_bench.sweep +experiment=quickstart $(ARGS)

# Results in a folder of their own each time: a sweep that has finished is not run again.
agents: install
	$(PY) -m rl_bench.agents install all
	@results=$$(mktemp -d "$${TMPDIR:-/tmp}/rl_bench-agents-XXXXXX"); echo "results: $$results"; \
	$(PY) -m rl_bench.sweep +experiment=agents paths.results=$$results $(ARGS); code=$$?; \
	$(PY) -m tools.agents_table $$results/agents && exit $$code

test: check
	$(PY) -m pytest -n $(JOBS) --dist loadfile $(ARGS)

check: install
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy $(SOURCES)
	$(VENV)/bin/lint-imports --no-logo

docs: install
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/build
	@echo "docs/build/index.html"

format: install
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

lock: install
	$(PY) tools/lock.py cpu gpu $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX))

install: $(STAMP)

$(STAMP): $(LOCK)
	tools/install.sh $(VENV) $(LOCK)
	@rm -f $(VENV)/.installed-*
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
