# `make demo`, `make explore` and `make test`: each sets up what it needs in .venv.
#
#   make demo TORCH_INDEX=URL    takes torch from another package index (a CPU or CUDA build)
#   make test PYTHON=python3.12  uses another Python, 3.11 or newer

PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Where the results go, unless out/demo and out/demo-all will do.
OUT ?=
# One test worker per core, one torch thread per worker: threads of several workers would wait for
# each other.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo demo-all explore test lint format architectures docs clean

help:
	@echo "make demo      a head-ablation curve of a real language model, in minutes"
	@echo "make demo-all  all four studies in their quick form, as one web page"
	@echo "make explore   switch heads off on a local page, and watch the model think"
	@echo "make test      format, lint, types and all tests"
	@echo "make docs      the documentation as a site, in build/site/index.html"
	@echo "make format    format the code"
	@echo "make clean     remove .venv and build files (cached models stay: headcount cache clear)"

demo: $(VENV)/.run
	$(BIN)/headcount demo $(if $(OUT),--out $(OUT))

demo-all: $(VENV)/.math
	$(BIN)/headcount demo --all $(if $(OUT),--out $(OUT))

explore: $(VENV)/.explore
	$(BIN)/headcount explore

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

architectures: $(VENV)/.dev
	$(BIN)/python scripts/architectures.py

# Warnings, such as a link that leads nowhere, are errors.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -d build/pages docs build/site
	@echo "The documentation: build/site/index.html"

clean:
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "headcount needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt pip
	@touch $@

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/.made
	$(PIP) install --quiet --constraint constraints.txt \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

# One of the studies grades answers to maths problems.
$(VENV)/.math: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt --editable '.[math]'
	@touch $@

$(VENV)/.explore: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt --editable '.[explore]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt --group dev
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt --group docs
	@touch $@
