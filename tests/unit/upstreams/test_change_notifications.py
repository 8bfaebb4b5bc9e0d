"""Pending changes of slow listeners are limited, and equal changes are kept once."""

import asyncio

import pytest

from ringback.domain.upstreams import Listing, UpstreamChange
from ringback.upstreams.subscriptions import change_notifications as changes_module
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications

TOOLS = UpstreamChange(upstream="git", listing=Listing.TOOLS)
PROMPTS = UpstreamChange(upstream="git", listing=Listing.PROMPTS)
ELSEWHERE = UpstreamChange(upstream="time", listing=Listing.TOOLS)


async def test_the_same_change_waits_once_and_in_its_place() -> None:
    changes = ChangeNotifications()
    with (
        changes.subscribe_changes("git", principal=None) as of_git,
        changes.subscribe_changes(principal=None) as of_all,
    ):
        for change in (TOOLS, ELSEWHERE, PROMPTS, TOOLS):
            changes.publish_change(change)

        assert [await anext(of_git), await anext(of_git)] == [TOOLS, PROMPTS]
        assert of_git.drain() == []
        assert of_all.drain() == [TOOLS, ELSEWHERE, PROMPTS]


async def test_a_waiting_subscriber_is_notified_and_a_closed_one_gets_nothing() -> None:
    changes = ChangeNotifications()
    with changes.subscribe_changes(principal=None) as stream:
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        changes.publish_change(TOOLS)
        assert await waiting == TOOLS
    changes.publish_change(PROMPTS)
    assert stream.drain() == []


async def test_the_oldest_of_too_many_different_changes_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "QUEUED_RESOURCES_MAX", 2)
    changes = ChangeNotifications()
    with changes.subscribe_changes(principal=None) as stream:
        for number in range(3):
            changes.publish_change(UpstreamChange(upstream="git", uri=f"book://{number}"))

        assert [change.uri for change in stream.drain()] == ["book://1", "book://2"]


async def test_an_upstream_that_floods_pushes_out_its_own_resources_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes_module, "QUEUED_RESOURCES_MAX", 2)
    changes = ChangeNotifications()
    note = UpstreamChange(upstream="time", uri="note://1")
    with changes.subscribe_changes(principal=None) as stream:
        for change in (
            TOOLS,
            ELSEWHERE,
            note,
            *(UpstreamChange(upstream="git", uri=f"book://{n}") for n in range(4)),
            PROMPTS,
        ):
            changes.publish_change(change)

        left = [UpstreamChange(upstream="git", uri="book://2"), UpstreamChange(upstream="git", uri="book://3")]
        assert stream.drain() == [TOOLS, ELSEWHERE, note, *left, PROMPTS]


async def test_a_consumed_change_frees_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "QUEUED_RESOURCES_MAX", 2)
    changes = ChangeNotifications()
    books = [UpstreamChange(upstream="git", uri=f"book://{number}") for number in range(3)]
    with changes.subscribe_changes(principal=None) as stream:
        changes.publish_change(books[0])
        changes.publish_change(books[1])
        assert await anext(stream) == books[0]
        changes.publish_change(books[2])
        assert stream.drain() == books[1:]


def test_a_listener_of_some_resources_holds_no_changes_of_others() -> None:
    changes = ChangeNotifications()
    book = UpstreamChange(upstream="git", uri="book://1")
    with (
        changes.subscribe_changes(principal=None, uris=()) as of_lists,
        changes.subscribe_changes(principal=None, uris=("book://1",)) as of_book,
    ):
        for change in (UpstreamChange(upstream="git", uri="book://2"), book, TOOLS):
            changes.publish_change(change)

        assert of_lists.drain() == [TOOLS]
        assert of_book.drain() == [book, TOOLS]
