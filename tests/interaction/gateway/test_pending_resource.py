"""ringback://calls/{id}: a call that goes on, as a resource that becomes its result."""

import json
from typing import Any

import pytest

from tests.interaction.gateway.conftest import NO_CAPABILITIES, Gate
from tests.support.mcp_wire import Json, Modern, Refused, Session

UNKNOWN = "ringback://calls/call_00000000000000000000000000"

pytestmark = pytest.mark.requirement("R15")


async def held(client: Modern | Session) -> str:
    """The URI of a call that is held."""
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, Modern) else {}
    pending = await client.result("tools/call", {"name": "hold", "arguments": {}}, **declare)
    uri: str = pending["content"][1]["uri"]
    return uri


async def read(client: Modern | Session, uri: str) -> Json:
    return await client.result("resources/read", {"uri": uri})


async def test_it_reads_as_the_call_is_and_becomes_the_result(gate: Gate, modern: Modern, session: Session) -> None:
    for client in (modern, session):
        uri = await held(client)
        before = await read(client, uri)
        (contents,) = before["contents"]
        told = json.loads(contents["text"])
        assert (contents["uri"], contents["mimeType"]) == (uri, "application/json")
        assert (told["status"], told["upstream"], told["tool"]) == ("working", "paint", "hold")
        assert "result" not in told

        gate.paint.release.set()
        await gate.ended(told["call_id"])
        after = json.loads((await read(client, uri))["contents"][0]["text"])

        assert (after["status"], after["outcome"]) == ("completed", "result")
        assert after["result"]["content"] == [{"type": "text", "text": "held"}]
        gate.paint.reset()


async def test_it_is_never_to_be_kept_and_never_to_be_shared(gate: Gate, modern: Modern) -> None:
    answer = await read(modern, await held(modern))
    assert (answer["ttlMs"], answer["cacheScope"]) == (0, "private")
    gate.paint.release.set()


async def test_it_can_be_read_at_every_endpoint(gate: Gate, modern: Modern) -> None:
    uri = await held(modern)
    for upstream in ("plain", None):
        assert (await read(await gate.modern(upstream), uri))["contents"][0]["uri"] == uri
    gate.paint.release.set()


async def test_its_template_is_listed_behind_the_upstreams_own(gate: Gate) -> None:
    async with gate.session("library") as session:
        for client in (await gate.modern("library"), session):
            listed = await client.result("resources/templates/list", {})
            templates = [template["uriTemplate"] for template in listed["resourceTemplates"]]
            assert templates == ["book://{number}", "ringback://calls/{call_id}"]


@pytest.mark.requirement("R25")
async def test_a_foreign_call_is_as_unknown_as_one_that_never_was(gate: Gate, modern: Modern) -> None:
    uri = await held(modern)
    bob = await gate.modern(principal="bob")
    refusals: list[tuple[int, str]] = []
    for asked in (uri, UNKNOWN):
        with pytest.raises(Refused) as refused:
            await read(bob, asked)
        refusals.append((refused.value.code, refused.value.message))
    assert refusals[0] == refusals[1]
    assert refusals[0][0] == -32602
    gate.paint.release.set()


async def test_before_2026_07_28_an_unknown_resource_has_a_code_of_its_own(session: Session) -> None:
    for uri in (UNKNOWN, "ringback://calls/nonsense", "ringback://else"):
        with pytest.raises(Refused) as refused:
            await read(session, uri)
        assert refused.value.code == -32002


async def test_a_call_that_failed_reads_as_its_error(gate: Gate) -> None:
    client = await gate.modern("plain")
    with pytest.raises(Refused):
        await client.result(
            "tools/call", {"name": "refuse", "arguments": {}, "_meta": {"ringback/correlationId": "refused-1"}}
        )
    (call,) = (await gate.rest("GET", "/v1/calls?correlation_id=refused-1")).json()["calls"]
    told = json.loads((await read(client, f"ringback://calls/{call['id']}"))["contents"][0]["text"])
    assert (told["status"], told["error"]["code"]) == ("failed", -32042)
