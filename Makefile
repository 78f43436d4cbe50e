# Every target sets up its own environment in .venv; all that is needed is Python 3.11 or newer, make and a network.

PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

BIN := .venv/bin
READY := .venv/.installed
PYTEST = $(BIN)/python -m pytest -q -rfEs -n $(WORKERS) --dist worksteal
EXTRAS := postgres,mysql,prices,parquet,plot,test,dev

.DEFAULT_GOAL := help
.PHONY: help demo test test-long lint format docs bench build clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1: \2/p' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "threadkeep needs Python 3.11 or newer as '$(PYTHON)'; say which one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@

demo: $(READY) ## Show a conversation stored, resumed and rendered for every provider
	$(BIN)/threadkeep demo

test: $(READY) ## Run the tests; ARGS='-k name' passes arguments to pytest
	$(PYTEST) $(ARGS)

test-long: export THREADKEEP_LONG = 1
test-long: $(READY) ## Run the tests with many more generated examples
	$(PYTEST) --timeout 3600 $(ARGS)

lint: $(READY) ## Check style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

docs: $(READY) ## Write the pages of docs/ that are printed from the code
	$(BIN)/python -m threadkeep.formats.compatibility > .venv/compatibility.md
	mv .venv/compatibility.md docs/compatibility.md

bench: $(READY) ## Run the benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

build: $(READY) ## Build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean: ## Remove the environment, builds and caches
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
