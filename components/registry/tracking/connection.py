"""Whether an MLflow server or database can be reached, and its errors as errors of Headstart."""

import os
import socket
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mlflow.exceptions import MlflowException

from components.core.environment import variables
from components.core.errors import RegistryError, RegistryUnavailableError
from components.core.masking import masked
from components.settings.registry import SQLITE

#: Default ports of database servers.
PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
#: Timeout in seconds of the health check.
PROBE_SECONDS: Final = 5.0
#: Size from which a database is not read whole at each connection.
CHECKED_BYTES: Final = 64_000_000
#: Errors of botocore about a store that does not answer, by name: only `components.cluster.storage` imports it.
UNANSWERED: Final = ("botocore.exceptions.ConnectionError", "botocore.exceptions.HTTPClientError")
#: Maximum characters of an MLflow message in an error; some messages end with the server's traceback.
MESSAGE_LENGTH: Final = 400


def probe(uri: str) -> None:
    """Check within seconds that there is an MLflow server or a database at the URI.

    Raises:
        RegistryError: there is something else.
        RegistryUnavailableError: there is no answer.
    """
    where = "MLFLOW_TRACKING_URI" if os.environ.get("MLFLOW_TRACKING_URI") else "registry.tracking"
    where = f"{where} is {masked(uri)}"
    start = "start it with `mlflow server`, or unset the address to use a local database file"
    parts = urlsplit(uri)
    database = parts.scheme.split("+")[0]
    if parts.scheme in ("http", "https"):
        try:
            health = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/") + "/health")
            urllib.request.urlopen(health.geturl(), timeout=PROBE_SECONDS).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in (401, 403):
                what = f"the server at this address is not MLflow (HTTP {error.code} on /health)"
                raise RegistryError(f"{where}: {what}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RegistryUnavailableError(f"{where}: no MLflow server at this address ({reason}); {start}") from None
        except Exception as error:  # http.client raises errors of its own for responses that are not HTTP
            raise RegistryError(f"{where}: the server at this address does not speak HTTP ({error!r})") from None
    elif parts.scheme == "sqlite":
        path = Path(uri.removeprefix(SQLITE))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                file.seek(0)
                head = file.read(16)
        except OSError as error:
            raise RegistryError(f"{where}: {path} cannot be used ({error.strerror})") from None
        if head not in (b"", b"SQLite format 3\0"):
            damage = "is not a SQLite database"
        else:
            damage = f"is damaged ({problem})" if head and (problem := _damage(path)) else ""
        if damage:
            raise RegistryError(
                f"{where}: {path} {damage}; restore a copy of it, or move it away: `headstart retrain` then registers "
                "the trained models again"
            )
    elif parts.hostname is not None and database in PORTS:
        try:
            socket.create_connection((parts.hostname, parts.port or PORTS[database]), timeout=PROBE_SECONDS).close()
        except OSError as error:
            what = f"no database server at this address ({error}); start it, or correct the address"
            raise RegistryUnavailableError(f"{where}: {what}") from None
    elif parts.scheme in ("", "file"):
        what = "MLflow no longer stores models in a folder; use sqlite:///"
        raise RegistryError(f"{where}: {what}{uri.rstrip('/')}/mlflow.db")


def _damage(path: Path) -> str:
    """What is wrong with a SQLite file; empty if nothing is. Of a large one only the list of its tables is read."""
    question = "PRAGMA quick_check(1)" if path.stat().st_size < CHECKED_BYTES else "SELECT 'ok' FROM sqlite_master"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            answer = database.execute(question).fetchone()
    except sqlite3.OperationalError:
        return ""  # locked by another process, which MLflow waits for
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if answer is None or answer[0] == "ok" else " ".join(str(answer[0]).split())


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise errors of MLflow and of its HTTP client as `RegistryError` with a message of one line; as its subclass
    `RegistryUnavailableError` if the server gives no answer."""
    try:
        yield
    except MlflowException as error:
        text = " ".join(str(error.message).split())
        # MLflow reports a failed connection as an exception of its own with this text.
        unanswered = "failed with exception" in text and "API request to" in text
        kind = RegistryUnavailableError if unanswered else RegistryError
        raise kind(f"MLflow, {what}: {text[:MESSAGE_LENGTH] or type(error).__name__}") from error
    except OSError as error:  # includes the errors of requests
        raise RegistryUnavailableError(f"MLflow, {what}: {error}") from error


def is_unanswered(error: Exception) -> bool:
    """Whether an error of botocore, which MLflow does not translate, says that the object store does not answer."""
    names = {f"{base.__module__}.{base.__name__}" for base in type(error).__mro__}
    return not names.isdisjoint(UNANSWERED)


@contextmanager
def as_default(uri: str) -> Iterator[None]:
    """Set the address for MLflow's module-level functions, and restore it on exit. MLflow stores it in the environment,
    where it would take precedence over the settings of later connections."""
    import mlflow

    with variables({"MLFLOW_TRACKING_URI": uri}):
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
        try:
            yield
        finally:
            mlflow.set_tracking_uri(None)
            mlflow.set_registry_uri(None)
