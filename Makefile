# `make demo` and `make test` do all their own set-up; Python 3.11 or newer is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# In order of file name, which starts the slow end-to-end tests first.
PYTEST := $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all check wheel browser clean

demo: $(VENV)/ready
	$(BIN)/mteb run -t PosIR-Mini -m mteb/baseline-bm25s --output-folder results/demo -v 1
	$(BIN)/posir report results/demo

test: check
	$(PYTEST)

# With the tests marked `slow`.
test-all: check
	$(PYTEST) -m ""

check: $(VENV)/ready-to-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What would be published: an sdist, and a wheel built from it.
wheel: $(VENV)/ready-to-test
	rm -rf dist
	$(BIN)/python -m build -q --no-isolation
	$(BIN)/twine check --strict dist/*

# The tests of the page are skipped without Chromium.
browser:
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/ready-to-test: $(VENV)/ready
	$(BIN)/pip install -q -c constraints.txt -e ".[test]"
	touch $@

clean:
	rm -rf $(VENV) dist results .mypy_cache .pytest_cache .ruff_cache .hypothesis
