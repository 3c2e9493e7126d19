# make run    the whole pipeline on the data below data/ (the built-in data if there is none); again: only what has changed
# make full   three families at five label budgets (experiments/full)
# make test   a test of every contract
# make test-all  make test, then the slow tests: kills on nodes, whole fits
# make faults  faults during a retraining, and what has to follow (most of an hour)
# make check  lint, format, types and make test
# make bench  speed and memory beside other libraries (after make run, on a machine with nothing else to do)
# make ui     the pages of the project until Ctrl-C; FLAGS=--servers adds those of MLflow and Prefect
# make lock   requirements.lock and requirements-test.lock from their .in files, keeping the versions that still fit
# make install  .venv; TORCH=cuda or TORCH=cpu names the build of torch, which is the machine's by default
# make infra-check  the manifests of infra/ against their schemas and security policies

# Looked for where the machine's python3 is not supported, in this order; last the one that no test has run on.
VERSIONS := 3.13 3.12 3.11 3.14
UV := uv==0.13.8
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# What only tests, lint and export need.
TESTED := $(VENV)/.installed-test
# Build of torch: the machine's (auto), cuda or cpu; as in .venv where none is named.
TORCH_OF := $(shell cat $(VENV)/.torch 2>/dev/null)
TORCH ?= $(or $(TORCH_OF),auto)
# Succeeds on a version that Headstart supports, with what makes an environment (on Debian the package python3-venv).
SUPPORTED := import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
# The Python of .venv; where there is none, the machine's, or if that is not supported, another on the path or of pyenv.
# `make run PYTHON=python3.12` takes another, and replaces a .venv of another version.
ifndef PYTHON
PYTHON := $(shell for each in $(BIN)/python python3 \
	$(foreach version,$(VERSIONS),python$(version) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(version).*/bin/python); \
	do "$$each" -c '$(SUPPORTED)' 2>/dev/null && { echo "$$each"; break; }; done)
endif
version = $(shell "$(1)" -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null)
REPLACED := $(if $(filter-out "$(call version,$(BIN)/python)","$(call version,$(PYTHON))"),--clear)
# Wheels that pip would find beside its index; uv does not look there by itself.
LINKS := $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS))
# The policy checker of infra/ has an environment of its own: its pins conflict with Prefect's.
POLICY := $(VENV)/policy
FLAGS ?=
# `load` gives a process its tests in the order of tests/conftest.py: those that fork come first.
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist load --max-worker-restart 0

# Python writes a .pyc file of what it imports, 5,600 of the 26,000 files of .venv; without them every stage waits two to
# three times as long for its imports.
unexport PYTHONDONTWRITEBYTECODE

UVPIP := $(BIN)/uv pip install --python $(BIN)/python
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile
LOCKED := --universal --python-version 3.11 --fork-strategy fewest --no-header --no-annotate --no-emit-index-url

.DEFAULT_GOAL := help
.PHONY: help install run full test test-all faults check bench ui lock infra-check replaced

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

install: $(INSTALLED)

# `auto` is uv's choice: the CPU build where there is no GPU. Where the index of these builds does not answer, the next
# step takes torch from the package index, whose build for Linux is that of CUDA.
TORCH_PIN = $(shell grep '^torch==' requirements.lock)
# A .venv with another build gets the named one.
TORCH_AGAIN := $(if $(filter-out $(TORCH),$(TORCH_OF)),--reinstall-package torch)
TORCH_auto = UV_HTTP_TIMEOUT=5 UV_HTTP_CONNECT_TIMEOUT=3 UV_HTTP_RETRIES=0 \
	$(UVPIP) --quiet --no-deps --dry-run --torch-backend auto $(TORCH_AGAIN) $(TORCH_PIN) 2>/dev/null \
	&& $(UVPIP) --no-deps --torch-backend auto $(TORCH_AGAIN) $(TORCH_PIN) || true
