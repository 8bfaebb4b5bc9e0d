"""An upstream's own notifications ring: the whole service, a real upstream of either era, a real receiver."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ringback.client import RingbackClient
from tests.support.application import SECRET, Phone, listening, running_application
from tests.support.engine import until
from tests.support.library import BOOK, ERAS, NAME, Library
from tests.support.upstreams import WAIT_SECONDS, http_config, serving

pytestmark = [pytest.mark.requirement("R17"), pytest.mark.parametrize("era", ERAS)]


async def watch(agent: RingbackClient, phone: Phone, **options: Any) -> str:
    webhook = await agent.register_webhook(
        phone.url, secret=SECRET, events=["upstream.changed"], upstream=NAME, **options
    )
    return webhook.id


async def rung(phone: Phone, count: int) -> list[dict[str, Any]]:
    async def often_enough() -> bool:
        return len(phone.callbacks) >= count

    await until(often_enough)
    return [dict(callback.data) for callback in phone.callbacks]


async def test_a_watched_resource_and_a_changed_list_ring_and_are_in_the_log(tmp_path: Path, era: str) -> None:
    library = Library()
    async with (
        serving(library.app(era)) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url, name=NAME)) as ringback,
    ):
        alice, bob = await ringback.agent("alice"), await ringback.agent("bob")
        await watch(alice, phone, resource_uri=BOOK)
        await asyncio.wait_for(library.until_watched(BOOK), WAIT_SECONDS)
        await library.change(BOOK)

        told = {"upstream": NAME, "change": "resource", "uri": BOOK}
        assert await rung(phone, 1) == [told]
        assert [event.data async for event in alice.events()] == [told]
        assert [event async for event in bob.events()] == []

        await watch(alice, phone, correlation_id="lists")
        await library.tell_of_lists()
        data = (await rung(phone, 3))[1:]
        assert {each["change"] for each in data} == {"resources", "prompts"}
        assert {each["webhook_correlation_id"] for each in data} == {"lists"}


async def test_after_a_restart_what_may_have_been_missed_rings(tmp_path: Path, era: str) -> None:
    library = Library()
    async with serving(library.app(era)) as server, listening() as phone:
        config = http_config(server.url, name=NAME)
        async with running_application(tmp_path, config) as ringback:
            alice = await ringback.agent("alice")
            await watch(alice, phone, resource_uri=BOOK)
            await watch(alice, phone)
            await asyncio.wait_for(library.until_watched(BOOK), WAIT_SECONDS)
            await until(lambda: _listed(library))
        assert phone.callbacks == []

        library.books.append("book://new")
        async with running_application(tmp_path, config):
            told = await rung(phone, 2)
    assert sorted(each["change"] for each in told) == ["resource", "resources"]


async def _listed(library: Library) -> bool:
    return library.asked.count("prompts/list") >= 1
