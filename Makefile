# Everything runs in .venv, which the first target that needs it makes: with uv if it is there, else with pip.
# PYTHON=python3.12 chooses the interpreter (3.10 or newer).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEER := $(VENV)/.peer
# The original tracker, which ours is compared with. Without what it needs: of its files only one is loaded.
ORIGINAL := vllm-omni==0.30.0
UV := $(shell command -v uv 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup run test coverage lint format diagrams bench bench-quick bench-readme explore explore-join explore-time clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(READY) $(PEER)  ## make .venv with everything in it

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "cfg_fsm needs Python 3.10 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
ifneq ($(UV),)
	$(UV) venv --quiet --clear --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV)
	$(UV) pip install --quiet --python $(BIN)/python --editable '.[dev]'
else
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
endif
	@touch $@

$(PEER): $(READY)
ifneq ($(UV),)
	$(UV) pip install --quiet --python $(BIN)/python --no-deps '$(ORIGINAL)'
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps '$(ORIGINAL)'
endif
	@touch $@

run: $(READY)  ## run the engine on the recorded sample trace
	$(BIN)/cfg-fsm run --sample

test: $(READY) $(PEER)  ## run the tests
	$(BIN)/python -m pytest

coverage: $(READY) $(PEER)  ## run the tests and print the branch coverage
	$(BIN)/python -m pytest --cov --cov-report=term-missing

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
explore: $(READY)  ## drive the engine through every order of events: the larger scenarios, some minutes
	@$(MAKE) --no-print-directory -j2 explore-join explore-time

explore-join: $(READY)
	$(EXPLORE) --companions 3 --symmetry --together 2 --limits none

explore-time: $(READY)
	$(EXPLORE) --companions 3 --symmetry --together 1 --announced --not-streaming
	$(EXPLORE) --companions 2 --seconds 2 --together 2 --announced --not-streaming
	$(EXPLORE) --parents 2 --companions 1 --together 1 --limits none --announced --not-streaming

clean:  ## remove .venv and what the tools left
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
