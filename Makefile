# One command each, from a fresh clone: make demo · make test · make check · make bench
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Workers of the test run; the machine's processors unless told otherwise.
WORKERS ?= auto

.PHONY: nightly help demo test gpu-test lint check mutate bench docs clean

help:
	@echo "make demo    a simulated fleet, live: watch an idle host go from notice to stopped"
	@echo "make test    set up everything and run the tests (installs real components where it may)"
	@echo "make gpu-test  the agent on this machine's own NVIDIA driver, at rest and under load"
	@echo "make check   format, lint, types, import rules, tests"
	@echo "make mutate  break the guard on purpose, place by place: a test must fail each time"
	@echo "make bench   measure the agent and the controller, print a table"
	@echo "make docs    write the pages that are generated from the code"

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "gpuwatch needs Python 3.11 or newer; $(PYTHON) is older. Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing; on Debian: apt install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/demo: $(VENV)/python pyproject.toml
	@$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/dev: $(VENV)/demo pyproject.toml
	@$(BIN)/python -m pip install --quiet --group dev
	@touch $@

demo: $(VENV)/demo
	@$(BIN)/gpuwatch demo $(ARGS)

test: $(VENV)/dev
	@sh tests/components.sh
	$(BIN)/pytest --numprocesses $(WORKERS) $(ARGS)

gpu-test: $(VENV)/dev
	GPUWATCH_GPU=real $(BIN)/pytest --numprocesses 0 tests/gpu $(ARGS)

lint: $(VENV)/dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

mutate: $(VENV)/dev
	@$(BIN)/python -m tests.mutate_guard

# Thousands of generated lives of fleets (P1 to P13), on all processors: hours.
nightly: $(VENV)/dev
	@GPUWATCH_LIVES=$(or $(LIVES),8000) $(BIN)/pytest -n0 tests/test_properties.py & \
	GPUWATCH_LIVES=$(or $(LIVES),8000) $(BIN)/pytest -n0 tests/test_properties_growth.py & wait

bench: $(VENV)/dev
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/demo
	$(BIN)/gpuwatch docs metrics > docs/METRICS.md
	$(BIN)/gpuwatch docs configuration > docs/CONFIGURATION.md
	$(BIN)/python -m gpuwatch.signals.recording > alerts/recording.yml

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
