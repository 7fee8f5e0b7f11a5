# Everything runs in a local virtual environment, made from nothing but Python and pip.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two cores are the smallest machine we support; more workers only help.
WORKERS ?= auto
# More requirements for pip, such as `PINS=jax==0.8.0`.
PINS ?=

.PHONY: help setup figure1 notebooks docs bench bench-long open-questions readme peers test test-slow test-oldest \
	check format clean

help:
	@echo "make figure1    set up, run the paper's study, write results/figure1/"
	@echo "make notebooks  set up, run every notebook from top to bottom, keep the outputs"
	@echo "make bench      the measurements of up to five minutes, and the pages that quote them"
	@echo "make bench-long  the others: hours"
	@echo "make open-questions  the results, figures and numbers of docs/open-questions.md: 25 minutes"
	@echo "make readme     README.md and docs/ with the figures of bench/results/"
	@echo "make peers      everyone else on the same releases: bench/results/peers.md"
	@echo "make test       set up, then lint, type-check and run the tests"
	@echo "make test-slow  the tests that take minutes"
	@echo "make test-oldest  the tests on the oldest jax, numpy and optax that are supported"
	@echo "make docs       the documentation, in docs/_build/html; broken references are errors"
	@echo "make format     format the code"

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"  # which knows dependency groups
	$(BIN)/python -m pip install --quiet --group dev --editable ".[all]" $(PINS)
	@touch $(READY)

setup: $(READY)

figure1: $(READY)
	$(BIN)/jaxprivnb figure1 --out results/figure1

# What would differ from one machine to the next without meaning anything is not kept.
notebooks: $(READY)
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace notebooks/*.ipynb \
	    --ExecutePreprocessor.timeout=1800 --ExecutePreprocessor.startup_timeout=1800 \
	    --ExecutePreprocessor.record_timing=False --ClearMetadataPreprocessor.enabled=True \
	    --ClearMetadataPreprocessor.preserve_nb_metadata_mask='{"kernelspec", ("language_info", "name")}'

# Every script ends by itself; `bench/run.py --help` says how to run some of them.
bench bench-long: $(READY)
	$(BIN)/python bench/run.py $(if $(filter bench-long,$@),--long)
	$(BIN)/python bench/readme.py

open-questions: $(READY)
	$(BIN)/python bench/run.py ladder convergence starts groups super_parent open_questions
	$(BIN)/python bench/readme.py

readme: $(READY)
	$(BIN)/python bench/readme.py

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

# In an environment of its own, with every lower bound of the package's own dependencies as a pin.
test-oldest:
	$(MAKE) setup VENV=.venv-oldest PINS="$$($(PYTHON) -c 'import tomllib; \
	project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*project["dependencies"])' | sed 's/>=/==/g')"
	.venv-oldest/bin/python -m pytest -n $(WORKERS) -m "not slow"

docs: $(READY)
	$(BIN)/python -m sphinx -W -n --keep-going -q -b html docs docs/_build/html

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .venv-oldest results docs/_build .pytest_cache .mypy_cache .ruff_cache
