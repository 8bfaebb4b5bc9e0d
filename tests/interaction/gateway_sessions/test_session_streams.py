"""The own stream of a legacy session, for messages outside requests: what comes again after it broke."""

from typing import Any

import pytest
from mcp.server.streamable_http import GET_STREAM_KEY

from ringback.domain.upstreams import UpstreamChange
from ringback.mcp_server.own_stream import OWN_STREAM_RETRY_MILLISECONDS
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications
from tests.interaction.gateway_sessions.conftest import RestartableRingback, open_session, open_subscribed_session
from tests.support.event_reader import resume_stream
from tests.support.mcp_wire import Json
from tests.support.resource_upstream import NOTE_URI

pytestmark = pytest.mark.requirement("R25")


async def test_a_notification_that_no_stream_carried_comes_with_the_next_one(files: RestartableRingback) -> None:
    async with files.running() as running:
        session = await open_subscribed_session(running)
        await files.notes.publish_resource_change()
        await running.wait_for_unsent(session)
        async with resume_stream(session, None) as stream:
            event = await stream.next_message()
            assert (event.data["method"], event.data["params"]["uri"]) == ("notifications/resources/updated", NOTE_URI)


async def test_a_client_whose_own_stream_broke_unnoticed_opens_it_again(files: RestartableRingback) -> None:
    """The first response is never closed by the client; Last-Event-ID shows that its client has left it."""
    async with files.running() as running:
        session = await open_subscribed_session(running)
        async with resume_stream(session, None) as broken:
            await files.notes.publish_resource_change()
            event_id = (await broken.next_message()).id
            async with resume_stream(session, None) as second:
                assert second.response.status_code == 409
            async with resume_stream(session, event_id) as stream:
                await files.notes.publish_resource_change()
                assert (await stream.next_message()).data["params"]["uri"] == NOTE_URI


async def test_a_client_whose_own_stream_broke_before_its_first_notification_opens_it_again(
    files: RestartableRingback,
) -> None:
    async with files.running() as running:
        session = await open_subscribed_session(running)
        async with resume_stream(session, None) as broken:
            first = await broken.next()
            await files.notes.publish_resource_change()
            async with resume_stream(session, first.id) as stream:
                assert (await stream.next_message()).data["params"]["uri"] == NOTE_URI
    assert (first.data, first.retry) == (None, OWN_STREAM_RETRY_MILLISECONDS)


async def test_what_was_to_follow_the_first_event_of_a_stream_comes_with_the_next_one(
    files: RestartableRingback,
) -> None:
    async with files.running() as running:
        session = await open_subscribed_session(running)
        await files.notes.publish_resource_change()
        await running.wait_for_unsent(session)
        async with resume_stream(session, None) as stream:
            first_id = (await stream.next()).id
        async with resume_stream(session, first_id) as stream:
            assert (await stream.next_message()).data["params"]["uri"] == NOTE_URI


async def test_a_client_that_knows_no_events_without_data_gets_none(files: RestartableRingback) -> None:
    """A client of before 2025-11-25 would take it for a message that is no JSON."""
    async with files.running() as running:
        session = await open_subscribed_session(running, version="2025-06-18")
        async with resume_stream(session, None) as stream:
            await files.notes.publish_resource_change()
            assert (await stream.next()).data["params"]["uri"] == NOTE_URI


async def test_notifications_after_the_last_event_come_again_and_earlier_ones_do_not(
    files: RestartableRingback,
) -> None:
    async with files.running() as running:
        session = await open_subscribed_session(running)
        async with resume_stream(session, None) as stream:
            await files.notes.publish_resource_change()
            first_id = (await stream.next_message()).id
            await files.notes.publish_list_changes()
            methods = {(await stream.next_message()).data["method"] for _ in range(2)}
        async with resume_stream(session, first_id) as stream:
            again = {(await stream.next_message()).data["method"] for _ in range(2)}
    assert again == methods == {"notifications/tools/list_changed", "notifications/resources/list_changed"}


async def test_a_request_id_that_is_the_sdks_name_of_the_own_stream_is_refused(files: RestartableRingback) -> None:
    """Streams are kept by request id, and the own stream by a name that a client may choose as an id too."""
    async with files.running() as running:
        session = await open_session(running, "/mcp/notes")
        async with resume_stream(session, None) as stream:
            await stream.next()
        message: Json = {"jsonrpc": "2.0", "id": GET_STREAM_KEY, "method": "tools/list", "params": {}}
        answer = await session.http.post(session.url, json=message, headers=session.headers)
        assert (answer.status_code, answer.json()["id"]) == (409, GET_STREAM_KEY)
        assert (await session.request("tools/list", {}))["tools"]


async def test_a_session_holds_no_changes_of_resources_that_it_is_not_subscribed_to(
    files: RestartableRingback,
) -> None:
    """Each of its subscriptions would hold them while its client reads slowly."""
    async with files.running() as running:
        await open_subscribed_session(running)
        proxy: Any = running.application.app.mcp._gateway.proxy  # pyright: ignore[reportPrivateUsage]
        notifications: ChangeNotifications = proxy._change_notifications
        streams = [
            each
            for each in notifications._streams  # pyright: ignore[reportPrivateUsage]
            if each._principal == "alice"  # pyright: ignore[reportPrivateUsage]
        ]
        notifications.publish_change(UpstreamChange(upstream="notes", uri="note://another"))
        assert len(streams) == 2  # of its lists, and of the note
        assert [each.drain() for each in streams] == [[], []]
