"""What the prediction server and the pages have in common: address, token, limits of connections and bodies."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import resource
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import uvicorn
from starlette.requests import ClientDisconnect, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from components.core.errors import RegistryError

#: Environment variable with the token that requests need.
TOKEN: Final = "HEADSTART_TOKEN"
#: Connections above which those that wait for a request are closed. Most files of the process stay for others.
CONNECTIONS: Final = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
#: Seconds in which a client has to send the headers of a request, and then its body.
HEADER_SECONDS: Final = 10.0
BODY_SECONDS: Final = 60.0
#: Bodies of the maximum size that are read or answered at the same time; bodies above their size together are refused.
BODIES: Final = 16


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; port 0 takes a free one.

    Raises:
        RegistryError: the port is in use, or the address does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio disables Nagle's algorithm on accepted connections; else answers wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # A port with connections in TIME_WAIT counts as free.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise RegistryError(
            f"{host}:{port}: cannot listen on this address ({error.strerror}); stop the process that uses it, or "
            "choose another port"
        ) from error
    return listener


def is_local(listener: socket.socket) -> bool:
    """Whether only this machine reaches a bound socket."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def token_for(listener: socket.socket) -> str:
    """The token that requests need: from the environment, or a random one if other machines reach the socket; empty:
    none."""
    token = os.environ.get(TOKEN, "").strip()
    return token if token or is_local(listener) else secrets.token_urlsafe(24)


def names_of(listener: socket.socket, host: str, further: Sequence[str]) -> list[str]:
    """The names that clients may give a server: `host`, `further`, and the names of a machine that others reach."""
    machine = [] if is_local(listener) else [socket.gethostname(), socket.getfqdn()]
    return [name for name in (host, *machine, *further) if name]


def address_of(listener: socket.socket, host: str) -> str:
    """`http://HOST:PORT` as a person opens it."""
    bound, port = listener.getsockname()[:2]
    shown = socket.gethostname() if ipaddress.ip_address(bound).is_unspecified else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def configure(app: Any, *, shutdown_seconds: int) -> uvicorn.Config:
    """The configuration of uvicorn with the limits of `LimitedProtocol`."""
    return uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        # Requests in progress, also requests of closed connections that have not ended; more get status 503.
        limit_concurrency=2 * CONNECTIONS,
        # So many connections are accepted at once.
        backlog=128,
        log_level="error",
        timeout_graceful_shutdown=shutdown_seconds,
        access_log=False,
    )


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for the reception of a request and a limit of connections.

    If there are more than CONNECTIONS, the one that has waited longest for the rest of a request is closed. So
    connections on which nothing is sent keep nobody out.
    """

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0
    _unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first headers."""
        super().connection_made(transport)
        self._wait(HEADER_SECONDS)
        if len(self.connections) > CONNECTIONS:
            waiting = [other for other in self.connections if isinstance(other, LimitedProtocol) and other._timer]
            oldest = min(waiting, key=lambda other: other._since)
            if oldest is not self:
                oldest._stop_waiting()
                oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time limit."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """End the time limit of headers after them, and the time limit of a body after it."""
        before = self.cycle
        super().handle_events()
        if self.cycle is None or self.cycle.response_complete:
            return
        if not self.cycle.more_body:
            self._stop_waiting()
        elif self.cycle is not before:
            self._wait(BODY_SECONDS)

    def on_response_complete(self) -> None:
        """Start the time limit of the next headers. In it the client also has to take a part of the answer."""
        self._wait(HEADER_SECONDS)
        super().on_response_complete()

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._since = self.loop.time()
        self._unsent = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(seconds, self._expire)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if 0 < self.transport.get_write_buffer_size() < self._unsent:
            self._wait(HEADER_SECONDS)
        else:
            self.transport.abort()


class BodyError(Exception):
    """A body that is not read."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """Reads the bodies of requests, with a limit for each and for all that are in progress."""

    def __init__(self, limit: int) -> None:
        self._limit, self._held = limit, 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytearray]:
        """The body of a request; it counts as in progress until the block ends.

        Raises:
            BodyError: it is too large (413), too many are in progress (503), or the client has not sent it all (400).
        """
        body = bytearray()
        try:
            declared = request.headers.get("content-length", "")
            if declared.isdecimal() and int(declared[:20]) > self._limit:
                raise self._too_large()
            async for part in request.stream():
                body += part
                self._held += len(part)
                if len(body) > self._limit:
                    raise self._too_large()
                if self._held > BODIES * self._limit:
                    raise BodyError(503, "too many requests are sent at the same time; try again")
            yield body
        except ClientDisconnect as error:
            raise BodyError(400, "the request has ended before its body was complete") from error
        finally:
            self._held -= len(body)

    def _too_large(self) -> BodyError:
        return BodyError(413, f"the body has more than {self._limit / 1e6:g} MB; send less at once")
