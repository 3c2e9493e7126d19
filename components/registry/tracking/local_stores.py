"""MLflow's stores of a local database, which a process imports before it forks the stages that use them."""

import mlflow.store.model_registry.sqlalchemy_store
import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
