"""Who may read and write the pages.

- The header `Host` names this server. Otherwise a page of another site whose name resolves to 127.0.0.1 could read the
  answers (DNS rebinding).
- Requests need the token, if the server has one: in the address once, afterwards in a cookie, or as a bearer token.
- A POST request needs the secret of the page's form, and an `Origin` that is this server (cross-site request forgery).
- Answers allow no content from other addresses, no frames and no copies in caches.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

COOKIE = "headstart_token"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer`, browsers send the origin `null` with forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Guard:
    """The rules above as a middleware.

    Attributes:
        hosts: names that the header `Host` may have, without the port.
        any_address: whether any IP address is allowed too, for a server that listens on all addresses.
        token: that requests need; empty: none.
        secret: of the forms.
    """

    hosts: frozenset[str]
    any_address: bool = False
    token: str = ""
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @classmethod
    def of(cls, host: str, *, names: Iterable[str] = (), token: str = "") -> Guard:
        """The guard of a server that listens on `host` and is also called `names`."""
        everywhere = host in ("0.0.0.0", "::")
        return cls(
            frozenset({"localhost", "127.0.0.1", "::1", host.lower(), *(name.lower() for name in names)}),
            any_address=everywhere,
            token=token,
        )

    async def __call__(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        """Answer a request, or refuse it."""
        response = self._refused(request) or await call_next(request)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    def _refused(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not self.knows(host):
            return PlainTextResponse(
                f"the host {host!r} is not this server; open the address that `headstart ui` prints, or name it with "
                "--name",
                status_code=421,
            )
        if self.token and (refused := self._without_token(request)) is not None:
            return refused
        if request.method not in ("GET", "HEAD") and not _same_origin(request, host):
            return PlainTextResponse("the request comes from another site", status_code=403)
        return None

    def knows(self, host: str) -> bool:
        """Whether a header `Host` names this server."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
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

    def _without_token(self, request: Request) -> Response | None:
        given = request.query_params.get("token", "")
        if given and self._is_token(given):
            # The token does not stay in the address, where it would be copied with it.
            response = RedirectResponse(request.url.path, status_code=303)
            response.set_cookie(COOKIE, given, httponly=True, samesite="strict", path="/")
            return response
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if any(self._is_token(found) for found in (bearer, request.cookies.get(COOKIE, ""))):
            return None
        return PlainTextResponse(
            "the token is missing or wrong: open the address with ?token=... that `headstart ui` prints",
            status_code=401,
        )

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def is_form(self, secret: str) -> bool:
        """Whether a form of this server was sent."""
        return hmac.compare_digest(secret.encode(), self.secret.encode())


def _same_origin(request: Request, host: str) -> bool:
    origin = request.headers.get("origin")
    if origin is None:
        # Browsers send it with every POST request; programs that do not have no cookies of a person.
        return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    return urlsplit(origin).netloc == host
