"""One Ringback for all hostile clients here; each test checks that nothing unexpected is logged."""

import gc
import json
import logging
import math
from collections.abc import AsyncGenerator, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest
from mcp.server.streamable_http import StreamableHTTPServerTransport

import ringback
from ringback.domain.clock import seconds
from ringback.mcp_server.request_context import Endpoint
from ringback.mcp_server.session_manager import BoundedSessionManager
from ringback.services.mcp_sessions import EXTEND_SECONDS, IDLE_SECONDS
from tests.interaction.gateway.conftest import GatewayHarness, running_gateway
from tests.support.databases import query_rows
from tests.support.mcp_wire import ACCEPT, MODERN, NAME_HEADER_PARAMS, TASKS_DECLARED, Json, LegacyClientSession

SERVICE_SOURCE_PREFIX: Final = f"{Path(ringback.__file__).parent}/"
"""The service's own code in a traceback. Not "/ringback/": a clone and its environment may have that name."""
ENVELOPE: Final[Json] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": TASKS_DECLARED,
}


@pytest.fixture(scope="module")
async def shared_gate(
    module_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncGenerator[GatewayHarness]:
    """With the upstreams of the module's constant `UPSTREAMS`, or with all of them."""
    only: Collection[str] | None = cast("Any", request).module.__dict__.get("UPSTREAMS")
    async with running_gateway(module_path_factory.mktemp("gate"), only=only) as gate:
        yield gate


@pytest.fixture
def gate(shared_gate: GatewayHarness) -> GatewayHarness:
    shared_gate.interop.reset()
    return shared_gate


class ErrorHandler(logging.Handler):
    """Logged errors and tracebacks, except those of the upstreams, whose servers run in this process too."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        an_upstreams = record.name == "uvicorn.error" and SERVICE_SOURCE_PREFIX not in text
        if (record.levelno >= logging.ERROR or record.exc_info) and not an_upstreams:
            self.messages.append(f"{record.name}: {text}")


@contextmanager
def asserting_no_errors() -> Generator[None]:
    """No traceback is logged, and no unretrieved exception, which asyncio reports when it is collected."""
    errors = ErrorHandler()
    logging.getLogger().addHandler(errors)
    try:
        yield
        gc.collect()
    finally:
        logging.getLogger().removeHandler(errors)
    assert not errors.messages


@pytest.fixture(scope="module", autouse=True)
def nothing_unexpected(shared_gate: GatewayHarness) -> Generator[None]:
    del shared_gate  # checked before it is closed
    with asserting_no_errors():
        yield


def count_stored_calls(gate: GatewayHarness) -> int:
    """The calls of all principals."""
    ((count,),) = query_rows(gate.folder, "SELECT count(*) FROM calls")
    return int(count)


@dataclass(frozen=True, slots=True)
class HostileClient:
    """A client with a key that sends arbitrary requests."""

    gate: GatewayHarness
    key: str

    async def post(
        self, body: bytes, *, path: str = "/mcp/paint", headers: Mapping[str, str | None] | None = None
    ) -> httpx.Response:
        """Send as a modern client; a header that is None is left out."""
        sent: dict[str, str | None] = {
            **ACCEPT,
            "authorization": f"Bearer {self.key}",
            "content-type": "application/json",
            "mcp-protocol-version": MODERN,
            **(headers or {}),
        }
        kept = {name: value for name, value in sent.items() if value is not None}
        return await self.gate.http.post(f"{self.gate.url}{path}", content=body, headers=kept)

    async def send_request(
        self, method: str, params: Any, *, path: str = "/mcp/paint", **changed: Any
    ) -> httpx.Response:
        """A well-formed request with the members of `changed` replaced."""
        return await self.post(
            encode_request(method, params, **changed), path=path, headers=routing_headers(method, params)
        )


async def let_sessions_become_idle(gate: GatewayHarness, upstream: str = "paint") -> int:
    """Half an hour passes for the sessions at this endpoint, in memory and in the store. Returns how many were in memory."""
    endpoints = gate.ringback.app.mcp._endpoints  # pyright: ignore[reportPrivateUsage]

    async def list_transports(manager: BoundedSessionManager) -> Sequence[StreamableHTTPServerTransport]:
        return list(manager._server_instances.values())  # pyright: ignore[reportPrivateUsage]

    transports = await endpoints.use_manager(Endpoint(upstream=upstream), list_transports)
    for transport in transports:
        assert transport.idle_scope is not None
        assert transport.idle_scope.deadline < math.inf
        transport.idle_scope.deadline = -math.inf
    passed = seconds(IDLE_SECONDS + EXTEND_SECONDS)
    await gate.ringback.app.store.write(lambda tx: tx.mcp_sessions.remove_expired(now=tx.now() + passed, limit=10_000))
    return len(transports)


@pytest.fixture
async def intruder(gate: GatewayHarness) -> HostileClient:
    return HostileClient(gate, await gate.get_api_key("mallory"))


@pytest.fixture
async def session(gate: GatewayHarness) -> AsyncGenerator[LegacyClientSession]:
    async with gate.open_legacy_session(principal="mallory") as session:
        yield session


def encode_request(method: str, params: Any, *, meta: Mapping[str, Any] | None = None, **changed: Any) -> bytes:
    sent = {**cast("Json", params), "_meta": {**ENVELOPE, **(meta or {})}} if isinstance(params, dict) else params
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": sent, **changed}).encode()


def routing_headers(method: str, params: Any) -> dict[str, str | None]:
    name = cast("Json", params).get(NAME_HEADER_PARAMS.get(method, "")) if isinstance(params, dict) else None
    sendable = isinstance(name, str) and name.isascii() and name.isprintable() and name == name.strip()
    return {"mcp-method": method, "mcp-name": name if sendable else None}
