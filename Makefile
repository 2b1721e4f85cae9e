# Everything runs inside .venv, which the first target that needs it makes. Run `make` to see the targets.

PYTHON ?= python3
ARGS ?=

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
VENV_PIP := $(VENV)/bin/pip
PIP_INSTALL := $(VENV_PYTHON) -m pip install --disable-pip-version-check -c constraints.txt
TORCH := $(shell grep '^torch==' constraints.txt)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help maze test lint bench install clean

help: ## list the targets
	@echo "usage: make TARGET [ARGS='...'] [PYTHON=python3.12]"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile

maze: $(VENV)/installed ## train the bundled tiny model on the maze; ARGS go to examples/train_maze.py
	$(VENV_PYTHON) examples/train_maze.py $(ARGS)

test: $(VENV)/installed-dev ## run the tests; ARGS go to pytest
	$(VENV_PYTHON) -m pytest $(ARGS)

lint: $(VENV)/installed-dev ## check style, format and types
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy
	$(VENV)/bin/lint-imports

bench: $(VENV)/installed-dev ## run every benchmarks/*.py; ARGS go to each
	@for script in benchmarks/*.py; do echo "$$script"; $(VENV_PYTHON) "$$script" $(ARGS) || exit 1; done

install: $(VENV)/installed-dev ## make .venv with everything that development needs

clean: ## remove caches and build outputs; .venv and runs stay
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# ensurepip writes pip last, so its presence says that the whole environment is there.
$(VENV_PIP):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
		|| { echo "VPO Gym needs Python 3.11, 3.12 or 3.13; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not to be found). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) lacks its venv module; install it (Debian and Ubuntu: the package python3-venv)." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A stamp is touched only after its pip command has succeeded. Torch goes first and alone: what is in .venv already, such as
# a build for the CPU that you chose, is kept if it is the pinned version, and nothing larger is fetched in its place.
$(VENV)/installed-torch: constraints.txt | $(VENV_PIP)
	$(PIP_INSTALL) $(TORCH)
	@touch $@

$(VENV)/installed: pyproject.toml constraints.txt $(VENV)/installed-torch
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt $(VENV)/installed-torch
	$(PIP_INSTALL) -e '.[dev]'
	@touch $(VENV)/installed $@
