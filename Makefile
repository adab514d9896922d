# Everything one does with the project. Needs `python3` (3.11 or newer, with its venv module) and make;
# the rest is installed into .venv, from the versions in requirements.lock.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
export MPLBACKEND := Agg

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all bench peers docs lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv with the locked versions and the package itself (editable)

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("cagp_dist needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo '$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check
	@touch $@

demo: install ## the main job on the built-in field: score table, maps, report
	$(BIN)/cagp demo --output out/demo

test: install ## the tests, with line and branch coverage of at least 90 %
	$(BIN)/python -m pytest -m "not exhaustive" --numprocesses 2 --dist worksteal --cov --cov-fail-under=90 $(PYTEST_ARGS)

test-all: install ## these and the exhaustive ones: simulation, recovery, other programs, uncompiled code
	$(BIN)/python -m pytest --cov --cov-fail-under=90 $(PYTEST_ARGS)

bench: install ## speed and memory against NumPy and SciPy, as ratios of one run
	$(BIN)/python -m pipelines.benchmarks $(BENCH_ARGS)

peers: install ## speed, memory and scores of other programs (made in .peers/) beside ours
	$(BIN)/python -m pipelines.benchmarks.peers $(PEERS_ARGS)

docs: install ## the documentation, warnings are errors, the tutorial is executed
	$(BIN)/python -m sphinx -W --keep-going --quiet --show-traceback -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

lint: install ## style, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean: ## remove what was built, keep results in out/
	rm -rf .venv docs/_build docs/reference/generated docs/jupyter_execute dist build
	find cagp_dist tests -name __pycache__ -prune -exec rm -rf {} +
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
