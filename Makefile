# Everything one does with the project. Needs `python3` (3.11 or newer, with its venv module) and make;
# the rest is installed into .venv: versions in requirements.lock to run the package, and those in
# requirements-dev.lock to work on it.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
INSTALLED_DEV := .venv/.installed-dev
# The lock files are complete, so there is nothing to resolve; what is never imported is never compiled.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-deps --no-compile
export MPLBACKEND := Agg
# Modules are compiled once, and not by each of the many processes that tests, clusters and jobs start.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install install-dev demo test test-all torture bench peers proof experiments docs lint dist view-page coastlines audit sbom clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv with the package (editable) and what it needs to run, in locked versions

install-dev: $(INSTALLED_DEV) ## the same, and the tools for tests, style and documentation

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("cagp_dist needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo '$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv  # one of another Python, or of other versions, is of no use
	@echo "Installing into .venv: 180 MB to download, 0.8 GB on disk; half a minute to a few minutes."
	$(INSTALL) --requirement requirements.lock
	$(INSTALL) --no-build-isolation --editable .
	@$(BIN)/python -m pip check
	@echo "Compiling for this processor."
	@$(BIN)/python -c 'import matplotlib.pyplot, cagp_dist.cli.display, cagp_dist.report.page, cagp_dist.service.run' & \
	    $(BIN)/python -m cagp_dist.preload && wait
	@touch $@

$(INSTALLED_DEV): $(INSTALLED) requirements-dev.lock
	@echo "Installing the tools for tests, style and documentation into .venv."
	$(INSTALL) --requirement requirements-dev.lock
	@$(BIN)/python -m pip check
	@echo "Compiling what tests need."  # and their modules, once and not in each process
	@$(BIN)/python -m pytest --collect-only -q > /dev/null & collecting=$$!; \
	    $(BIN)/python -m cagp_dist.preload --all && wait $$collecting
	@touch $@

demo: install ## run the main job on the built-in field: score table, maps, report
	$(BIN)/cagp demo --output out/demo

# Two processes at once, of one BLAS thread each: more of them would wait for each other. Which does what is
# decided in tests/conftest.py.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2

test: install-dev ## run all tests but the exhaustive ones
	$(PYTEST) -m "not exhaustive" $(PYTEST_ARGS)

test-all: install-dev ## run the tests of `make test` and measure their coverage, then the exhaustive ones (simulations, kills, other programs); hours
	$(PYTEST) -m "not exhaustive" --cov --cov-fail-under=90 $(PYTEST_ARGS)
	$(PYTEST) -m exhaustive $(PYTEST_ARGS)

torture: install-dev ## kill, freeze and damage what jobs run on; hours; TORTURE_ARGS="--scale 0.1" for less
	$(BIN)/python -m tests.torture $(TORTURE_ARGS)

bench: install ## measure speed and memory against NumPy and SciPy, as ratios in one run
	@$(BIN)/python -m cagp_dist.preload --all
	$(BIN)/python -m pipelines.benchmarks $(BENCH_ARGS)

peers: install ## measure speed, memory and scores of other programs (installed in .peers/) and of this package
	@$(BIN)/python -m cagp_dist.preload --all
	$(BIN)/python -m pipelines.benchmarks.peers $(PEERS_ARGS)

proof: install ## map public tables by this package and by others (installed in .peers/), and write docs/proof.md; PROOF_ARGS=--help lists them
	@$(BIN)/python -m cagp_dist.preload --all
	$(BIN)/python -m pipelines.proof $(PROOF_ARGS)

experiments: install ## run the experiments of the documentation at full length; hours; EXPERIMENTS_ARGS=--help lists them
	@$(BIN)/python -m cagp_dist.preload --all
	$(BIN)/python -m pipelines.experiments $(EXPERIMENTS_ARGS)

docs: install-dev ## build the documentation: check its English, run its pages; DOCS_SITE=FOLDER puts it beside other versions
	$(BIN)/python docs/prose.py
	$(BIN)/python -m sphinx -W --keep-going --quiet --show-traceback --jobs 2 -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"
	$(if $(DOCS_SITE),$(BIN)/python docs/versions.py docs/_build/html $(DOCS_SITE))

lint: install-dev ## check style, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

dist: install-dev ## build wheel and sdist in dist/, and try the wheel in an empty environment
	@rm -f dist/*.whl dist/*.tar.gz
	$(BIN)/python -m hatchling build
	$(BIN)/python -m tests.wheel dist/*.whl $(DIST_ARGS)

view-page: ## fetch the libraries of the page of `cagp view` anew, in locked versions; needs npm and the network
	cd cagp_dist/view/vendoring && npm ci --ignore-scripts --no-audit --no-fund && npm run build

coastlines: ## make coastlines, borders and lakes of maps anew from Natural Earth; needs npm and the network
	cd cagp_dist/cartography/vendoring && npm ci --ignore-scripts --no-audit --no-fund && npm run build

AUDIT := .audit/bin
AUDIT_INSTALLED := .audit/.installed

$(AUDIT_INSTALLED): requirements-audit.lock
	$(PYTHON) -m venv .audit
	$(AUDIT)/python -m pip --disable-pip-version-check install --quiet --no-deps --requirement requirements-audit.lock
	@touch $@

audit: $(AUDIT_INSTALLED) ## list known vulnerabilities of the locked versions; asks the Python Package Index
	$(AUDIT)/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement requirements.lock --requirement requirements-dev.lock

sbom: $(AUDIT_INSTALLED) ## list what is installed to run the package in dist/sbom.cdx.json (CycloneDX)
	@mkdir -p dist
	@PYTHONWARNINGS=ignore $(AUDIT)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.cdx.json requirements.lock
	@echo "wrote dist/sbom.cdx.json"

clean: ## remove what was built, but keep results in out/
	rm -rf .venv .audit docs/_build docs/reference/generated docs/jupyter_execute dist build
	find cagp_dist tests -name __pycache__ -prune -exec rm -rf {} +
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
