"""Passwords and tokens are replaced by *** wherever text leaves the process: messages, logs, records, MLflow, pages."""

import os
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

MASK: Final = "***"
#: Names of keys, query parameters and environment variables whose values are secret: their last word.
_SECRET: Final = r"(?:password|passwd|passphrase|pwd|secret|token|credentials?|webhook|auth_?string|api_?key|access_?key|secret_?key|private_?key|sig|signature|authorization|smtp)"  # noqa: E501
_NAME: Final = re.compile(rf"(?:.*[._-])?{_SECRET}", re.IGNORECASE)
#: scheme://user:password@ and https://token@. A colon that is followed by a port ends the host.
_USER: Final = re.compile(
    r"(?P<user>\b[a-z][a-z0-9+.-]*://[^\s/:@\"'<>]*):(?!\d{1,5}(?:[/?#]|$))[^\s\"'<>]*@", re.IGNORECASE
)
_ALONE: Final = re.compile(r"(?P<scheme>\bhttps?://)[^\s/:@\"'<>?#]+@", re.IGNORECASE)
_QUERY: Final = re.compile(
    rf"(?P<name>[?&;](?:[\w.%-]*[._-])?(?:key|{_SECRET}))=[^\s&;#\"'<>]+",
    re.IGNORECASE,
)
#: Addresses of webhooks and bots, which are secret as a whole.
_WEBHOOK: Final = re.compile(
    r"(?P<host>https?://(?=[^\s\"'<>]*(?:hooks\.slack\.com|/hooks/|webhook|telegram\.org/bot))[^\s/\"'<>]+)/[^\s\"'<>]*",
    re.IGNORECASE,
)
#: Shortest value of a variable that is replaced wherever it occurs; a shorter one may be a part of a usual word.
_LEAST: Final = 8


def masked(text: str) -> str:
    """A text without the passwords and tokens in its addresses, and without those that the environment holds."""
    for value in _environment():
        text = text.replace(value, MASK)
    if "://" not in text:
        return text
    text = _USER.sub(rf"\g<user>:{MASK}@", text)
    text = _ALONE.sub(rf"\g<scheme>{MASK}@", text)
    text = _QUERY.sub(rf"\g<name>={MASK}", text)
    return _WEBHOOK.sub(rf"\g<host>/{MASK}", text)


def _environment() -> list[str]:
    """Secret values of the environment, longest first."""
    # PWD is the working directory.
    return sorted(
        {value for name, value in os.environ.items() if name != "PWD" and is_secret(name) and len(value) >= _LEAST},
        key=len,
        reverse=True,
    )


def masked_values(value: Any, *, secret: bool = False) -> Any:
    """A JSON value with masked strings; values of keys such as `webhook` and `token` as a whole.

    Args:
        secret: whether the value belongs to such a key.
    """
    if isinstance(value, Mapping):
        return {key: masked_values(inner, secret=is_secret(str(key))) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked_values(inner, secret=secret) for inner in value]
    if secret and value and not isinstance(value, bool):
        return MASK
    return masked(value) if isinstance(value, str) else value


def masked_json(value: Any, keys: Collection[str] | None = None) -> Any:
    """A JSON value with masked strings, whatever its keys: of a value whose keys are names of files or tasks. Numbers
    stay as they are. With `keys`, of a record, only its free text, the values of these keys at any depth: names,
    digests and verdicts in it are compared, and one of them may equal a password by chance."""
    if isinstance(value, Mapping):
        return {
            masked(str(key)) if keys is None else key: masked_json(inner, None if keys and key in keys else keys)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked_json(inner, keys) for inner in value]
    return masked(value) if isinstance(value, str) and keys is None else value


def is_secret(key: str) -> bool:
    """Whether the value of a setting of this name is secret as a whole."""
    return _NAME.fullmatch(key) is not None
