# Two commands for a new user: `make demo` and `make test`. Both make .venv first, once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
# The CPU build of torch is taken where there is no GPU; the plain one pulls gigabytes of CUDA.
TORCH_VERSION ?= 2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
DEMO_OUTPUT ?= demo-output
# Two for each core, for much of what tests do is waiting; each takes a gigabyte.
PYTEST_WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 8 ? 2 * cores : 16)))
QUICK := not slow and not gpu and not network and not nightly
WHEEL_VENV ?= build/wheel-venv
CLIENT_VENV ?= build/client-venv

BIN := $(VENV)/bin
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
TORCH_ALONE := -c /dev/null --rootdir=. --confcutdir=tests/models -p no:cacheprovider \
  -W ignore::pytest.PytestUnknownMarkWarning tests/models/kernels tests/models/math tests/models/forms tests/models/backends
# Errors alone: pip warns of every source that lacks a package.
PIP_QUIET := -m pip install -qq --disable-pip-version-check

# Installs torch into the environment $(1): first from the sources that pip is configured with, then
# from PyTorch's own index.
define install_torch
if nvidia-smi >/dev/null 2>&1 || [ "$$(uname -s)" != Linux ]; then \
  echo "Installing torch $(TORCH_VERSION) ..."; \
  $(1)/bin/python $(PIP_QUIET) "torch===$(TORCH_VERSION)"; \
else \
  echo "Installing torch $(TORCH_VERSION), CPU build ..."; \
  $(1)/bin/python $(PIP_QUIET) "torch==$(TORCH_VERSION)+cpu" 2>$(1)/torch.log \
  || { echo "pip's own sources do not have it; asking $(TORCH_INDEX)"; \
       $(1)/bin/python $(PIP_QUIET) --extra-index-url $(TORCH_INDEX) "torch==$(TORCH_VERSION)+cpu"; }; \
fi
endef

# Each process that the tests start would compile all our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow test-nightly c-check bench gpu lint format types wheel-check docs \
  newcomer pictures references screenshots clean

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/installed  ## Install, run a study on real digits, show its front, download the best model
	@$(BIN)/reflectory demo --out $(DEMO_OUTPUT)

test: lint types  ## Install, then lint, types, import rules and all quick tests
	@# tests/budgets.py orders the files.
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile \
	  --no-loadscope-reorder --durations 20 -m "$(QUICK)"

test-slow: $(VENV)/installed-test  ## The tests that take more than half a minute, or the network
	@$(BIN)/python -m pytest -m "(slow or network) and not gpu"

test-nightly: $(VENV)/installed-test  ## What `make test` samples, in full: each pair of variants
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) \
	  -m "nightly and not slow and not gpu and not network"

c-check: $(VENV)/installed-test  ## C files of all variants: gcc, clang, sanitizers, a Cortex-M4 in qemu
	@command -v gcc >/dev/null || { echo "gcc is needed: apt-get install gcc"; exit 1; }
	@for tool in clang:"clang libclang-rt-dev" arm-none-eabi-gcc:"gcc-arm-none-eabi libnewlib-arm-none-eabi" \
	    qemu-system-arm:qemu-system-arm; do \
	  command -v $${tool%%:*} >/dev/null \
	    || echo "$${tool%%:*} is not here and is left out: apt-get install $${tool#*:}"; \
	done
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.c_check $(if $(JOBS),-j $(JOBS))

bench: $(VENV)/installed-test  ## Time the CPU kernels on a quiet machine and keep the figures
	@# Peers that take part where they install; the second is compiled against torch.
	@$(BIN)/python $(PIP_QUIET) --no-deps --no-build-isolation geotorch torch-householder \
	  || echo "geotorch or torch-householder does not install here; the table says so."
	@$(BIN)/python -m tests.benchmarks.sequences --cpu --out deploy/docs/benchmarks/kernels.md
	@{ echo; $(BIN)/python -m tests.benchmarks.phases --cpu; } | tee -a deploy/docs/benchmarks/kernels.md
	@{ echo; $(BIN)/python -m tests.benchmarks.forms --cpu; } | tee -a deploy/docs/benchmarks/kernels.md
	@{ echo; $(BIN)/python -m tests.benchmarks.epochs --cpu; } | tee -a deploy/docs/benchmarks/kernels.md
	@{ echo; $(BIN)/python -m tests.benchmarks.kept_gates; } | tee -a deploy/docs/benchmarks/kernels.md
	@{ echo; $(BIN)/python -m tests.benchmarks.kept_gates --vendor; } | tee -a deploy/docs/benchmarks/kernels.md
	@{ echo; $(BIN)/python -m tests.benchmarks.structured; } | tee -a deploy/docs/benchmarks/kernels.md
	@{ echo; $(BIN)/python -m tests.benchmarks.libraries; } | tee -a deploy/docs/benchmarks/kernels.md

