"""Who may read and write the pages.

- The rules of `components.serving.http.Guard` for hosts, other sites and the token, which is in the address once,
  afterwards in a cookie, or a bearer token.
- A POST request needs the secret of the page's form.
- Answers allow no content from other addresses, no frames and no copies in caches.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from components.serving import http

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
class Guard(http.Guard):
    """The rules above as a middleware."""

    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    async def __call__(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        """Answer a request, or refuse it."""
        response = self._refused(request) or await call_next(request)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    def _refused(self, request: Request) -> Response | None:
        if (foreign := self.foreign(request.method, request.headers)) is not None:
            return PlainTextResponse(foreign[1], status_code=foreign[0])
        return self._without_token(request) if self.token else None

    def _without_token(self, request: Request) -> Response | None:
        given = request.query_params.get("token", "")
        if given and self.is_token(given):
            # The token does not stay in the address, where it would be copied with it.
            response = RedirectResponse(request.url.path, status_code=303)
            response.set_cookie(COOKIE, given, httponly=True, samesite="strict", path="/")
            return response
        if self.has_token(request.headers) or self.is_token(request.cookies.get(COOKIE, "")):
            return None
        return PlainTextResponse(
            "the token is missing or wrong: open the address with ?token=... that `headstart ui` prints",
            status_code=401,
        )

    def is_form(self, secret: str) -> bool:
        """Whether a form of this server was sent."""
        return hmac.compare_digest(secret.encode(), self.secret.encode())
