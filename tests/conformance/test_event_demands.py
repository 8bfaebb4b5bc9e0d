"""How many different events of an upstream principals can demand: a demand that nothing would follow is refused."""

from typing import Final

import pytest

from ringback.domain.errors import QuotaExceeded
from ringback.domain.event_types import DEMAND_SECONDS, EventFollowing, EventType, arguments_topic
from ringback.domain.principal import Caller, Principal
from ringback.services.event_demands import PRINCIPAL_SHARE_MAX, UPSTREAM_DEMANDS_MAX
from tests.support.clock import START, FakeClock
from tests.support.examples import ALICE
from tests.support.interleaving import CALLER, OTHER_CALLER, Node, Nodes, make_caller

CAROL: Final = make_caller(Principal("carol"))


async def demand(node: Node, number: int, caller: Caller = CALLER, upstream: str = "git") -> None:
    """Demand the events for these arguments, which the upstream is asked for already: nothing waits for it."""
    event_type = EventType(
        name=f"{upstream}/pushed",
        own_name="pushed",
        upstream=upstream,
        description="",
        input_schema={},
        payload_schema={},
    )
    arguments = f'{{"number":{number}}}'
    following = EventFollowing(
        event_name=event_type.name, topic=arguments_topic(arguments) or "", cursor=None, updated_at=START
    )
    await node.store.write(lambda tx: tx.event_followings.save(following))
    await node.services.event_types.demand_events(caller, event_type, arguments)


async def refuse(node: Node, number: int, caller: Caller = CALLER) -> str:
    """The quota that refuses the demand."""
    with pytest.raises(QuotaExceeded) as refused:
        await demand(node, number, caller)
    return str(refused.value.extra["quota"])


async def test_one_principal_cannot_use_up_an_upstream_for_the_others(nodes: Nodes) -> None:
    for number in range(PRINCIPAL_SHARE_MAX):
        await demand(nodes.first, number)

    assert await refuse(nodes.first, PRINCIPAL_SHARE_MAX) == "upstream_events"
    await demand(nodes.first, 0)
    await demand(nodes.first, 0, upstream="git2")
    await demand(nodes.first, PRINCIPAL_SHARE_MAX, OTHER_CALLER)


async def test_a_demand_that_a_full_upstream_would_not_be_asked_for_is_refused(nodes: Nodes) -> None:
    for number in range(UPSTREAM_DEMANDS_MAX):
        await demand(nodes.first, number, CALLER if number < PRINCIPAL_SHARE_MAX else OTHER_CALLER)

    assert await refuse(nodes.first, UPSTREAM_DEMANDS_MAX, CAROL) == "events_of_upstream"
    await demand(nodes.first, 0, CAROL)


async def test_a_demand_that_has_ended_leaves_its_place_and_must_find_a_new_one(nodes: Nodes, clock: FakeClock) -> None:
    await demand(nodes.first, 0)
    clock.advance(DEMAND_SECONDS)
    for number in range(1, PRINCIPAL_SHARE_MAX + 1):
        await demand(nodes.first, number)

    assert await refuse(nodes.first, 0) == "upstream_events"


async def test_the_events_of_an_upstream_are_counted_once_for_all_principals(nodes: Nodes) -> None:
    for caller in (CALLER, OTHER_CALLER):
        await demand(nodes.first, 1, caller)
    await demand(nodes.first, 2, OTHER_CALLER)
    await demand(nodes.first, 3, upstream="git-2")

    demanded = await nodes.first.store.read(lambda tx: tx.event_demands.list_of_upstream("git", ALICE, now=tx.now()))

    assert sorted(each.is_own for each in demanded) == [False, True]
    assert {each.event_name for each in demanded} == {"git/pushed"}
