# `make demo` and `make test` need only Python 3.11 or newer: they set up everything else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# By file name, so that the slow end-to-end tests start first. One worker more than cores, since many tests wait for processes.
PYTEST := $(BIN)/pytest -n $(shell expr $$(nproc) + 1) --dist worksteal
LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/deptry .

# For `test-oldest`: wheels only, since old source distributions may not build.
OLDEST := .venv-oldest
RELEASE := .venv-release
OLDEST_INSTALL := $(OLDEST)/bin/uv pip install -q -p $(OLDEST)/bin/python -c constraints.txt --only-binary :all:

# Compile modules once, not in each process that the tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all bench-quick test-oldest check lint wheel release-check docs browser clean

# Needs no network after installation: data and model are installed packages.
demo: export HF_HUB_OFFLINE := 1
demo: $(VENV)/ready
	$(BIN)/mteb run -t PosIR-Mini -m mteb/baseline-bm25s --output-folder results/demo -v 1
	$(BIN)/mteb run -t PosIR-Mini -m all-MiniLM-L6-v2 --output-folder results/demo -v 1
	$(BIN)/posir report results/demo

# The checks run in parallel with the tests, which leave a core idle while they wait for processes.
test: $(VENV)/ready-to-test
	($(LINT) && $(BIN)/mypy) & checks=$$!; $(PYTEST); tests=$$?; wait $$checks && exit $$tests

# Include tests marked `slow` and new random examples; then measure the speed of the commands on the idle machine.
test-all: check
	$(PYTEST) -m "" --hypothesis-profile random
	$(MAKE) bench-quick

# Ratios to bare jobs, compared with the last release (3 minutes). A ratio above 1.25 times the last fails.
bench-quick: $(VENV)/ready-to-test
	$(BIN)/python benchmarks/run_all.py --quick

# Direct dependencies in the oldest versions that pyproject.toml allows; indirect dependencies and test tools are current. pip
# installs PyTorch first, in the build that constraints.txt selects.
test-oldest:
	rm -rf $(OLDEST)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install -q uv
	$(OLDEST)/bin/pip install -q --no-deps -c constraints.txt torch
	$(OLDEST_INSTALL) --resolution lowest-direct -e ".[ray,train]"
	$(OLDEST_INSTALL) -e ".[test]"
	$(OLDEST)/bin/pytest -n auto --dist loadfile --no-loadscope-reorder

check: lint
	$(BIN)/mypy

lint: $(VENV)/ready-to-test
	$(LINT)

# Build the published files: an sdist, and a wheel from it.
wheel: $(VENV)/ready-to-test
	rm -rf dist
	$(BIN)/python -m build -q --no-isolation
	$(BIN)/twine check --strict dist/*

# Test as a new user: install the wheel in a new environment, and run the first block of the README.
release-check: wheel
	rm -rf $(RELEASE)
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install -q -c constraints.txt dist/*.whl
	mkdir $(RELEASE)/reader
	awk '/^```bash$$/ { inside = 1; next } inside && /^```$$/ { exit } inside' README.md > $(RELEASE)/first-block
	cd $(RELEASE)/reader && PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" bash -euxo pipefail ../first-block

# Build the documentation site in site/, with the reference and notebooks generated from the code. Broken links are errors.
docs: $(VENV)/ready-for-docs
	$(BIN)/python docs_site/reference.py
	$(BIN)/zensical build --clean --strict
	$(BIN)/posir leaderboard build --results $$(mktemp -d) --output site/board

# Without Chromium, tests of pages are skipped.
browser:
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e ".[demo]"
	touch $@

$(VENV)/ready-for-docs: $(VENV)/ready
	$(BIN)/pip install -q -c constraints.txt -e ".[docs]"
	touch $@

$(VENV)/ready-to-test: $(VENV)/ready
	$(BIN)/pip install -q -c constraints.txt -e ".[test]"
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(RELEASE) dist site docs/reference docs/papers results .mypy_cache .pytest_cache .ruff_cache .hypothesis
