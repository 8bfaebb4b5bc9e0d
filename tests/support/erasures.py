"""Calls with a private text, which an erasure removes."""

from typing import Any

import httpx

from ringback.domain.call_outcome import completion_from_result
from tests.support.databases import read_tables
from tests.support.service import CALL_BODY, ServiceUnderTest

PRIVATE = "private-7f3a"
"""What the client and the upstream say, in every text that reaches the service."""
BODY: dict[str, Any] = CALL_BODY | {
    "arguments": {"repo_path": PRIVATE},
    "client_session_id": f"{PRIVATE}/session",
    "correlation_id": f"{PRIVATE}-correlation",
}
SESSION = "/v1/sessions/private-7f3a%2Fsession"
RESULT = completion_from_result(b'{"content":[{"type":"text","text":"private-7f3a"}],"isError":false}', is_error=False)


async def start(client: httpx.AsyncClient, key: str | None = None, **over: Any) -> str:
    headers = {"Idempotency-Key": key} if key else {}
    answer = await client.post("/v1/calls", json=BODY | over, headers=headers)
    assert answer.status_code == 202
    return answer.json()["call"]["id"]


async def run_call(service: ServiceUnderTest, client: httpx.AsyncClient, key: str | None = None, **over: Any) -> str:
    call_id = await start(client, key, **over)
    await service.finish_call(call_id, RESULT)
    return call_id


def find_private_text(
    service: ServiceUnderTest, *, but_for: frozenset[str] = frozenset(), text: str = PRIVATE
) -> list[str]:
    """The tables that hold the private text."""
    return sorted(
        table
        for table, rows in read_tables(service.folder).items()
        if table not in but_for and text in repr([tuple(row) for row in rows])
    )
