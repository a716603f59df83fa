# Two commands for everyone: make demo, make test. The rest is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export JAX_PLATFORMS ?= cpu
# the generator's notice about another generator
export NO_MKDOCS_2_WARNING := 1

# compiled test files are kept: to rewrite their assertions takes longer than to read them
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test test-long campaign realistic mutants check format bench bench-peers chaos fuzz catalogue docs pictures plain rooms clean

demo: $(VENV)/.package
	$(BIN)/noisewise demo

# one test of every contract: while you write
quick: $(VENV)/.developer
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --compile-lightly -m quick

# two processes, then what must not have company, then what drives a browser or is about every bit
test: $(VENV)/.developer
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --compile-lightly -m "not alone and not browser and not bits"
	$(BIN)/python -m pytest -q -m alone
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "browser or bits"

# what takes longer than the default suite should
test-long: $(VENV)/.developer
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --long -m long

# every sampler against every target; then the default on problems as analysts have them
campaign: $(VENV)/.developer
	PYTHONPATH=tests/helpers $(BIN)/python tests/campaigns/campaign.py --jobs 2
	$(MAKE) realistic

# nw.sample without a setting against answers computed without it, one problem at a time; OPTIONS="--only count --seeds 1"
realistic: $(VENV)/.developer
	PYTHONPATH=tests/campaigns $(BIN)/python -m realistic $(OPTIONS)

# statistical mistakes, planted one by one: do the tests catch them? OPTIONS="--only gibbs --jobs 2"
mutants: $(VENV)/.developer
	PYTHONPATH=tests/helpers:tests/campaigns $(BIN)/python -m mutants $(OPTIONS)

check: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.developer
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.developer
	$(BIN)/python benchmarks/foundation.py
	$(BIN)/python benchmarks/likelihood.py
	$(BIN)/python benchmarks/samplers.py

# Beside other libraries, each in its own environment under build/peers, and how cost grows; writes docs/benchmarks.md.
bench-peers: $(VENV)/.developer
	$(BIN)/python benchmarks/first_result.py --write
	$(BIN)/python benchmarks/forecasts.py --write
	$(BIN)/python benchmarks/peers.py --write
	$(BIN)/python benchmarks/threads.py --write
	$(BIN)/python benchmarks/scaling.py --write

# Random kills of running processes: none may lose or alter a draw. KILLS=100 for more of them.
KILLS ?= 30
chaos: $(VENV)/.developer
	$(BIN)/python tests/campaigns/chaos.py $(KILLS)
	$(BIN)/python tests/campaigns/chaos_engines.py $(KILLS)

docs: $(VENV)/.developer
	$(BIN)/mkdocs build

# every picture of the documentation, and the data files of tutorials
pictures: $(VENV)/.developer
	$(BIN)/python scripts/county_file.py docs/data
	$(BIN)/python scripts/tract_file.py docs/data
	$(BIN)/python scripts/pictures.py

# Installs as users have them, without and with each extra, in environments of their own; real commands in each.
plain: | $(BIN)/python
	$(BIN)/python scripts/plain_installs.py

# the picture of the rooms in CONTRIBUTING.md, from the imports as they are
rooms: $(VENV)/.developer
	$(BIN)/python scripts/rooms.py

# what follows from classes and pages: imports, the release file's schema, tables of the documentation, first digests of draws
catalogue: $(VENV)/.developer
	$(BIN)/python scripts/catalogue.py
	PYTHONPATH=tests/helpers $(BIN)/python tests/campaigns/same_draws.py --new

# Malformed files: each reader ends in success or in the library's own error. Atheris where it installs.
INPUTS ?= 100000
fuzz: $(VENV)/.developer
	$(PIP) hypothesis
	-$(PIP) atheris
	PYTHONPATH=tests/helpers:tests/campaigns $(BIN)/python -m fuzz.campaign $(INPUTS)

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
