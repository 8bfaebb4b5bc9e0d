"""Units of two nodes that declare a type of events, and publish the first event of its name, at the same time."""

from pathlib import Path
from typing import Final

import pytest

from ringback.domain.errors import InvalidRequest
from ringback.services.events.event_publishing import PublishedEvent, PublishedResult
from ringback.services.events.event_types import DeclaredType, EventTypeDeclaration
from tests.support.clock import FakeClock
from tests.support.interleaving import CALLER, Node, open_nodes

NAME: Final = "order.paid"
SCHEMA: Final = {"properties": {"order": {"type": "integer"}}}


async def declare(node: Node) -> DeclaredType:
    declaration = EventTypeDeclaration(name=NAME, description="An order was paid.", payload_schema=SCHEMA)
    return await node.services.event_types.declare_event_type(CALLER, declaration)


async def publish(node: Node, order: object) -> PublishedResult:
    (result,) = await node.services.event_publishing.publish_events(
        CALLER, [PublishedEvent(name=NAME, data={"order": order})]
    )
    return result


async def read_declared(node: Node) -> tuple[str, object]:
    found = await node.services.event_types.find_event_type(CALLER, NAME)
    assert found is not None
    return found.description, found.payload_schema


@pytest.mark.parametrize("order", [7, "seven"])
async def test_the_first_event_leaves_a_declaration_of_the_same_moment_and_is_checked_against_it(
    tmp_path: Path, clock: FakeClock, order: object
) -> None:
    async with open_nodes(tmp_path, clock) as nodes:
        _, published = await nodes.interleave(declare, lambda node: publish(node, order))

        assert await read_declared(nodes.second) == ("An order was paid.", SCHEMA)
        assert isinstance(published, InvalidRequest if order == "seven" else PublishedResult)


async def test_a_declaration_replaces_what_the_first_event_of_the_same_moment_declares(
    tmp_path: Path, clock: FakeClock
) -> None:
    async with open_nodes(tmp_path, clock) as nodes:
        await nodes.interleave(lambda node: publish(node, 7), declare)

        assert await read_declared(nodes.second) == ("An order was paid.", SCHEMA)
