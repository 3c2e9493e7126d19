"""Which requests the servers of Headstart answer.

- The header `Host` names this server. Otherwise a page of another site whose name resolves to 127.0.0.1 could read the
  answers (DNS rebinding).
- A request that changes or computes something comes from no other site (cross-site request forgery), whatever the type
  of its content.
- Requests need the token, if the server has one.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from starlette.requests import Request


@dataclass(frozen=True)
class Guard:
    """Applies the rules above.

    Attributes:
        hosts: names that the header `Host` may have, without the port.
        any_address: whether any IP address is allowed too, for a server that listens on all addresses.
    """

    hosts: frozenset[str]
    any_address: bool = False
    token: str = ""

    @classmethod
    def of(cls, host: str, *, names: Iterable[str] = (), token: str = "") -> Self:
        """The guard of a server that listens on the address `host` and is also called `names`."""
        return cls(
            frozenset({"localhost", "127.0.0.1", "::1", host.lower(), *(name.lower() for name in names)}),
            any_address=host in ("0.0.0.0", "::"),
            token=token,
        )

    def foreign(self, request: Request) -> tuple[int, str] | None:
        """Status and message of the refusal of a request to another host or from another site; None: it is answered."""
        host = request.headers.get("host", "")
        if not self.knows(host):
            return 421, (
                f"the host {host[:100]!r} is not this server; use the address that it prints at its start, or name the "
                "host with --name"
            )
        if request.method not in ("GET", "HEAD") and not _is_same_origin(request, host):
            return 403, "the request comes from another site"
        return None

    def knows(self, host: str) -> bool:
        """Whether a header `Host` names this server."""
        try:
            parts = urlsplit(f"//{host}")
            name = parts.hostname or ""
        except ValueError:
            return False
        if parts.netloc != host or "@" in host:
            return False
        if name in self.hosts:
            return True
        if not self.any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def is_token(self, given: str) -> bool:
        """Whether a text is the token."""
        return hmac.compare_digest(given.encode(), self.token.encode())

    def has_token(self, request: Request) -> bool:
        """Whether a request has the token in the header `Authorization`."""
        return self.is_token(request.headers.get("authorization", "").removeprefix("Bearer "))


def _is_same_origin(request: Request, host: str) -> bool:
    origin = request.headers.get("origin")
    if origin is None:
        # Browsers send it with every POST request; programs that do not have no cookies of a person.
        return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False
