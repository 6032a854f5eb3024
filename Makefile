# The contributor's interface. It needs python3 (3.11 or newer), make and git. Everything else is fetched into .venv/.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# One stamp file for each set of libraries. A set is installed when a target first needs it, and again when
# pyproject.toml changes.
RUN_READY    := $(VENV)/.ready-run
AGENTS_READY := $(VENV)/.ready-agents
READY        := $(VENV)/.ready
LONG_READY   := $(VENV)/.ready-long
BROWSER_READY := $(VENV)/.ready-browser
CHECK_READY  := $(VENV)/.ready-check
SETUP_READY  := $(VENV)/.ready-setup
VENV_READY   := $(VENV)/.ready-venv
# Modules are compiled when they are first imported. Compiling all of them takes a third of an installation's time.
INSTALL      := $(BIN)/python -m pip install --disable-pip-version-check --no-compile
# These build the package itself, here and for `make wheel`. The lowest version is that of pyproject.toml.
BUILD_TOOLS  := 'hatchling>=1.27' editables
SHOW         := $(PYTHON) scripts/show_progress.py
COMPILE      := $(SHOW) "compiling it for the first start" $(BIN)/python -c 'import wakeful.cli, wakeful.service.wiring, wakeful.agents.process'
# External coding agents, each in a folder of its own below .acp/, because npm keeps one tree in a folder.
AGENTS := claude=@agentclientprotocol/claude-agent-acp@0.99.1 opencode=opencode-ai@1.18.33 \
          codex=@agentclientprotocol/codex-acp@2.6.0 gemini=@google/gemini-cli@0.61.0
# Install Chromium if we are root. Otherwise print the command for it; the tests are then skipped, and say so.
FIND_CHROMIUM := command -v chromium > /dev/null || command -v google-chrome > /dev/null || \
  { [ "$$(id -u)" = 0 ] && apt-get install -y chromium; } || echo "NO CHROMIUM HERE: apt install chromium" >&2
# `make test PYTEST="-k payroll -x"` passes further arguments to pytest.
PYTEST ?=
# `make test-storm SEEDS=200` runs so many random histories.
SEEDS ?= 10
# `make soak MINUTES=60` watches the memory of a busy daemon for so long.
MINUTES ?= 60
# Three on two cores, because tests of real daemons wait a fifth of their time.
WORKERS ?= 3
# Keep compiled modules, whatever the environment says. Hundreds of tests start a daemon, and compiling takes half a
# second of each.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run agents setup check format docs test test-long test-faults test-storm soak test-acp test-browser screenshots test-systemd test-mutants golden bench walk wheel clean

help: ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(RUN_READY) ## start the daemon here, on sessions.d/, in the foreground
	@echo "starting the daemon; Ctrl-C ends it"
	@exec $(BIN)/wakeful daemon --specs sessions.d --state .wakeful --socket .wakeful/wakeful.sock

agents: $(AGENTS_READY) ## fetch the libraries of sessions that think; a daemon that runs finds them
	@echo "sessions that think have their libraries; set a key with: $(BIN)/wakeful secret set ANTHROPIC_API_KEY"

setup: $(SETUP_READY) ## fetch all that contributors need: tests and agents as well
	@echo "$(BIN)/wakeful is in place, with what tests and agents need"

check: $(CHECK_READY) ## lint, format and types: what a machine can judge without running anything
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(CHECK_READY) ## sort imports and format
	$(BIN)/ruff check --select I --fix
	$(BIN)/ruff format

docs: $(READY) ## write what the pages have from the code: commands, lifecycle, tests of rules, the walk of a save
	$(BIN)/python scripts/write_commands_page.py
	$(BIN)/python scripts/write_lifecycle_page.py
	$(BIN)/python scripts/write_rules_page.py
	$(BIN)/python scripts/write_walk_page.py

test: $(READY) ## the suite, in three to nine minutes on two cores
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST)

test-long: $(LONG_READY) ## the tests that take longer, and other random examples than those of `make test`
	$(BIN)/python -m pytest -m long -n $(WORKERS) --dist worksteal $(PYTEST)
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile others $(PYTEST)

test-faults: $(READY) ## the faults that take longer: kills, shortages and damage put upon a real daemon
	$(BIN)/python -m pytest -m faults -n $(WORKERS) --dist worksteal $(PYTEST)

test-storm: $(READY) ## random histories of a real daemon, killed again and again (SEEDS=n)
	$(BIN)/python tests/storm/run.py --seeds $(SEEDS)

