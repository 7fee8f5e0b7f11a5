# Everything runs in a local virtual environment, made from nothing but Python and pip.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two cores are the smallest machine we support; more workers only help.
WORKERS ?= auto

.PHONY: help setup figure1 peers test test-slow check format clean

help:
	@echo "make figure1    set up, run the paper's study, write results/figure1/"
	@echo "make peers      everyone else on the same releases: bench/results/peers.md"
	@echo "make test       set up, then lint, type-check and run the tests"
	@echo "make test-slow  the tests that take minutes"
	@echo "make format     format the code"

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $(READY)

setup: $(READY)

figure1: $(READY)
	$(BIN)/jaxprivnb figure1 --out results/figure1

# Each peer gets an environment of its own under .peers/; a stopped run goes on where it was.
peers: $(READY)
	PYTHONPATH=bench:. $(BIN)/python -m peers.run

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) results .pytest_cache .mypy_cache .ruff_cache
