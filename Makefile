# Every target makes what it needs from nothing: a machine with Python >= 3.11 and make is enough.
# VENV=<dir> shares one environment between clones; this clone's sources always win (PYTHONPATH).
VENV ?= .venv
PYTHON ?= python3
WORKERS ?= 2
DEMO ?= runs/demo
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)

.PHONY: demo test test-slow bench lint check format clean

# A stamp per set of requirements, inside the environment, so that a changed pin installs again and nothing else does.
REQUIREMENTS := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
DEV := $(VENV)/.dev-$(REQUIREMENTS)
BENCH := $(VENV)/.bench-$(REQUIREMENTS)

$(PY):
	$(PYTHON) -c 'import sys; sys.exit("cxrhf needs Python >= 3.11, this is " + sys.version.split()[0] + ". Next: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(DEV): | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(BENCH): $(DEV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	touch $@

demo: $(DEV)
	$(PY) -m cxrhf demo --out $(DEMO)

test: lint
	$(PY) -m pytest -n $(WORKERS) -m "not slow"

# Long checks: coverage of the intervals. Some 20 minutes on two cores.
test-slow: $(DEV)
	$(PY) -m pytest -m slow -s

bench: $(BENCH)
	$(PY) -m benchmarks

lint: $(DEV)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# Tests of the files changed since the last commit, or on this branch.
check: $(DEV)
	$(PY) -m pytest -m "not slow" $$($(PY) tests/changed.py)

format: $(DEV)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf runs build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
