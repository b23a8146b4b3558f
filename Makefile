# Every target makes what it needs from nothing: a machine with Python >= 3.11 and make is enough.
# VENV=<dir> shares one environment between clones; this clone's sources always win (PYTHONPATH).
VENV ?= .venv
PYTHON ?= python3
WORKERS ?= 2
DEMO ?= runs/demo
DEMO_FLAGS ?=
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)
# Virtual machines may name AMX and not grant it: torch would die of an illegal instruction (see cxrhf/models/__init__.py).
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16
# Where a shell forbids bytecode, every process of the tests would compile all sources again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-slow bench golden results gallery docs lint check format clean

# A stamp per set of requirements, inside the environment, so that a changed pin installs again and nothing else does.
REQUIREMENTS := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
CORE := $(VENV)/.core-$(REQUIREMENTS)
DEV := $(VENV)/.dev-$(REQUIREMENTS)
BENCH := $(VENV)/.bench-$(REQUIREMENTS)
DOCS := $(VENV)/.docs-$(REQUIREMENTS)

$(PY):
	$(PYTHON) -c 'import sys; sys.exit("cxrhf needs Python >= 3.11, this is " + sys.version.split()[0] + ". Next: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# What the demo needs: the light core, the readers of pictures and of words, and what trains a network.
$(CORE): | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[data,words,train,vlm]"
	touch $@

# All that the tests run: also torch, transformers, gradio, and Chromium to look at the pages with.
$(DEV): | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,data,train,track,zeroshot,vlm,context,cluster,app]"
	touch $@ $(CORE)

# Debian's package; elsewhere name a browser with CHROMIUM=/path/to/chromium.
.PHONY: chromium
chromium:
	@test -n "$$CHROMIUM" || command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	|| { command -v apt-get >/dev/null && SUDO=$$(test "$$(id -u)" = 0 || echo sudo) \
	&& $$SUDO apt-get update -qq && $$SUDO env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	|| echo "no Chromium could be installed: tests of pages need it; set CHROMIUM=/path/to/chromium" >&2

$(BENCH): $(DEV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	touch $@

# Sphinx, MyST, furo: the pages fetch nothing from elsewhere.
$(DOCS): | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

demo: $(CORE)
	$(PY) -m cxrhf demo --out $(DEMO) $(DEMO_FLAGS)

# A thread each: two workers with two threads each would wait for one another on two cores.
test: lint chromium
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

# Long checks: coverage of intervals, nulls, kills, two processes, pages, real pip. An hour or more on two cores.
test-slow: $(DEV)
	$(PY) -m pytest -m slow -s

# Rows, cards and pages of fixed inputs against those kept in tests/golden. RENEW=audit/results,... keeps new ones.
golden: $(CORE)
	$(PY) -m tests.golden $(if $(RENEW),--renew $(RENEW))

bench: $(BENCH)
	$(PY) -m benchmarks

# Numbers, tables and figures of the README and the task pages. STEPS="nih compare" makes some of them.
results: $(CORE)
	$(PY) -m docs.results $(STEPS)

# Three finished pages to open from the documentation.
GALLERY := build/gallery/gallery
gallery: $(GALLERY)/nih.html $(GALLERY)/synthetic.html $(GALLERY)/reports.html

$(GALLERY)/nih.html: $(CORE)
	$(PY) -m cxrhf audit examples/nih_predictions.csv.gz --pretest from:age,sex,view,prior_labels --out build/nih --overwrite
	mkdir -p $(@D) && cp build/nih/report.html $@

$(GALLERY)/synthetic.html: demo
	mkdir -p $(@D) && cp $(DEMO)/report.html $@

$(GALLERY)/reports.html: demo
	$(PY) -m cxrhf audit $(DEMO)/writer/reports --out build/reports --overwrite
	mkdir -p $(@D) && cp build/reports/report.html $@

# The site; with the finished pages where `make gallery` has made them.
docs: $(DOCS)
	$(PY) -m sphinx -q -W --keep-going -b html docs build/docs
	@echo build/docs/index.html

lint: $(DEV)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --num-workers $(WORKERS)

# Tests of the files changed since the last commit, or by it.
check: $(DEV)
	$(PY) -m pytest -m "not slow" $$($(PY) tests/changed.py)

format: $(DEV)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf runs build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