TORCH_cpu = UV_HTTP_CONNECT_TIMEOUT=5 UV_HTTP_RETRIES=1 \
	$(UVPIP) --no-deps --torch-backend cpu $(TORCH_AGAIN) $(TORCH_PIN) \
	$(if $(LINKS),|| $(UVPIP) --no-deps --no-index $(LINKS) $(TORCH_AGAIN) $(TORCH_PIN)) \
	|| { echo "make: TORCH=cpu: no CPU build of torch, its index does not answer; repeat it, or take TORCH=auto" >&2; exit 2; }
TORCH_cuda = $(UVPIP) --no-deps $(TORCH_AGAIN) $(TORCH_PIN) || $(PIP) --no-deps $(TORCH_PIN)

# uv installs in a fifth of pip's time; where it cannot reach the index (settings that only pip reads), pip does it.
$(INSTALLED): requirements.lock pyproject.toml $(if $(REPLACED)$(TORCH_AGAIN),replaced)
	@"$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null || { echo "make: Headstart needs Python 3.11 to 3.14 with its package" \
		"venv; $(or $(PYTHON),none of them) does not start or is another version; name one: make run PYTHON=python3.13" >&2; \
		exit 2; }
	@$(if $(filter auto cpu cuda,$(TORCH)),:,echo "make: TORCH=$(TORCH): must be auto, cpu or cuda" >&2; exit 2)
	"$(PYTHON)" -m venv $(REPLACED) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(UV)'
	@$(TORCH_$(TORCH))
	$(UVPIP) $(LINKS) -r requirements.lock || $(PIP) -r requirements.lock
	$(UVPIP) --quiet --no-deps --editable . || $(PIP) --quiet --no-deps --editable .
	@echo $(TORCH) > $(VENV)/.torch
	@touch $@

$(TESTED): requirements-test.lock $(INSTALLED)
	$(UVPIP) -r $< || $(PIP) -r $<
	@touch $@

$(POLICY)/.installed: infra/policy/requirements.txt | $(INSTALLED)
	$(BIN)/python -m venv --without-pip $(POLICY)
	$(BIN)/uv pip install --python $(POLICY)/bin/python --quiet -r $< \
		|| $(BIN)/python -m pip --python $(POLICY)/bin/python install --quiet --disable-pip-version-check -r $<
	@touch $@

data: | $(INSTALLED)
	$(BIN)/headstart data

run: $(INSTALLED) | data
	@$(BIN)/headstart retrain $(FLAGS)

full: $(INSTALLED) | data
	@$(BIN)/headstart retrain --params experiments/full/params.yaml $(FLAGS)

test: $(TESTED) $(POLICY)/.installed
	$(TESTS) -m "not slow and not faults" $(FLAGS)

test-all: test
	$(TESTS) -m slow $(FLAGS)

faults: $(TESTED)
	$(BIN)/python -m pytest -m faults tests/flows/faults $(FLAGS)

check: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory test

bench: $(TESTED)
	$(BIN)/python benchmarks/training.py all
	$(BIN)/python benchmarks/tokenization.py data/domain/aws
	$(BIN)/python benchmarks/ingestion.py data/general data/domain/aws --megabytes 60
	$(BIN)/python benchmarks/inference.py
	$(BIN)/python benchmarks/serving.py

ui: $(INSTALLED)
	@$(BIN)/headstart ui $(FLAGS)

# One file for all supported versions and systems. CUDA's own packages are pinned by the torch wheel that needs them.
lock:
	$(BIN)/uv pip compile --quiet $(LOCKED) requirements.in --output-file requirements.lock $(FLAGS)
	sed -i '/^\(nvidia-\|cuda-\|triton==\)/d' requirements.lock
	$(BIN)/uv pip compile --quiet $(LOCKED) --constraint requirements.lock requirements.in requirements-test.in \
		--output-file requirements-test.lock $(FLAGS)
	grep -v '^\(nvidia-\|cuda-\|triton==\)' requirements-test.lock | grep -vxFf requirements.lock > $(VENV)/lock
	mv $(VENV)/lock requirements-test.lock

infra-check: $(TESTED) $(POLICY)/.installed
	$(BIN)/python -m pytest -q tests/infra
