"""The production sender: an HTTP/1.1 client for many small POSTs to URLs that untrusted users register.

Reasons against an existing client library:

- Of the CPU time of one delivery under load (514 µs), aiohttp took 155 µs more than forty lines of asyncio.Protocol with
  llhttp. A callback uses no redirects, cookies, proxies, compression, streams or tracing.
  Alone, with 64 in flight, this sender takes 28 µs of CPU for a POST and aiohttp 61 (`scripts/bench clients`).
- The guard must check the address right where the socket is created. Libraries resolve, cache and connect themselves.
- Whether a connection may be reused is a question of safety (see `connection`), so one place decides it.

    Http1Sender ──▶ ConnectionPool       an idle connection to the origin, or
                ──▶ Dialer               guard ──▶ socket ──▶ TLS ──▶ a new connection
                    ReceiverConnection   sends the request; ResponseReader (llhttp) reads the response, until the deadline

The sender never reads the environment: no proxy variables, no netrc. The operator names an egress proxy in the settings.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from ringback.domain.clock import Clock
from ringback.domain.delivery import AttemptResult
from ringback.domain.principal import Principal
from ringback.notifier.http.connection import ReceiverConnection, ReceiverResponse, StaleConnection
from ringback.notifier.http.connection_pool import ConnectionPool
from ringback.notifier.http.dialer import DIRECT_EGRESS, Dialer, Egress, OpenSocket, make_tls_context, open_socket
from ringback.notifier.http.failures import result_from_error
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.sender import BaseSender, RequestMethod, result_from_response
from ringback.notifier.http.target import Target


class Http1Sender(BaseSender):
    """Create and close it inside the event loop that uses it.

    The dispatcher limits the attempts in flight, so requests never wait here for a connection.
    """

    def __init__(
        self,
        guard: TargetGuard,
        *,
        clock: Clock,
        ssl_context: ssl.SSLContext | None = None,
        open_socket: OpenSocket = open_socket,
        egress: Egress = DIRECT_EGRESS,
    ) -> None:
        self._clock = clock
        self._dialer = Dialer(
            guard, ssl_context=ssl_context or make_tls_context(), open_socket=open_socket, egress=egress
        )
        self._pool = ConnectionPool()

    async def aclose(self) -> None:
        """Close every connection; running and later attempts end as `connection_broken`."""
        await self._pool.aclose()

    async def exchange_request(
        self,
        method: RequestMethod,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal,
        deadline_seconds: float,
    ) -> tuple[AttemptResult, bytes]:
        until = asyncio.get_running_loop().time() + deadline_seconds
        try:
            response = await self._send(target, encode_request(method, target, headers, body), principal, until)
        except OSError as error:
            return result_from_error(error), b""
        now = self._clock.wall_time()  # a receiver's Retry-After may be a date
        result = result_from_response(
            response.status_code,
            retry_after=response.retry_after,
            location=response.location,
            body_prefix=response.body_prefix,
            now=now,
        )
        if response.is_body_late and result.detail is None:
            result = replace(result, detail="the response's body did not end in time")
        return result, response.body_prefix

    async def _send(self, target: Target, request: bytes, principal: Principal, until: float) -> ReceiverResponse:
        """Send the request; if the receiver closes a reused connection at that moment, repeat it on one new connection.

        HTTP forbids clients to repeat a POST automatically. Callbacks may be repeated: receivers recognise a repeat by its
        `webhook-id`.
        """
        idle = self._pool.acquire_connection(target.origin)
        if idle is not None:
            with suppress(StaleConnection):
                return await self._send_on(idle, request, until)
        self._pool.require_open()
        opened = await self._dialer.connect(target, self._pool.create_connection, principal=principal, until=until)
        self._pool.register_connection(opened)
        return await self._send_on(opened, request, until)

    async def _send_on(self, connection: ReceiverConnection, request: bytes, until: float) -> ReceiverResponse:
        response = await connection.send_request(request, until=until)
        self._pool.release_connection(connection)
        return response


def encode_request(method: RequestMethod, target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """The request's bytes; `headers` come from `outgoing_headers`, so none contains a line break."""
    host = target.origin.partition("://")[2]
    lines = [f"{method} {target.path} HTTP/1.1\r\nhost: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method == "POST":
        lines.append(f"content-length: {len(body)}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("ascii") + body
