# Start with `make demo` and `make test`. `make help` describes every target.
# Which Python makes the environments: the first that can. The tests are measured on 3.11, so it comes first. A name is
# not enough, because pyenv has names of versions that are not active.
CAN_MAKE_VENV = import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3; do \
  $$name -c '$(CAN_MAKE_VENV)' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
PYTEST := $(BIN)/python -m pytest
# One more than the two cores of the usual machine, because the tests spend a third of their time waiting for processes and sockets.
WORKERS ?= 3
# The size of a soak. 20,000 seeds and 2,000 nights take about 25 minutes on two cores.
SEEDS ?= 100000
NIGHTS ?= 20000
# The seeded days of the control benchmark, per family, scenario and policy, and their length in hours. One day of six
# hours takes about half an hour on two idle cores. That is an estimate: see benchmarks/control/NOTES.md.
DAYS ?= 1000
HOURS ?= 6
# How often `make test-repeat` runs all tests.
RUNS ?= 10
# Fails a test that takes a quarter of an hour, and prints where it stands.
export NO_HANG := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
# Allow bytecode files. Without them, every program and test module is compiled again in each run.
export PYTHONDONTWRITEBYTECODE :=

# Runs a command where there is no network but loopback. One namespace for all tests: they share one gateway.
OFFLINE = unshare $(if $(filter 0,$(shell id -u)),,--map-root-user) --net sh -c 'ip link set lo up && exec "$$@"' sh env INSIDE_PACELINE_TEST=1

.PHONY: env test suite test-repeat test-world lint browser demo screenshots bench bench-control bench-gateway bench-postgres soak fuzz agents openclaw record-agents test-agents test-openclaw test-chaos test-cluster clean help

help:  ## print this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

env: $(VENV)/.made  ## create the development environment in .venv

$(VENV)/.made: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

# An environment that does not run, or has an old Python, is made again.
IS_SOUND := $(shell $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo yes)
ifndef IS_SOUND
.PHONY: $(VENV)/.installed
endif

$(VENV)/.installed: pyproject.toml
ifndef IS_SOUND
	@$(or $(PYTHON),false) -c '$(CAN_MAKE_VENV)' 2>/dev/null || { \
	  echo "Paceline needs Python 3.11 or newer with venv (on Debian: apt install python3-venv)."; \
	  echo "$(if $(PYTHON),$(PYTHON) is not that,None was found); name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	$(PYTHON) -m venv --clear $(VENV)
endif
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

test: env  ## run linters, type checks, layer checks and all tests
	@$(MAKE) --no-print-directory --jobs 2 lint suite

suite: env browser  ## run all tests
	@scripts/test_programs.sh
	$(PYTEST) -n $(WORKERS) --dist worksteal -rfEs --slowest 100 $(NO_HANG)

test-repeat: env browser  ## run all tests RUNS times, every second time in random order beside two busy cores
	@scripts/test_programs.sh
	@WORKERS=$(WORKERS) $(BIN)/python scripts/repeat_suite.py $(RUNS)

test-world: env  ## run three times as many lives of the simulated world as `make test` does
	PACELINE_WORLD=full $(PYTEST) -n $(WORKERS) tests/testing/test_world.py

lint: env  ## run ruff, mypy --strict and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.tidy --warn

browser: env  ## install a Chromium for the tests of the dashboard, if there is none
	@scripts/browser.sh

screenshots: env browser  ## make the pictures of the dashboard in docs/pictures/, at three widths, light and dark
	$(BIN)/python scripts/make_screenshots.py

demo: $(VENV)/.installed  ## run two campaigns through a 429 and a closed quota window, with a live view
	$(BIN)/python -m paceline demo

bench: env  ## compare the cost with other libraries, as ratios in one run
	$(BIN)/python -m benchmarks.limiter
	$(BIN)/python -m benchmarks.stream
	$(BIN)/python -m benchmarks.noise
	$(BIN)/python -m benchmarks.store
	$(BIN)/python -m benchmarks.launch
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.fleet
	$(BIN)/python -m benchmarks.api
	$(BIN)/python -m benchmarks.worker
	$(BIN)/python -m benchmarks.api_slots
	$(BIN)/python -m benchmarks.api_feed

bench-gateway: env $(BENCH)/.made  ## compare the gateway with a bare proxy and LiteLLM, in one run
	$(BIN)/python -m benchmarks.gateway

$(BENCH)/.made:
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BENCH)/bin/python -m pip install --quiet --group bench
	@touch $@

bench-postgres: env  ## compare the PostgreSQL store with SQLite, procrastinate and pgqueuer, in one run
	$(BIN)/python -m pip install --quiet --group bench-postgres
	$(BIN)/python -m benchmarks.postgres
	$(BIN)/python -m benchmarks.api_slots --store postgres --clients 32 1000

bench-control: env  ## compare control policies on simulated days: useful work and 429s
	$(BIN)/python -m benchmarks.control --every-policy --out benchmarks/control/results --seeds $(DAYS) --hours $(HOURS)

soak: env  ## run SEEDS lives of the simulated world, NIGHTS of an engine, and long random tests of the stores
	$(PYTEST) -n $(WORKERS) -m soak --seeds $(SEEDS) --nights $(NIGHTS)

fuzz: env  ## run detection on mutated agent output for ten minutes (PACELINE_FUZZ_SECONDS)
	$(PYTEST) -m fuzz

agents: env  ## install the real agent CLIs at pinned versions into .agents/ (about 2 GB)
	scripts/agents.sh

openclaw: env  ## install the real OpenClaw and its Node.js at pinned versions into .agents/openclaw/ (about 800 MB)
	scripts/openclaw.sh

record-agents: agents openclaw  ## run the real CLIs against FakeProvider and rewrite tests/detect/samples/recorded/
	$(BIN)/python scripts/record_agents.py

test-agents: agents  ## test limits and resume with the real CLIs against FakeProvider
	$(PYTEST) -n $(WORKERS) -m agents tests/agents tests/simulation/provider

test-openclaw: openclaw  ## test the real OpenClaw, its CLI and its gateway, against FakeProvider without network
	$(OFFLINE) $(PYTEST) -n 0 -m openclaw tests/agents/test_openclaw_agents.py tests/executors/test_openclaw_child*.py

test-chaos: env  ## test faults and pressure of a real PostgreSQL server under a real daemon (about 8 minutes)
	@scripts/test_programs.sh
	$(PYTEST) -n 0 -s -m chaos tests/chaos
	$(PYTEST) -n 0 tests/store/test_postgres_connection.py

test-cluster: env  ## test workers on real SSH hosts, Slurm and Ray, in namespaces; as root (about 15 minutes)
	PYTHON=$(PYTHON) scripts/cluster.sh
	$(PYTEST) -n 0 -s -m cluster tests/cluster

clean:  ## remove the environments and all caches
	rm -rf $(VENV) $(BENCH) .venv-ray .pytest_cache .mypy_cache .ruff_cache .hypothesis
