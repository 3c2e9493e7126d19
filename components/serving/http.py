"""What the prediction server and the pages have in common: address, token, limits of connections and bodies, and which
requests they answer."""

import asyncio
import hmac
import ipaddress
import os
import resource
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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
#: Maximum number of bytes of a request beside its body; a connection that sends more is closed.
FRAMING: Final = 65_536

Receive = Callable[[], Awaitable[Any]]


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that is bound to an address; port 0 takes a free one. `shared`: other processes of this user may bind
    theirs to it as well; the kernel divides the connections among those that listen.

    Raises:
        RegistryError: the port is in use, or the address does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio disables Nagle's algorithm on accepted connections; else answers wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # A port with connections in TIME_WAIT counts as free.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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
        lifespan="off",
        # Requests in progress, also requests of closed connections that have not ended; more get status 503.
        limit_concurrency=2 * CONNECTIONS,
        # So many connections are accepted at once.
        backlog=128,
        log_level="error",
        timeout_graceful_shutdown=shutdown_seconds,
        access_log=False,
    )


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with limits of the size of headers, the time of a request, and CONNECTIONS: above, the one that has
    waited longest for the rest of a request is closed, so that idle connections keep nobody out."""

    _timer: asyncio.TimerHandle | None = None
    _deadline = 0.0  # 0: the request has been received
    _since = 0.0
    _unsent = 0
    _framing = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(HEADER_SECONDS)
        if len(self.connections) > CONNECTIONS:
            waiting = [other for other in self.connections if isinstance(other, LimitedProtocol) and other._deadline]
            oldest = min(waiting, key=lambda other: other._since)
            if oldest is not self:
                oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline = 0.0
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._framing += len(data)
        super().data_received(data)
        if self._framing > FRAMING:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._framing = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._wait(BODY_SECONDS)

    def on_body(self, body: bytes) -> None:
        """Count what is not body: headers, and the sizes of chunks, of which a byte of the body may have seven."""
        self._framing -= 8 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the time limit of a body, unless the request was answered before its end."""
        if not self.cycle.response_complete:
            self._deadline = 0.0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the time limit of the next headers. In it the client also has to take a part of the answer."""
        self._wait(HEADER_SECONDS)
        super().on_response_complete()
        if not self.cycle.response_complete and not self.cycle.more_body:  # the next request was sent meanwhile
            self._deadline = 0.0

    def _wait(self, seconds: float) -> None:
        self._since = self.loop.time()
        self._deadline = self._since + seconds
        self._unsent = self.transport.get_write_buffer_size()
        # A timer that ends earlier is set again when it ends, so that a request of a busy connection sets none.
        if self._timer is None or self._timer.when() > self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(self._deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if not self._deadline:
            return
        if self.loop.time() < self._deadline:
            self._timer = self.loop.call_at(self._deadline, self._expire)
        elif 0 < self.transport.get_write_buffer_size() < self._unsent:
            self._wait(HEADER_SECONDS)
        else:
            self.transport.abort()


class BodyError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """Reads the bodies of requests, with a limit for each and for all that are in progress."""

    def __init__(self, limit: int) -> None:
        self._limit, self._held = limit, 0

    @asynccontextmanager
    async def read(self, headers: Mapping[str, str], receive: Receive) -> AsyncIterator[bytes]:
        """The body of a request; it counts as in progress until the block ends.

        Raises:
            BodyError: it is too large (413), too many are in progress (503), or the client has not sent it all (400).
        """
        body, size = b"", 0
        try:
            declared = headers.get("content-length", "")
            if declared.isdecimal() and int(declared[:20]) > self._limit:
                raise self._too_large()
            parts, more = [], True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise BodyError(400, "the request has ended before its body was complete")
                part, more = message.get("body", b""), message.get("more_body", False)
                parts.append(part)
                size += len(part)
                self._held += len(part)
                if size > self._limit:
                    raise self._too_large()
                if self._held > BODIES * self._limit:
                    raise BodyError(503, "too many requests are sent at the same time; try again")
            body = b"".join(parts)
            yield body
        finally:
            self._held -= size

    def _too_large(self) -> BodyError:
        return BodyError(413, f"the body has more than {self._limit / 1e6:g} MB; send less at once")


@dataclass(frozen=True)
class Guard:
    """Which requests the servers of Headstart answer.

    - The header `Host` names this server. Otherwise a page of another site whose name resolves to 127.0.0.1 could read
      the answers (DNS rebinding).
    - A request that changes or computes something comes from no other site (cross-site request forgery), whatever the
      type of its content.
    - Requests need the token, if the server has one.

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

    def foreign(self, method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Status and message of the refusal of a request to another host or from another site; None: it is answered."""
        host = headers.get("host", "")
        if not self.knows(host):
            return 421, (
                f"the host {host[:100]!r} is not this server; use the address that it prints at its start, or name the "
                "host with --name"
            )
        if method not in ("GET", "HEAD") and not _is_same_origin(headers, host):
            return 403, "the request comes from another site"
        return None

    def knows(self, host: str) -> bool:
        """Whether a header `Host` names this server."""
        return _names_server(host, self.hosts, self.any_address)

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has the token in the header `Authorization`."""
        return self.is_token(headers.get("authorization", "").removeprefix("Bearer "))


@lru_cache(maxsize=256)
def _names_server(host: str, hosts: frozenset[str], any_address: bool) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname or ""
    except ValueError:
        return False
    if parts.netloc != host or "@" in host:
        return False
    if name in hosts or not any_address:
        return name in hosts
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same_origin(headers: Mapping[str, str], host: str) -> bool:
    origin = headers.get("origin")
    if origin is None:
        # Browsers send it with every POST request; programs that do not have no cookies of a person.
        return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False
