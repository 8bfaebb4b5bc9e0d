"""A start, and a client of another node who is answered meanwhile that nothing was started: one of the two is true."""

import pytest

from ringback.domain.call import Call
from ringback.domain.call_rows import CallFilter
from ringback.domain.errors import NotFound, Unavailable
from ringback.domain.ports import Transaction
from ringback.services.calls.call_reads import get_own_call
from ringback.services.calls.given_up_starts import require_not_given_up
from tests.support.builders import make_call
from tests.support.examples import ALICE
from tests.support.interleaving import CALLER, Node, Nodes


async def start(node: Node, call: Call) -> None:
    async def insert(tx: Transaction) -> None:
        await require_not_given_up(tx, ALICE, call.id)
        await tx.calls.insert(call)

    await node.store.write_for(ALICE, insert)


async def test_a_start_that_is_about_to_be_committed_is_not_given_up(nodes: Nodes) -> None:
    call = make_call()

    results = await nodes.interleave(
        lambda node: start(node, call), lambda node: node.services.calls.give_up_start(CALLER, call.id)
    )

    assert results == (None, call)


async def test_a_start_that_was_given_up_stores_no_call(nodes: Nodes) -> None:
    call = make_call()

    given_up, refused = await nodes.interleave(
        lambda node: node.services.calls.give_up_start(CALLER, call.id), lambda node: start(node, call)
    )

    assert given_up is None
    assert isinstance(refused, Unavailable)
    page = await nodes.first.store.read(lambda tx: tx.calls.list_page(ALICE, CallFilter(), position=None, limit=10))
    assert list(page) == []


async def test_a_start_is_given_up_twice_and_its_id_names_no_expired_call(nodes: Nodes) -> None:
    call = make_call()
    for _ in range(2):
        assert await nodes.first.services.calls.give_up_start(CALLER, call.id) is None

    with pytest.raises(NotFound):
        await nodes.first.store.read(lambda tx: get_own_call(tx, ALICE, call.id))
