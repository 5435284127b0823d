# Everything runs in .venv, which the first target that needs it makes: with uv if it is there, else with pip. To run the
# engine takes little; the first target that tests or lints adds the rest.
# PYTHON=python3.12 chooses the interpreter (3.10 or newer).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed in it, one stamp each: what running needs; what testing and linting need; the original tracker.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
PEER := $(VENV)/.peer
EXTRAS := dev
# The original tracker, which ours is compared with. Without what it needs: of its files only one is loaded.
ORIGINAL := vllm-omni==0.30.0

UV := $(shell command -v uv 2>/dev/null)
ifneq ($(UV),)
MAKE_VENV = $(UV) venv --quiet --clear --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV)
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
else
MAKE_VENV = $(PYTHON) -m venv --clear $(VENV)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

# Tests run side by side, a file in one process: some of a file share what took long. WORKERS=0: all in this process.
WORKERS := auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# `make test-pythons` runs them on each of these that is there.
PYTHONS := 3.10 3.11 3.12 3.13
# The part of which every line and every branch must be tested: the engine, and the vocabulary.
CORE := cfg_fsm/engine/*,cfg_fsm/*.py
FLOOR := 100

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all test-pythons coverage lint format diagrams bench bench-quick bench-readme explore explore-join explore-time clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(READY) $(PEER)  ## make .venv with everything in it

$(RUNS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "cfg_fsm needs Python 3.10 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	$(MAKE_VENV)
	$(INSTALL) --editable .
	@touch $@

$(READY): $(RUNS)
	$(INSTALL) --editable '.[$(EXTRAS)]'
	@touch $@

$(PEER): $(READY)
	$(INSTALL) --no-deps '$(ORIGINAL)'
	@touch $@

run: $(RUNS)  ## run the engine on the recorded sample trace
	$(BIN)/cfg-fsm run --sample

test: $(READY) $(PEER)  ## run the tests; those that try many things try a part of them
	$(PYTEST) $(MEASURE)

test-all: $(READY) $(PEER)  ## run the tests, and try everything
	$(PYTEST) --full

test-pythons:  ## run the tests on each Python from 3.10 to 3.13 that is there
	@+MAKE='$(MAKE)' sh tests/pythons.sh $(PYTHONS)

coverage: MEASURE := --cov --cov-report=
coverage: test  ## run the tests of `test` and print the branch coverage; all of the engine must be covered
	$(BIN)/coverage report
	$(BIN)/coverage report --include='$(CORE)' --omit='*/__main__.py' --fail-under=$(FLOOR) --precision=2

lint: $(READY)  ## ruff and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## let ruff format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

diagrams: $(READY)  ## draw the state diagrams from the tables into diagrams/
	$(BIN)/python -m cfg_fsm.diagrams diagrams

bench: $(READY) $(PEER)  ## measure time and memory against peers; prints ratios
	$(BIN)/python -m tests.bench

bench-quick: $(READY) $(PEER)  ## the same with fewer rounds
	$(BIN)/python -m tests.bench --quick

bench-readme: $(READY) $(PEER)  ## the same as bench, and put the table into the README
	$(BIN)/python -m tests.bench --write README.md

# Two runs side by side, some six minutes and 1.1 GB in all. At most two faults of delivery on each way; symmetric
# over the companions; without strange events, which the tests send.
EXPLORE := $(BIN)/cfg-fsm explore --lean --budget 2 --faults lost,duplicated,reordered,reused,late
explore: $(RUNS)  ## drive the engine through every order of events: the larger scenarios, some minutes
	@$(MAKE) --no-print-directory -j2 explore-join explore-time

explore-join: $(RUNS)
	$(EXPLORE) --companions 3 --symmetry --together 2 --limits none

explore-time: $(RUNS)
	$(EXPLORE) --companions 3 --symmetry --together 1 --announced --not-streaming
	$(EXPLORE) --companions 2 --seconds 2 --together 2 --announced --not-streaming
	$(EXPLORE) --parents 2 --companions 1 --together 1 --limits none --announced --not-streaming

clean:  ## remove .venv and what the tools left
	rm -rf $(VENV) $(VENV)-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
