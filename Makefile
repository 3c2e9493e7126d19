# make run    the whole pipeline on the data below data/ (the built-in data if there is none); again: only what has changed
# make full   three families at five label budgets (experiments/full)
# make test   the full test suite
# make check  lint, format, types and the quick tests
# make bench  speed and memory beside other libraries (after make run, on a machine with nothing else to do)
# make ui     the pages of the project until Ctrl-C; FLAGS=--servers adds those of MLflow and Prefect
# make lock   requirements.lock from requirements.in, keeping the versions that still fit
# make infra-check  the manifests of infra/ against their schemas and security policies

PYTHON ?= $(shell command -v python3.11 || echo python3)
UV := uv==0.13.8
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Wheels that pip would find beside its index; uv does not look there by itself.
LINKS := $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS))
# The policy checker of infra/ has an environment of its own: its pins conflict with Prefect's.
POLICY := $(VENV)/policy
FLAGS ?=
# Tests that fork training processes have a process of their own: a fork of one that has run Prefect and MLflow ends at once.
FORKING := tests/pretraining tests/training tests/test_cluster.py tests/models/layers/test_parallel.py

# Without .pyc files every stage waits two to three times as long for its imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install run full test check bench ui lock infra-check

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

install: $(INSTALLED)

# uv installs in a fifth of pip's time; where it cannot reach the index (settings that only pip reads), pip does it.
$(INSTALLED): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(UV)'
	$(BIN)/uv pip install --python $(BIN)/python --compile-bytecode $(LINKS) -r requirements.lock \
		|| $(BIN)/python -m pip install --disable-pip-version-check --compile -r requirements.lock
	$(BIN)/uv pip install --python $(BIN)/python --quiet --no-deps --editable . \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(POLICY)/.installed: infra/policy/requirements.txt | $(INSTALLED)
	$(PYTHON) -m venv --without-pip $(POLICY)
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
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --max-worker-restart 0 $(FORKING) $(FLAGS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(FORKING:%=--ignore=%) $(FLAGS)

check: $(INSTALLED) $(POLICY)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow" $(FLAGS)

bench: $(INSTALLED)
	$(BIN)/python benchmarks/training.py all
	$(BIN)/python benchmarks/tokenization.py data/domain/aws
	$(BIN)/python benchmarks/ingestion.py data/general data/domain/aws --megabytes 60
	$(BIN)/python benchmarks/inference.py
	$(BIN)/python benchmarks/serving.py

ui: $(INSTALLED)
	@$(BIN)/headstart ui $(FLAGS)

# CUDA's own packages are pinned by the torch wheel that needs them; +cpu is what one machine has, not what it must be.
lock:
	$(BIN)/uv pip compile --quiet --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
		--no-emit-find-links $(LINKS) requirements.in --output-file requirements.lock $(FLAGS)
	sed -i -e '/^\(nvidia-\|cuda-\|triton==\)/d' -e 's/+cpu$$//' requirements.lock

infra-check: $(INSTALLED) $(POLICY)/.installed
	$(BIN)/python -m pytest -q tests/infra
