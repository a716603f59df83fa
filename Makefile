# Two commands for everyone: make demo, make test. The rest is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export JAX_PLATFORMS ?= cpu

.PHONY: demo test test-long check format bench schema clean

demo: $(VENV)/.package
	$(BIN)/noisewise demo

# two processes, then what must not have company
test: $(VENV)/.developer
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not alone"
	$(BIN)/python -m pytest -q -m alone

# the longer tests, and every sampler against every target
test-long: $(VENV)/.developer
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --long -m long
	cd tests && ../$(BIN)/python campaign.py --jobs 2

check: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.developer
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.developer
	$(BIN)/python benchmarks/foundation.py
	$(BIN)/python benchmarks/likelihood.py
	$(BIN)/python benchmarks/samplers.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("noisewise needs Python 3.11 or newer, found " + sys.version.split()[0] + "; run make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.developer: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.package

schema: $(VENV)/.package
	$(BIN)/python -c 'import json, pathlib; from noisewise.release import current_schema; pathlib.Path("src/noisewise/release.schema.json").write_text(json.dumps(current_schema(), indent=2) + "\n")'
