PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Python compiles what is imported; compiling all that is installed first takes longer than installing it.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile

FUZZ_SECONDS ?= 120
FUZZ_SEED    ?= 2

# Hundreds of tests start a Python, each of which would compile tcomp anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-all fuzz check lint format site clean

help: ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: $(VENV)/.demo ## set up, then run the main job: real programs, compiled, run and checked on this machine
	@for lesson in examples/[0-9]*.py; do echo; echo "== $$lesson"; $(BIN)/python "$$lesson" || exit 1; done

PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

test: $(VENV)/.dev ## set up, then run the tests: all but the long ones, ten to fifteen minutes on two cores
	$(PYTEST) -m "not long and not exhaustive"

test-long: $(VENV)/.dev ## run the tests that `make test` leaves out
	$(PYTEST) -m long

test-all: $(VENV)/.dev ## run every test
	$(PYTEST)

fuzz: $(VENV)/.dev ## try random programs for two minutes
	$(BIN)/tcomp fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --jobs 2

check: lint test fuzz ## lint, formatting, types, layers, the tests of `make test` and two minutes of random programs

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

site: $(VENV)/.docs ## write the documentation site to build/site, and check it
	$(BIN)/python -m docs.site

clean: ## remove everything that the other targets made
	rm -rf $(VENV) build dist out *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# A stamp per set of packages, so that the demo need not wait for the tests' tools.
$(VENV)/.demo: setup.cfg pyproject.toml | $(BIN)/python
	$(INSTALL) --editable '.[examples]'
	@touch $@

$(VENV)/.dev: setup.cfg pyproject.toml | $(BIN)/python
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.demo

# Public functions are read from the installed package, so what they import must be there.
$(VENV)/.docs: setup.cfg pyproject.toml | $(VENV)/.dev
	$(INSTALL) --editable '.[docs]'
	@touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
