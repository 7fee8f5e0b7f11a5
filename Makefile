# Everything runs in a local virtual environment, made from nothing but Python and pip.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two cores are the smallest machine we support; more workers only help.
WORKERS ?= auto

.PHONY: help setup figure1 notebooks docs peers test test-slow check format clean

help:
	@echo "make figure1    set up, run the paper's study, write results/figure1/"
	@echo "make notebooks  set up, run every notebook from top to bottom, keep the outputs"
	@echo "make peers      everyone else on the same releases: bench/results/peers.md"
	@echo "make test       set up, then lint, type-check and run the tests"
	@echo "make test-slow  the tests that take minutes"
	@echo "make docs       the documentation, in docs/_build/html; broken references are errors"
	@echo "make format     format the code"

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $(READY)

setup: $(READY)

figure1: $(READY)
	$(BIN)/jaxprivnb figure1 --out results/figure1

notebooks: $(READY)
	$(BIN)/python notebooks/execute.py

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

docs: $(READY)
	$(BIN)/python -m sphinx -W -n --keep-going -q -b html docs docs/_build/html

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) results docs/_build .pytest_cache .mypy_cache .ruff_cache