soak: $(READY) ## watch the memory of a busy daemon (MINUTES=n); leaves build/soak/soak.svg
	$(BIN)/python tests/soak/run.py --minutes $(MINUTES)

test-acp: $(READY) ## drive real coding agents over ACP (needs node and npm, fetches 1.3 GB into .acp/)
	@command -v npm > /dev/null || { echo "test-acp needs npm, which fetches the agents, and node, which runs them:  apt install npm" >&2; exit 1; }
	@for agent in $(AGENTS); do \
	  name=$${agent%%=*}; package=$${agent#*=}; ready=.acp/$$name/.ready-$${package##*@}; \
	  if [ ! -e "$$ready" ]; then \
	    echo "fetching $$package"; rm -rf ".acp/$$name"; mkdir -p ".acp/$$name"; \
	    npm install --prefix ".acp/$$name" --no-save --no-package-lock --no-audit --no-fund --loglevel error "$$package" && touch "$$ready" || exit 1; \
	  fi; \
	done
	$(BIN)/python -m pytest -m acp tests/external $(PYTEST)

test-browser: $(BROWSER_READY) ## click through the dashboard in a real Chromium (apt install chromium)
	@$(FIND_CHROMIUM)
	$(BIN)/python -m pytest -m browser tests/browser $(PYTEST)

screenshots: $(BROWSER_READY) ## take the pictures of docs/img from a real daemon
	@$(FIND_CHROMIUM)
	$(BIN)/python scripts/take_screenshots.py

test-systemd: $(READY) ## boot a real systemd in namespaces, with our units in it (as root)
	$(BIN)/python -m pytest -m 'long or not long' tests/test_systemd_units.py tests/systemd $(PYTEST)

test-mutants: $(READY) ## break each rule on purpose; the suite must notice
	$(BIN)/python tests/mutants/run.py

golden: $(READY) ## write the golden log of this release, after a kind of event or binding was added
	$(BIN)/python tests/golden/write_golden_log.py

bench: $(READY) ## measure, side by side with the alternatives
	$(BIN)/python bench/run.py

walk: $(RUN_READY) ## trace one real save, and print the functions it goes through
	@$(BIN)/python scripts/walk.py

wheel: $(RUN_READY) ## build dist/wakeful-*.whl
	@$(SHOW) "building the wheel" $(BIN)/python -m pip wheel --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/wakeful-*.whl

# .wakeful/ holds a log, not build results, so no target removes it.
clean: ## remove what setup, builds and tests made; .wakeful/ stays
	rm -rf $(VENV) .acp build dist .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.wakeful/*' -prune -exec rm -rf {} +

$(VENV_READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "wakeful needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one:  make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments: its modules venv and ensurepip are missing." >&2; \
	  echo "Debian and Ubuntu keep them in a package of their own:  apt install python3-venv" >&2; exit 1; }
	@$(SHOW) "making $(VENV)" $(PYTHON) -m venv $(VENV)
	@$(SHOW) "fetching what builds wakeful" $(INSTALL) $(BUILD_TOOLS)
	@touch $@

$(RUN_READY): $(VENV_READY)
	@$(SHOW) "fetching what running needs" $(INSTALL) --no-build-isolation --editable .
	@$(COMPILE)
	@touch $@

# Install all sets at once, which takes half the time of three installations.
$(SETUP_READY): $(VENV_READY)
	@$(SHOW) "fetching what running, tests, agents and checks need" $(INSTALL) --no-build-isolation --editable '.[test,agents,check]'
	@$(COMPILE)
	@touch $(RUN_READY) $(AGENTS_READY) $(READY) $(CHECK_READY) $@

$(AGENTS_READY): $(RUN_READY)
	@$(SHOW) "fetching what agents need" $(INSTALL) --no-build-isolation --editable '.[agents]'
	@touch $@

$(READY): $(RUN_READY)
	@$(SHOW) "fetching what tests and agents need" $(INSTALL) --no-build-isolation --editable '.[test,agents]'
	@touch $(AGENTS_READY) $@

$(LONG_READY): $(READY)
	@$(SHOW) "fetching what long tests need" $(INSTALL) --no-build-isolation --editable '.[test,agents,long]'
	@touch $@

$(BROWSER_READY): $(READY)
	@$(SHOW) "fetching what browser tests need" $(INSTALL) --no-build-isolation --editable '.[test,agents,browser]'
	@touch $@

# mypy also reads the types of the agents' libraries.
$(CHECK_READY): $(RUN_READY)
	@$(SHOW) "fetching what checks need" $(INSTALL) --no-build-isolation --editable '.[agents,check]'
	@touch $@
