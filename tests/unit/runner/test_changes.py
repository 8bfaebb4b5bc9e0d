"""What upstreams tell unasked, kept for whoever is slow: bounded, the same thing once."""

import asyncio

import pytest

from ringback.domain.upstreams import Change, Listing
from ringback.runner import changes as changes_module
from ringback.runner.changes import Changes

TOOLS = Change(upstream="git", listing=Listing.TOOLS)
PROMPTS = Change(upstream="git", listing=Listing.PROMPTS)
ELSEWHERE = Change(upstream="time", listing=Listing.TOOLS)


async def test_the_same_change_waits_once_and_in_its_place() -> None:
    changes = Changes()
    with changes.listen("git") as of_git, changes.listen() as of_all:
        for change in (TOOLS, ELSEWHERE, PROMPTS, TOOLS):
            changes.publish(change)

        assert [await anext(of_git), await anext(of_git)] == [TOOLS, PROMPTS]
        assert of_git.take_all() == []
        assert of_all.take_all() == [TOOLS, ELSEWHERE, PROMPTS]


async def test_whoever_waits_is_woken_and_whoever_has_left_hears_nothing() -> None:
    changes = Changes()
    with changes.listen() as stream:
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        changes.publish(TOOLS)
        assert await waiting == TOOLS
    changes.publish(PROMPTS)
    assert stream.take_all() == []


async def test_of_too_many_different_changes_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "WAITING_MAX", 2)
    changes = Changes()
    with changes.listen() as stream:
        for number in range(3):
            changes.publish(Change(upstream="git", uri=f"book://{number}"))

        assert [change.uri for change in stream.take_all()] == ["book://1", "book://2"]


async def test_an_upstream_that_floods_pushes_out_its_own_resources_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes_module, "WAITING_MAX", 2)
    changes = Changes()
    note = Change(upstream="time", uri="note://1")
    with changes.listen() as stream:
        for change in (TOOLS, ELSEWHERE, note, *(Change(upstream="git", uri=f"book://{n}") for n in range(4)), PROMPTS):
            changes.publish(change)

        left = [Change(upstream="git", uri="book://2"), Change(upstream="git", uri="book://3")]
        assert stream.take_all() == [TOOLS, ELSEWHERE, note, *left, PROMPTS]


async def test_what_was_taken_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "WAITING_MAX", 2)
    changes = Changes()
    books = [Change(upstream="git", uri=f"book://{number}") for number in range(3)]
    with changes.listen() as stream:
        changes.publish(books[0])
        changes.publish(books[1])
        assert await anext(stream) == books[0]
        changes.publish(books[2])
        assert stream.take_all() == books[1:]
