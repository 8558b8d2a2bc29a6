# `make demo` and `make test` do all their own set-up; Python 3.11 or newer is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# In order of file name, which starts the slow end-to-end tests first; a worker more than cores, since many tests wait for processes.
PYTEST := $(BIN)/pytest -n $(shell expr $$(nproc) + 1) --dist worksteal

# For `test-oldest`: wheels only, since old source distributions may not build.
OLDEST := .venv-oldest
RELEASE := .venv-release
OLDEST_INSTALL := $(OLDEST)/bin/uv pip install -q -p $(OLDEST)/bin/python -c constraints.txt --only-binary :all:

# Modules are compiled once, and not by each of the many processes that tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all bench-quick test-oldest check lint wheel release-check docs browser clean

# Needs no network once the environment is there: data and model are installed packages.
demo: export HF_HUB_OFFLINE := 1
demo: $(VENV)/ready
	$(BIN)/mteb run -t PosIR-Mini -m mteb/baseline-bm25s --output-folder results/demo -v 1
	$(BIN)/mteb run -t PosIR-Mini -m all-MiniLM-L6-v2 --output-folder results/demo -v 1
	$(BIN)/posir report results/demo

# Types are checked beside the tests, which leave a core idle at their end.
test: lint
	$(BIN)/mypy & types=$$!; $(PYTEST); tests=$$?; wait $$types && exit $$tests

# With the tests marked `slow`, and new random examples; then the speed of the commands, alone.
test-all: check
	$(PYTEST) -m "" --hypothesis-profile random
	$(MAKE) bench-quick

# Ratios to bare jobs next to those of the last release: 3 minutes. More than 1.25 times fails.
bench-quick: $(VENV)/ready-to-test
	$(BIN)/python benchmarks/run_all.py --quick

# With the oldest versions that pyproject.toml allows of everything that posir names; what those need is current, and so are the
# test tools. pip gets PyTorch first: the build that constraints.txt selects.
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
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/deptry .

# What would be published: an sdist, and a wheel built from it.
wheel: $(VENV)/ready-to-test
	rm -rf dist
	$(BIN)/python -m build -q --no-isolation
	$(BIN)/twine check --strict dist/*

# What a new user gets: the wheel in a fresh environment, and the first block of the README.
release-check: wheel
	rm -rf $(RELEASE)
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install -q -c constraints.txt dist/*.whl
	mkdir $(RELEASE)/reader
	awk '/^```bash$$/ { inside = 1; next } inside && /^```$$/ { exit } inside' README.md > $(RELEASE)/first-block
	cd $(RELEASE)/reader && PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" bash -euxo pipefail ../first-block

# The documentation site in site/, with the reference and the notebooks generated from the code. Broken links are errors.
docs: $(VENV)/ready-for-docs
	$(BIN)/python docs_site/reference.py
	$(BIN)/zensical build --clean --strict
	$(BIN)/posir leaderboard build --results $$(mktemp -d) --output site/board

# The tests of the page are skipped without Chromium.
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
