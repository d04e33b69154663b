# Two commands a newcomer needs: `make demo` and `make test`. Every other target says what it is for.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
PYTEST := $(BIN)/python -m pytest
# One more than the two cores it is meant for: a third of what the tests take is waiting for processes and sockets.
WORKERS ?= 3
# Else every program that the tests start, and every test module, is compiled again each time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: env test suite lint browser demo screenshots bench bench-control bench-gateway soak fuzz agents record-agents test-agents clean help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

env: $(VENV)/.made  ## the development environment in .venv

$(VENV)/.made: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Paceline needs Python 3.11 or newer; name it with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

test: env  ## everything: linters, types, layers, the whole suite
	@$(MAKE) --no-print-directory --jobs 2 lint suite

suite: env browser  ## the whole suite
	$(PYTEST) -n $(WORKERS)

lint: env  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

browser: env  ## a Chromium for the tests of the page, if there is none
	@scripts/browser.sh

screenshots: env browser  ## the pictures of the dashboard in docs/pictures/, at three widths, light and dark
	$(BIN)/python scripts/make_screenshots.py

demo: env  ## two campaigns through a 429 and a closed quota window, with a live view
	$(BIN)/python -m paceline demo

bench: env  ## raw cost against other libraries, as ratios in one run
	$(BIN)/python -m benchmarks.limiter
	$(BIN)/python -m benchmarks.stream
	$(BIN)/python -m benchmarks.store
	$(BIN)/python -m benchmarks.launch
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.api
	$(BIN)/python -m benchmarks.api_slots
	$(BIN)/python -m benchmarks.api_feed

bench-gateway: env $(BENCH)/.made  ## the gateway beside a bare proxy and LiteLLM, in one run
	$(BIN)/python -m benchmarks.gateway

$(BENCH)/.made:
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BENCH)/bin/python -m pip install --quiet --group bench
	@touch $@

bench-control: env  ## how well limits are found and held, against other policies, on simulated days
	$(BIN)/python -m benchmarks.control --out docs/control

soak: env  ## 100,000 seeds of the simulated world, and long random lives of store and engine
	$(PYTEST) -n $(WORKERS) -m soak

fuzz: env  ## ten minutes of mutated agent output (PACELINE_FUZZ_SECONDS)
	$(PYTEST) -m fuzz

agents: env  ## the real agent CLIs, pinned, into .agents/ (about 1.2 GB)
	scripts/agents.sh

record-agents: agents  ## run the real CLIs against FakeProvider; rewrites tests/detect/samples/recorded/
	$(BIN)/python scripts/record_agents.py

test-agents: agents  ## the real CLIs through limits and resume, against FakeProvider
	$(PYTEST) -m agents

clean:  ## removes the environment and all caches
	rm -rf $(VENV) $(BENCH) .pytest_cache .mypy_cache .ruff_cache .hypothesis
