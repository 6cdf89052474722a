# `make help` lists the targets. Needs python3 (3.10 or newer, with venv), g++ and make.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
EXTRAS := demo,langchain,litellm,server,dev
INSTALLED := $(VENV)/.installed
PYTHON_SOURCES := build.py setup.py openjet_provider integrations examples tests tools bench
NATIVE_SOURCES = $(shell find native -name '*.h' -o -name '*.hpp' -o -name '*.cpp' -o -name '*.cu')

.PHONY: help venv native demo test lint ci soak gpu-record-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

venv: $(INSTALLED) ## create .venv with the package (editable) and what demo and tests need

$(INSTALLED): pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed" if sys.version_info < (3, 10) else 0)'
	@$(PY) -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	    { echo "Python's venv module is missing (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	@echo "Installing the package and what demo and tests need into $(VENV) (a minute or two) ..."
	@$(PY) -m pip install --disable-pip-version-check --quiet --editable '.[$(EXTRAS)]'
	@touch $@

native: venv ## compile what changed in native/
	@$(PY) build.py > /dev/null

demo: native ## four agents write and test code on one engine (openjet-tiny, CPU)
	$(PY) examples/coding_crew.py

test: native ## the test suite, at most 10 minutes on 2 cores
	$(PY) -m pytest

lint: venv ## ruff, mypy --strict, clang-format
	$(PY) -m ruff check $(wildcard $(PYTHON_SOURCES))
	$(PY) -m ruff format --check $(wildcard $(PYTHON_SOURCES))
	$(PY) -m mypy
	$(VENV)/bin/clang-format --dry-run -Werror $(NATIVE_SOURCES)

ci: ## everything that guards the main branch, at most 30 minutes
	.ci/run

soak: native ## full-size runs, recorded in bench/results/soak.json
	$(PY) tools/soak.py

gpu-record-check: ## does a recorded GPU run cover these native sources?
	@$(PYTHON) tools/gpu_record_check.py

clean: ## remove what was built, .venv included
	rm -rf $(VENV) build openjet_provider/_lib *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
