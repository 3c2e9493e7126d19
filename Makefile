# make run    the whole pipeline on the data below data/ (the built-in data if there is none); again: only what has changed
# make full   three families at five label budgets (experiments/full)
# make test   a test of every contract
# make test-all  make test, then the slow tests: kills on nodes, whole fits, drills
# make check  lint, format, types and make test
# make bench  speed and memory beside other libraries (after make run, on a machine with nothing else to do)
# make ui     the pages of the project until Ctrl-C; FLAGS=--servers adds those of MLflow and Prefect
# make lock   requirements.lock from requirements.in, keeping the versions that still fit
# make infra-check  the manifests of infra/ against their schemas and security policies

# The newest is taken first; last the one that no test has run on.
VERSIONS := 3.13 3.12 3.11 3.14
UV := uv==0.13.8
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Succeeds on a version that Headstart supports, with what makes an environment (on Debian the package python3-venv).
SUPPORTED := import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
# The Python of .venv; where there is none, the newest on the path or of pyenv, for tests the machine's own before it.
# `make run PYTHON=python3.12` takes another, and replaces a .venv of another version.
ifndef PYTHON
PYTHON := $(shell for each in $(BIN)/python $(if $(filter test test-all check,$(MAKECMDGOALS)),python3) \
	$(foreach version,$(VERSIONS),python$(version) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(version).*/bin/python) python3; \
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

# Without .pyc files every stage waits two to three times as long for its imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install run full test test-all check bench ui lock infra-check replaced

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

install: $(INSTALLED)

# uv installs in a fifth of pip's time; where it cannot reach the index (settings that only pip reads), pip does it.
$(INSTALLED): requirements.lock pyproject.toml $(if $(REPLACED),replaced)
	@"$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null || { echo "make: Headstart needs Python 3.11 to 3.14 with its package" \
		"venv; $(or $(PYTHON),none of them) does not start or is another version; name one: make run PYTHON=python3.13" >&2; \
		exit 2; }
	"$(PYTHON)" -m venv $(REPLACED) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(UV)'
	$(BIN)/uv pip install --python $(BIN)/python --compile-bytecode $(LINKS) -r requirements.lock \
		|| $(BIN)/python -m pip install --disable-pip-version-check --compile -r requirements.lock
	$(BIN)/uv pip install --python $(BIN)/python --quiet --no-deps --editable . \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
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

test: $(INSTALLED) $(POLICY)/.installed
	$(TESTS) -m "not slow" $(FLAGS)

test-all: test
	$(TESTS) -m slow $(FLAGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory test

bench: $(INSTALLED)
	$(BIN)/python benchmarks/training.py all
	$(BIN)/python benchmarks/tokenization.py data/domain/aws
	$(BIN)/python benchmarks/ingestion.py data/general data/domain/aws --megabytes 60
	$(BIN)/python benchmarks/inference.py
	$(BIN)/python benchmarks/serving.py

ui: $(INSTALLED)
	@$(BIN)/headstart ui $(FLAGS)

# One file for all supported versions and systems. CUDA's own packages are pinned by the torch wheel that needs them.
lock:
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --no-header --no-annotate \
		--no-emit-index-url requirements.in --output-file requirements.lock $(FLAGS)
	sed -i '/^\(nvidia-\|cuda-\|triton==\)/d' requirements.lock

infra-check: $(INSTALLED) $(POLICY)/.installed
	$(BIN)/python -m pytest -q tests/infra
