# make quickstart   install and run a small real sweep      make check   format, lint, types
# make test         install what is missing, check, test    make lock    make the lock files anew
#
# KIND=cpu|gpu       which lock file; by default what this machine has
# PYTHON=...         the Python 3.11 that makes .venv
# TORCH_INDEX=...    an index with torch's CPU builds, if pip's usual place has none
# ARGS=...           more overrides for quickstart, more options for pytest

KIND ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
VENV := .venv
PY := $(VENV)/bin/python
LOCK := requirements/$(KIND).lock
STAMP := $(VENV)/.installed-$(KIND)
SOURCES := rl_bench envs actors analysis tools benchmarks tests

export PYTHON TORCH_INDEX

.PHONY: help quickstart test check format lock install clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

quickstart: install
	$(PY) -m rl_bench.sweep +experiment=quickstart $(ARGS)

test: check
	$(PY) -m pytest $(ARGS)

check: install
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy $(SOURCES)

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
