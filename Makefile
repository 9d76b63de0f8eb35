# Every target sets up its own virtual environment in .venv; nothing has to be installed by hand.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
STAMP := .venv/.ready

.PHONY: help setup demo test test-all lint types unit format bench clean

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## Create .venv with pinned versions

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt torch==2.13.0 hatchling editables
	$(PIP) install -c constraints.txt --no-build-isolation -e '.[digits,dev]'
	touch $(STAMP)

demo: $(STAMP)  ## Predict a handful of architectures and draw γ by depth for norm placements (out/)
	$(BIN)/python examples/demo.py

test: lint types unit  ## Format, lint, types, tests and doctests: what CI runs

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/basedpyright

unit: $(STAMP)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2

test-all: lint types  ## The same with the slow scientific checks
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 -m 'slow or not slow'

format: $(STAMP)  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## Run the benchmarks (nothing else should run meanwhile)
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:  ## Remove the environment and everything generated
	rm -rf .venv out build dist .pytest_cache .ruff_cache .hypothesis
