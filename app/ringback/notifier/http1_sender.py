"""The production sender: HTTP/1.1 of our own, for POSTs that are small, many, and go where strangers say.

Why not a client off the shelf:

- Of the CPU of one delivery, sustained (514 µs), aiohttp took 155 µs more than forty lines of asyncio.Protocol on llhttp.
  A callback needs none of what the difference pays for: no redirects, cookies, proxies, compression, streams or tracing.
  Alone, with 64 in flight, this sender takes 28 µs of CPU for a POST and aiohttp 61 (`scripts/bench clients`).
- The guard has to stand where the socket is made. Clients resolve, cache and connect on their own; what is checked is what
  is used only where nothing lies between.
- When a connection may be used again is a matter of safety here (see `http1_connection`), and is decided in one place.

    Http1Sender ──▶ ConnectionPool   a kept connection to the origin, or
                ──▶ Dialer           guard ──▶ socket ──▶ TLS ──▶ a new one
                       Connection    request out; AnswerReader (llhttp) reads what comes back, until the deadline

The environment is never read: no proxy variables, no netrc.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress

from ringback.domain.clock import Clock
from ringback.domain.delivery import Answer
from ringback.domain.principal import Principal
from ringback.notifier.http1_connection import Connection, Reply, StaleConnection
from ringback.notifier.http1_dialer import Dialer, OpenSocket, open_socket, tls_context
from ringback.notifier.http1_pool import ConnectionPool
from ringback.notifier.sender import Method, OneExchange, answered, failed
from ringback.notifier.target_guard import Target, TargetGuard


class Http1Sender(OneExchange):
    """Make it inside the event loop that will use it, and close it there.

    In-flight caps are the dispatcher's, so no request ever waits here for a connection slot.
    """

    def __init__(
        self,
        guard: TargetGuard,
        *,
        clock: Clock,
        ssl_context: ssl.SSLContext | None = None,
        open_socket: OpenSocket = open_socket,
    ) -> None:
        self._clock = clock
        self._dialer = Dialer(guard, ssl_context=ssl_context or tls_context(), open_socket=open_socket)
        self._pool = ConnectionPool()

    async def aclose(self) -> None:
        """Close every connection; attempts that are still running end as refused, and so does every later one."""
        await self._pool.aclose()

    async def exchange(
        self,
        method: Method,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal,
        deadline_seconds: float,
    ) -> tuple[Answer, bytes]:
        until = asyncio.get_running_loop().time() + deadline_seconds
        try:
            reply = await self._send(target, request_bytes(method, target, headers, body), principal, until)
        except OSError as error:
            return failed(error), b""
        now = self._clock.wall()  # a receiver's Retry-After may be a date
        return answered(reply.status_code, retry_after=reply.retry_after, head=reply.head, now=now), reply.head

    async def _send(self, target: Target, request: bytes, principal: Principal, until: float) -> Reply:
        """A POST on a kept connection that the receiver is just closing gets one fresh connection.

        HTTP does not let clients repeat a POST. Ours may be repeated: receivers know a repeat by its `webhook-id`.
        """
        kept = self._pool.take(target.origin)
        if kept is not None:
            with suppress(StaleConnection):
                return await self._over(kept, request, until)
        self._pool.check_open()
        fresh = await self._dialer.dial(target, self._pool.new, principal=principal, until=until)
        self._pool.opened(fresh)
        return await self._over(fresh, request, until)

    async def _over(self, connection: Connection, request: bytes, until: float) -> Reply:
        reply = await connection.exchange(request, until=until)
        self._pool.give_back(connection)
        return reply


def request_bytes(method: Method, target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """The request as it is sent; `headers` are `outgoing_headers`, so none of them breaks its line."""
    host = target.origin.partition("://")[2]
    lines = [f"{method} {target.path} HTTP/1.1\r\nhost: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method == "POST":
        lines.append(f"content-length: {len(body)}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("ascii") + body
