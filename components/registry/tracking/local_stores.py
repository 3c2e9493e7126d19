"""MLflow's stores of a local database, which the worker of a run imports in advance. Two private functions of MLflow
are replaced, which take longer than the stages: each process would read all migrations, and each logged model compare
its requirements with all installed modules."""

import functools
from importlib import import_module
from typing import Any

for _store in ("tracking", "model_registry"):
    import_module(f"mlflow.store.{_store}.sqlalchemy_store")
_database: Any = import_module("mlflow.store.db.utils")
_requirements: Any = import_module("mlflow.utils.requirements_utils")
if hasattr(_database, "_get_latest_schema_revision"):
    _database._get_latest_schema_revision = functools.cache(_database._get_latest_schema_revision)
    _database._get_latest_schema_revision()
if hasattr(_requirements, "_check_requirement_satisfied"):
    _requirements._check_requirement_satisfied = lambda requirement: None
