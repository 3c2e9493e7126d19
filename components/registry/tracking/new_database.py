"""A new SQLite database of MLflow, from the dump of an empty one: its migrations take longer than a small run.

`python -m components.registry.tracking.new_database` writes the dump for the installed version of MLflow.
"""

import contextlib
import logging
import os
import sqlite3
import tempfile
from pathlib import Path

import mlflow

#: For other versions than this one, MLflow creates the tables.
DUMP = Path(__file__).with_name(f"mlflow-{mlflow.__version__}.sql")


def create_database(path: Path) -> None:
    """Create a database that does not exist; does nothing if another process has created it meanwhile."""
    if path.exists() or not DUMP.is_file():
        return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        draft = Path(folder) / path.name
        with contextlib.closing(sqlite3.connect(draft)) as database:
            database.executescript(DUMP.read_text(encoding="utf-8"))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)


def dump_database() -> str:
    """SQL of an empty database that MLflow's migrations have created."""
    from mlflow.store.db.utils import _initialize_tables
    from mlflow.store.tracking import sqlalchemy_store  # noqa: F401  declares the tables
    from sqlalchemy import create_engine

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlflow.db"
        engine = create_engine(f"sqlite:///{path}")
        _initialize_tables(engine)
        engine.dispose()
        with contextlib.closing(sqlite3.connect(path)) as database:
            return "\n".join(" ".join(statement.split()) for statement in database.iterdump()) + "\n"


if __name__ == "__main__":
    logging.disable()
    DUMP.write_text(dump_database(), encoding="utf-8")