# Any Python with torch and pytest will do: the kernels' own tests and their benchmark need no more,
# nor the settings and fixtures of the others. The rest runs where it is installed. Most of the time
# goes into compiling kernels, which several processes do side by side.
gpu:  ## Tests and benchmark on a CUDA device, where there is one
	@if nvidia-smi >/dev/null 2>&1; then \
	  side_by_side=$$($(GPU_PYTHON) -c 'import xdist; print("-n 8")' 2>/dev/null || true); \
	  $(GPU_PYTHON) -m pytest $(TORCH_ALONE) -m gpu $$side_by_side; \
	  if $(GPU_PYTHON) -c "import boto3, numpy, optuna, psycopg, pytest_timeout, scipy" 2>/dev/null; then \
	    $(GPU_PYTHON) -m pytest -m gpu -W ignore::DeprecationWarning tests/search; \
	  fi; \
	  $(GPU_PYTHON) -m tests.benchmarks.gpu_sequences; \
	else \
	  echo "No GPU answers here (nvidia-smi): the tests and benchmarks for one were not run."; \
	fi

# Without its cache: that one does not notice when a new folder makes an import ours.
lint: $(VENV)/installed-test  ## Style, formatting and import rules
	@$(BIN)/ruff check --quiet --no-cache .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/lint-imports --no-logo

types: $(VENV)/installed-test  ## Static types
	@$(BIN)/pyright

format: $(VENV)/installed-test  ## Bring all files into form
	@$(BIN)/ruff check --quiet --no-cache --fix . || true
	@$(BIN)/ruff format .

wheel-check: $(VENV)/installed-test  ## Build the wheel, install it elsewhere, start the server from it
	@rm -rf dist $(WHEEL_VENV) $(CLIENT_VENV)
	@echo "Building the wheel ..."
	@mkdir -p build
	@$(BIN)/python -m build --wheel --outdir dist . >build/wheel.log 2>&1 || { cat build/wheel.log; exit 1; }
	@$(BIN)/python -m venv $(WHEEL_VENV)
	@# All that the wheel asks for is installed anew, but for torch itself, which is a gigabyte.
	@ln -s $(abspath $(BIN)/..)/lib/python3*/site-packages/{torch,torch-*,torchgen,functorch} \
	  $(abspath $(WHEEL_VENV))/lib/python3*/site-packages/
	@echo "Installing the wheel ..."
	@$(WHEEL_VENV)/bin/python $(PIP_QUIET) --no-compile "$$(echo dist/*.whl)[server]"
	@echo "Installing the client alone ..."
	@$(BIN)/python -m venv $(CLIENT_VENV)
	@$(CLIENT_VENV)/bin/python $(PIP_QUIET) --no-compile dist/*.whl
	@$(WHEEL_VENV)/bin/python -P tests/check_wheel.py deploy/examples/digits.json \
	  $(abspath $(CLIENT_VENV))/bin

docs: $(VENV)/installed-test  ## Build the documentation as a site, in dist/docs
	@$(BIN)/python $(PIP_QUIET) -e '.[docs]'
	@$(BIN)/zensical build --strict -f .zensical.toml

references: $(VENV)/installed-test  ## Write the reference pages from the code
	@$(BIN)/python -m tests.references

newcomer: $(VENV)/installed-test  ## Time the first hour: a clone, the demo, two tutorials as they are
	@$(BIN)/python -m tests.newcomer

screenshots: $(VENV)/installed-test  ## Photograph every page, wide and narrow, light and dark
	@$(BIN)/python -m tests.screenshots

pictures: $(VENV)/installed-test  ## Draw the pictures of the documentation
	@$(BIN)/python -m tests.pictures

clean:  ## Remove everything that these targets made
	rm -rf $(VENV) build dist .cache $(DEMO_OUTPUT) .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/torch:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12"; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(call install_torch,$(VENV))
	@touch $@

$(VENV)/installed: pyproject.toml | $(VENV)/torch
	@echo "Installing Reflectory ..."
	@$(BIN)/python $(PIP_QUIET) -e '.[server]'
	@touch $@

$(VENV)/installed-test: pyproject.toml | $(VENV)/torch
	@echo "Installing Reflectory and what its tests need ..."
	@$(BIN)/python $(PIP_QUIET) -e '.[test]'
	@touch $@ $(VENV)/installed
