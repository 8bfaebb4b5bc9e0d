"""A message with millions of values is refused before it is decoded, in both eras."""

from typing import Final

import httpx

from ringback.domain.json_size import VALUES_MAX
from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway_hostile.conftest import HostileClient, count_stored_calls, encode_request
from tests.support.mcp_wire import LegacyClientSession

UPSTREAMS: Final = ("paint",)

POSITION = '"HERE"'
NUMBERS = "[" + "1," * VALUES_MAX + "1]"


async def test_a_message_with_too_many_values_is_refused_with_what_to_do(
    gate: GatewayHarness, intruder: HostileClient, session: LegacyClientSession
) -> None:
    before = count_stored_calls(gate)
    message = encode_request("tools/call", {"name": "count", "arguments": {"a": "HERE"}})
    body = message.replace(POSITION.encode(), NUMBERS.encode())
    headers = {**session.headers, "content-type": "application/json"}

    modern = await intruder.post(body, headers={"mcp-method": "tools/call", "mcp-name": "count"})
    legacy: httpx.Response = await gate.http.post(session.url, content=body, headers=headers)

    for answer in (modern, legacy):
        assert answer.status_code == 422, answer.text[:500]
        assert "Send large data as one text" in answer.text
    assert count_stored_calls(gate) == before
