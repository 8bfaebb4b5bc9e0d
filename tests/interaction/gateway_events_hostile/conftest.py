"""One Ringback and one upstream for the hostile clients of MCP Events; each module checks that nothing unexpected is logged."""

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import httpx
import orjson
import pytest

from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal, Scope
from tests.interaction.gateway_hostile.conftest import asserting_no_errors
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application
from tests.support.databases import TEST_DATABASES, query_rows
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import ACCEPT, MODERN, Json, ModernClient
from tests.support.receivers import AcceptedConnection, Receiver, response, serving_receiver
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
FINISHED: Final = "call.finished"
NO_QUOTA: Final = 1_000_000
INVALID_PARAMS, NOT_FOUND, FORBIDDEN, RESOURCE_EXHAUSTED, UNSUPPORTED, CALLBACK_ENDPOINT_ERROR = (
    *(-32602, -32011, -32012, -32013, -32014, -32015),
)
"""The codes of the sketch, which a client gets that does not declare the extension."""
OPERATOR: Final = Caller(principal=Principal("operator"), scopes=frozenset(Scope))
COUNT_ROWS: Final = " UNION ALL ".join(
    f"SELECT '{table}', count(*) FROM {table}"  # noqa: S608 - a constant
    for table in ("webhooks", "subscriptions", "deliveries", "challenges")
)
"""What a subscription leaves behind; a refused one must leave none of it."""


@dataclass(slots=True)
class EventsGate:
    ringback: RunningApplication
    folder: Path
    url: str
    http: httpx.AsyncClient
    upstream: ControlledUpstream
    keys: dict[str, str] = field(default_factory=dict[str, str])

    async def get_key(self, principal: str) -> str:
        if principal not in self.keys:
            keys = self.ringback.app.services.api_keys
            _, self.keys[principal] = await keys.create_key(
                principal, name="test", scopes=DEFAULT_SCOPES, upstreams=None
            )
        return self.keys[principal]

    async def make_client(self, principal: str = "alice", *, path: str = "/mcp") -> ModernClient:
        return ModernClient(self.http, f"{self.url}{path}", await self.get_key(principal))

    async def post(self, body: bytes, *, method: str, principal: str = "alice", path: str = "/mcp") -> httpx.Response:
        """Send these bytes as a modern request."""
        headers = {
            **ACCEPT,
            "authorization": f"Bearer {await self.get_key(principal)}",
            "content-type": "application/json",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
        }
        return await self.http.post(f"{self.url}{path}", content=body, headers=headers)

    async def send(self, method: str, params: Any, *, principal: str = "alice", request_id: Any = 1) -> Json:
        """The JSON-RPC response to a request with these params, which must not be an error of the server."""
        response = await self.post(encode(method, params, request_id=request_id), method=method, principal=principal)
        return read_response(response)

    async def end_call(self, principal: str = "alice", **labels: str) -> str:
        """Run a call that ends at once; its id."""
        headers = {"authorization": f"Bearer {await self.get_key(principal)}"}
        body: Json = {"upstream": "stage", "tool": "echo", "arguments": {}, "wait_seconds": 30, **labels}
        answer = await self.http.post(f"{self.url}/v1/calls", json=body, headers=headers)
        call: Json = answer.raise_for_status().json()["call"]
        assert call["status"] == "completed"
        return str(call["id"])

    async def count_streams(self) -> int:
        """The open streams of all principals."""
        return (await self.ringback.app.services.insights.get_status(OPERATOR)).open_streams

    def count_rows(self) -> dict[str, int]:
        return dict(query_rows(self.folder, COUNT_ROWS))


@asynccontextmanager
async def running_events_gate(folder: Path, **settings: Any) -> AsyncGenerator[EventsGate]:
    upstream = ControlledUpstream()
    async with (
        serving(upstream.app()) as server,
        running_application(folder, make_http_config(server.url), allowed_hosts=("127.0.0.1",), **settings) as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS, limits=httpx.Limits(max_connections=None)) as http,
    ):
        with TEST_DATABASES.keep_connection(folder):
            yield EventsGate(ringback, folder, url, http, upstream)


@pytest.fixture(scope="module")
async def gate(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[EventsGate]:
    async with running_events_gate(module_path_factory.mktemp("gate"), quota_subscriptions=NO_QUOTA) as gate:
        yield gate


@pytest.fixture(scope="module", autouse=True)
def nothing_unexpected() -> Generator[None]:
    with asserting_no_errors():
        yield


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    """A receiver that answers each challenge and accepts each event."""
    async with serving_receiver(accept_everything) as receiver:
        yield receiver


async def accept_everything(connection: AcceptedConnection) -> None:
    while (request := await connection.request()) is not None:
        envelope = orjson.loads(request.body)
        challenge = envelope.get("challenge") if envelope.get("type") == "verification" else None
        body = b"{}" if challenge is None else orjson.dumps({"challenge": challenge})
        await connection.send(response("200 OK", body, content_type="application/json"))


def events_of(receiver: Receiver) -> list[Json]:
    """The events that have arrived, without challenges, other control envelopes and look-ups of the list of receivers."""
    bodies = [orjson.loads(request.body) for request in receiver.requests if request.method == "POST"]
    return [body for body in bodies if "type" not in body]


def make_subscription(url: str, *, secret: Any = SECRET, **members: Any) -> Json:
    """The params of events/subscribe."""
    return {
        "name": FINISHED,
        "arguments": {},
        "delivery": {"mode": "webhook", "url": url, "secret": secret},
        "cursor": None,
        **members,
    }


def make_envelope() -> Json:
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }


def encode(method: str, params: Any, *, request_id: Any = 1) -> bytes:
    """A request in JSON that may contain NaN and other things that JSON has no words for."""
    sent = {**cast("Json", params), "_meta": make_envelope()} if isinstance(params, dict) else params
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": sent}).encode()


def read_response(response: httpx.Response) -> Json:
    """The response message of JSON or of a stream, which must not be a failure of the server."""
    assert response.status_code < 500, response.text
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        lines = [line.removeprefix("data:").strip() for line in response.text.splitlines() if line.startswith("data:")]
        return dict(orjson.loads([line for line in lines if line][-1]))
    return dict(orjson.loads(response.content))
