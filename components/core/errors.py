"""Errors that a user can act on.

Every error that a user can cause is a `HeadstartError`: the command line prints its message without a traceback and
exits with the error's code, 2 or, for a `TransientError`, 75 (EX_TEMPFAIL of sysexits.h). Flows retry a stage after a
transient error. Any other exception is a defect of Headstart and keeps its traceback.
"""

import difflib
import errno
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from components.core.masking import masked

#: Environment variable with the path of a file: a command that ends with an error writes its message there instead of
#: to standard error, so that the process that started the command need not parse its output.
ERROR_FILE = "HEADSTART_ERROR_FILE"


class HeadstartError(Exception):
    """A problem whose message names the location (file and line, or key), the problem, and the remedy."""

    #: Exit code of a command that ends with this error.
    exit_code = 2
    #: One message per problem, if there are several.
    problems: Sequence[str] = ()
    #: Whether the message has been printed when the problem occurred.
    printed = False

    def __init__(self, what: str = "", *, where: object = "", key: str = "", do: str = "") -> None:
        """`where`: file and line, or another place; `key`: of the setting that is concerned; `do`: the remedy, in which
        `{key}` stands for the key as the user sets it: in params.yaml, as a flag or as an argument."""
        super().__init__(what)
        self.what, self.where, self.key, self.do = what, where, key, do

    def said(self, named: Callable[[str], str] = str, *, where: object = None) -> str:
        """The message: where, what, and what to do. `named`: key -> its name for the user; `where`: another name of the
        place."""
        place = self.where if where is None else where
        do = self.do.replace("{key}", named(self.key))
        return f"{place}{': ' * bool(place)}{self.what}{'; ' * bool(do)}{do}"

    @classmethod
    def listing(cls, problems: Sequence[str], *, what: str = "problem(s)", where: str = "") -> Self:
        """One error of several problems; `where`: the file that they are in."""
        error = cls("\n  ".join([f"{len(problems)} {what}", *problems]), where=where)
        error.problems = problems
        return error

    def __str__(self) -> str:
        """The message without passwords and tokens, wherever it is shown or written; a long value or name loses its
        middle."""
        return re.sub(r"(?m)^(.{500}).{100,}(.{250})$", r"\1 ... \2", masked(self.said()))


class TransientError(HeadstartError):
    """A system does not answer. Nothing has to be corrected, and a later attempt may succeed."""

    exit_code = 75


class ConfigError(HeadstartError):
    """params.yaml or an option is invalid; the message lists all problems by key."""


class DataError(HeadstartError):
    """An input file is missing or damaged, or has unexpected content."""


class ArtifactError(HeadstartError):
    """The output of a stage is incomplete, altered, or incompatible with another one."""


class SchemaError(ArtifactError):
    """The output of a stage or a registered model has a schema that this version of Headstart does not read."""


class TrainingError(HeadstartError):
    """Training cannot continue: a loss that is not finite, no space for a checkpoint, too few workers."""


class DiskSpaceError(HeadstartError):
    """A disk is full, or too full for a run. Nothing is retried: space has to be freed first."""


class RegistryError(HeadstartError):
    """The model registry lacks the requested model, or rejects a request."""


class RegistryUnavailableError(RegistryError, TransientError):
    """The model registry does not answer."""


class StorageError(HeadstartError):
    """The object store rejects a request."""


class StorageUnavailableError(StorageError, TransientError):
    """The object store does not answer."""


class CheckpointUnavailableError(TrainingError, TransientError):
    """The storage of checkpoints does not answer."""


class ClusterUnavailableError(TrainingError, TransientError):
    """The Ray cluster does not answer."""


#: Extra of pyproject.toml -> packages that code imports and that this extra installs.
EXTRAS = {
    "encoders": ("torch", "huggingface_hub", "httpx2"),
    "thai": ("pythainlp",),
    "report": ("matplotlib", "jinja2"),
    "server": ("fastapi", "starlette", "uvicorn", "httptools", "uvloop", "prometheus_client"),
    "pipeline": (
        *("prefect", "dvc", "dvc_data", "ray", "mlflow", "boto3", "botocore", "sqlalchemy"),
        *("networkx", "grandalf", "tzlocal", "sacrebleu", "psutil", "humanize", "httpx"),
    ),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}


def missing_package(name: str) -> ConfigError:
    """The error for a package of an extra that is not installed."""
    (extra,) = (extra for extra, packages in EXTRAS.items() if name in packages)
    return ConfigError(f"the package {name} is not installed; install it: pip install 'headstart[{extra}]'")


def missing_module(error: BaseException) -> ConfigError | None:
    """The error for a failed import of such a package; None for any other exception."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return missing_package(name) if any(name in packages for packages in EXTRAS.values()) else None


@contextmanager
def extras() -> Iterator[None]:
    """For calls from Python: an import of a package of an extra that fails becomes a `ConfigError`, which names the
    extra. The command line does the same for every command."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (missing := missing_module(error)) is None:
            raise
        raise missing from error


def nearest(name: str, choices: Iterable[str]) -> str:
    """Suffix of a message about an unknown name: the closest known name, or all known names."""
    choices = sorted(choices)
    close = difflib.get_close_matches(name, choices, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(choices) or 'none'}"


#: A full disk, an exhausted quota, and a limit of the size of a file.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def why_not(error: OSError) -> str:
    """The reason of an error of the operating system; of a folder that is not copied, that of its first file."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        return str(error.args[0][0][2])
    return error.strerror or str(error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def disk_full(error: BaseException) -> DiskSpaceError | None:
    """The error of a full disk or an exhausted quota that is the cause of `error`; None if it has other causes."""
    for cause in _causes(error):
        if isinstance(cause, shutil.Error) or (isinstance(cause, OSError) and cause.errno in _FULL):
            why = f"{cause.filename}: " * bool(cause.filename) + why_not(cause)
            return DiskSpaceError(f"{why}; `headstart gc` lists what can be deleted; then run this again")
    return None


#: A path that this user may not read or write, or that no file has.
_OF_PATH = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR)


def not_permitted(error: BaseException) -> ConfigError | None:
    """The error of such a path; None for any other exception."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _OF_PATH and cause.filename:
            return ConfigError(
                f"{cause.filename}: {os.strerror(cause.errno)}; change its permissions, correct the path, or use a "
                "copy of the project in a folder of your own"
            )
    return None


def of_machine(error: BaseException) -> HeadstartError | None:
    """The error of an exception that has its cause in the machine: disk, permissions, packages; None for a defect."""
    return disk_full(error) or not_permitted(error) or missing_module(error)


def report(error: HeadstartError) -> None:
    """Write the message, unless it has been printed, to the file that `ERROR_FILE` names or, without one, to standard
    error as `error: ...`."""
    if error.printed:
        return
    try:
        Path(os.environ[ERROR_FILE]).write_text(str(error), encoding="utf-8", errors="replace")
    except (KeyError, OSError):
        print(f"error: {error}", file=sys.stderr)
