"""An upstream's own notifications ring: the whole service, a real upstream of either era, a real receiver."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ringback.client import RingbackClient
from tests.support.application import SECRET, CallbackReceiver, running_application, serving_callbacks
from tests.support.engine import wait_until
from tests.support.library_upstream import BOOK_URI, ERAS, UPSTREAM_NAME, LibraryUpstream
from tests.support.upstreams import WAIT_SECONDS, make_http_config, serving

pytestmark = [pytest.mark.requirement("R17"), pytest.mark.parametrize("era", ERAS)]


async def register_change_webhook(agent: RingbackClient, phone: CallbackReceiver, **options: Any) -> str:
    webhook = await agent.register_webhook(
        phone.url, secret=SECRET, events=["upstream.changed"], upstream=UPSTREAM_NAME, **options
    )
    return webhook.id


async def wait_for_callbacks(phone: CallbackReceiver, count: int) -> list[dict[str, Any]]:
    async def often_enough() -> bool:
        return len(phone.callbacks) >= count

    await wait_until(often_enough)
    return [dict(callback.data) for callback in phone.callbacks]


async def test_resource_and_list_changes_send_callbacks_and_are_in_the_log(tmp_path: Path, era: str) -> None:
    library = LibraryUpstream()
    async with (
        serving(library.app(era)) as server,
        serving_callbacks() as phone,
        running_application(tmp_path, make_http_config(server.url, name=UPSTREAM_NAME)) as ringback,
    ):
        alice, bob = await ringback.create_agent_client("alice"), await ringback.create_agent_client("bob")
        await register_change_webhook(alice, phone, resource_uri=BOOK_URI)
        await asyncio.wait_for(library.wait_until_subscribed(BOOK_URI), WAIT_SECONDS)
        await library.publish_resource_change(BOOK_URI)

        expected = {"upstream": UPSTREAM_NAME, "change": "resource", "uri": BOOK_URI}
        (callback,) = await wait_for_callbacks(phone, 1)
        assert callback.pop("subscription_id").startswith("wh_")
        assert callback == expected
        assert [event.data async for event in alice.events()] == [expected]
        assert [event async for event in bob.events()] == []

        await register_change_webhook(alice, phone, correlation_id="lists")
        await library.publish_list_changes()
        data = (await wait_for_callbacks(phone, 3))[1:]
        assert {each["change"] for each in data} == {"resources", "prompts"}
        assert {each["webhook_correlation_id"] for each in data} == {"lists"}


async def test_after_a_restart_possibly_missed_changes_send_callbacks(tmp_path: Path, era: str) -> None:
    library = LibraryUpstream()
    async with serving(library.app(era)) as server, serving_callbacks() as phone:
        config = make_http_config(server.url, name=UPSTREAM_NAME)
        async with running_application(tmp_path, config) as ringback:
            alice = await ringback.create_agent_client("alice")
            await register_change_webhook(alice, phone, resource_uri=BOOK_URI)
            await register_change_webhook(alice, phone)
            await asyncio.wait_for(library.wait_until_subscribed(BOOK_URI), WAIT_SECONDS)
            await wait_until(lambda: wait_until_listed(library))
        assert phone.callbacks == []

        library.books.append("book://new")
        async with running_application(tmp_path, config):
            changes = await wait_for_callbacks(phone, 2)
    assert sorted(each["change"] for each in changes) == ["resource", "resources"]


async def wait_until_listed(library: LibraryUpstream) -> bool:
    return library.list_requests.count("prompts/list") >= 1
