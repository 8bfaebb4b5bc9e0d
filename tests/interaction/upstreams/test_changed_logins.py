"""Another login to an upstream may be that of another account: its owner gets another connection, with other lists."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ringback.domain.call_outcome import CallCompletion
from ringback.domain.erasure import Erasure
from ringback.domain.errors import SignInRequired, Unavailable
from ringback.domain.upstream_logins import CredentialsScope
from ringback.domain.upstreams import Listing
from ringback.services.erasure_batches import erase_identity
from tests.support.builders import make_identity_erasure
from tests.support.changed_logins import UPSTREAM, ChangedLogins, open_logins
from tests.support.engine import wait_until
from tests.support.examples import ALICE, BOB
from tests.support.library_upstream import ERAS
from tests.support.owned_upstream import OwnedWorld
from tests.support.proxies import next_change
from tests.support.upstreams import run_upstream_call, wait_until_true

RED_TOOLS = ["red-tool", "red has a tool with odd characters"]
BLUE_TOOLS = ["blue-tool", "blue has a tool with odd characters"]


async def list_on_all_nodes(logins: ChangedLogins) -> list[list[str]]:
    return [await logins.list_tools(node) for node in logins.nodes]


def get_text(completion: CallCompletion) -> str:
    return (completion.result or b"").decode()


@pytest.mark.parametrize("credentials", CredentialsScope)
@pytest.mark.parametrize("era", ERAS)
async def test_after_a_login_with_another_account_every_node_shows_its_lists_and_runs_its_tools(
    tmp_path: Path, era: str, credentials: CredentialsScope
) -> None:
    async with open_logins(tmp_path, era, credentials) as logins:
        await logins.sign_in("red")
        assert await list_on_all_nodes(logins) == [RED_TOOLS] * 2

        await logins.sign_in("blue")
        results = [get_text(await run_upstream_call(node, "blue-tool")) for node in logins.nodes]

        assert ["a result of blue" in each for each in results] == [True, True]
        assert await list_on_all_nodes(logins) == [BLUE_TOOLS] * 2
        assert "red" not in str(await logins.read_stored_lists())


@pytest.mark.parametrize("credentials", CredentialsScope)
async def test_a_connection_without_requests_is_replaced_and_clients_are_notified(
    tmp_path: Path, credentials: CredentialsScope
) -> None:
    async with open_logins(tmp_path, "modern", credentials) as logins:
        await logins.sign_in("red")
        await list_on_all_nodes(logins)
        earlier = [logins.find_connection(node) for node in logins.nodes]
        with logins.nodes[1].proxy.subscribe_changes(UPSTREAM, principal=ALICE) as changes:
            await logins.sign_in("blue")

            assert (await next_change(changes)).listing is Listing.TOOLS
        await wait_until_true(
            lambda: all(
                logins.find_connection(node) is not before for node, before in zip(logins.nodes, earlier, strict=True)
            )
        )


@pytest.mark.parametrize("era", ERAS)
async def test_a_running_call_ends_with_the_login_that_started_it(tmp_path: Path, era: str) -> None:
    async with open_logins(tmp_path, era) as logins:
        node, red = logins.nodes[0], logins.accounts["red"]
        await logins.sign_in("red")
        await logins.list_tools(node)
        running = await start_held_call(logins, red)

        await logins.sign_in("blue")
        second = await run_upstream_call(node, "blue-tool")
        red.released.set()

        assert "a result of blue" in get_text(second)
        assert "a result of red" in get_text(await running)


async def start_held_call(logins: ChangedLogins, world: OwnedWorld) -> "asyncio.Task[CallCompletion]":
    """A call that runs on the first node until the world is released."""
    world.is_holding = True
    running = asyncio.create_task(run_upstream_call(logins.nodes[0], f"{world.owner}-tool"))
    await wait_until_true(lambda: world.held_count == 1)
    return running


@pytest.mark.parametrize("credentials", CredentialsScope)
async def test_after_a_sign_out_nothing_of_the_account_is_shown_on_any_node(
    tmp_path: Path, credentials: CredentialsScope
) -> None:
    async with open_logins(tmp_path, "modern", credentials) as logins:
        await logins.sign_in("red")
        await list_on_all_nodes(logins)
        await logins.sign_out()

        for node in logins.nodes:
            with pytest.raises((SignInRequired, Unavailable)):
                await node.proxy.list_entries(UPSTREAM, Listing.TOOLS, principal=ALICE)
        assert await logins.read_stored_lists() == []


async def test_a_refresh_keeps_the_connection(tmp_path: Path) -> None:
    async with open_logins(tmp_path, "modern") as logins:
        await logins.sign_in("red")
        await list_on_all_nodes(logins)
        earlier = [logins.find_connection(node) for node in logins.nodes]
        await logins.write_as_refresh()
        await list_on_all_nodes(logins)

        assert [logins.find_connection(node) for node in logins.nodes] == earlier


async def test_an_erased_principal_has_no_connection_and_another_principal_keeps_its_own(tmp_path: Path) -> None:
    async with open_logins(tmp_path, "modern") as logins:
        await logins.sign_in("red")
        await list_on_all_nodes(logins)
        bob = replace(logins, owner=BOB)
        await bob.sign_in("blue")
        await logins.nodes[0].proxy.list_entries(UPSTREAM, Listing.TOOLS, principal=BOB)
        await logins.store.write_for(ALICE, lambda tx: erase_identity(tx, make_erasure(logins)))

        async def has_none() -> bool:
            return [logins.find_connection(node) for node in logins.nodes] == [None, None]

        await wait_until(has_none)
        assert await logins.read_stored_lists() == []
        assert logins.nodes[0].connections.find_connection(UPSTREAM, BOB) is not None


def make_erasure(logins: ChangedLogins) -> Erasure:
    now = logins.clock.now()
    return make_identity_erasure(ALICE, requested_at=now)
