"""Checks that a state manager keeps the promises of `RequestStateManager`. Needs no test framework.

    async def open_state() -> AsyncIterator[RequestStateManager]: ...      # an async context manager, empty each time

    asyncio.run(check_state_manager(open_state))

With pytest, one test for each promise:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_state(check):
        async with open_state() as state:
            await check(state)
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

from ringback.client.durable.state import RequestStateManager, StoredState

_FAR: Final = 32_503_680_000.0
"""The year 3000."""
_PAST: Final = 1.0
_WRITERS: Final = 20


class NotConformant(AssertionError):
    """The manager breaks a promise; the text says which."""


async def check_state_manager(open_state: Callable[[], AbstractAsyncContextManager[RequestStateManager]]) -> None:
    """Run all checks, each on a new, empty state; raises `NotConformant`."""
    for check in CHECKS:
        async with open_state() as state:
            await check(state)


async def reads_what_was_written(state: RequestStateManager) -> None:
    """A state is read as it was written, with every character."""
    written = _make("a", text='{"text": "Grüße \\u0000 \U0001f514\\n"}')
    _expect(await state.read("a") is None, "an unknown key is read as None")
    _expect(await state.write(written, replaces=None), "a new state is written")
    _expect(await state.read("a") == written, "a state is read as it was written")


async def writes_only_over_the_version_that_was_read(state: RequestStateManager) -> None:
    """A write with another version, or for a state that exists or is missing, changes nothing."""
    _expect(not await state.write(_make("a"), replaces="v0"), "a missing state is not replaced")
    _expect(await state.read("a") is None, "a rejected write leaves no state")
    await state.write(_make("a"), replaces=None)
    _expect(not await state.write(_make("a", "v2"), replaces=None), "an existing state is not created again")
    _expect(not await state.write(_make("a", "v2"), replaces="v0"), "an older version is not replaced")
    _expect(await state.read("a") == _make("a"), "a rejected write changes nothing")
    _expect(await state.write(_make("a", "v2"), replaces="v1"), "the stored version is replaced")
    _expect(await state.read("a") == _make("a", "v2"), "a replaced state is read")


async def lets_one_of_many_writers_win(state: RequestStateManager) -> None:
    """Of many writes at once that replace the same version, one succeeds."""
    await state.write(_make("a"), replaces=None)
    writes = [state.write(_make("a", f"w{number}"), replaces="v1") for number in range(_WRITERS)]
    won = await asyncio.gather(*writes)
    _expect(sum(won) == 1, "one of many concurrent writes succeeds")
    stored = await state.read("a")
    _expect(
        stored is not None and stored.version == f"w{won.index(True)}", "the state is that of the write that succeeded"
    )


async def lets_one_of_many_creators_win(state: RequestStateManager) -> None:
    """Of many creations of one key at once, one succeeds."""
    won = await asyncio.gather(*(state.write(_make("a", f"w{number}"), replaces=None) for number in range(_WRITERS)))
    _expect(sum(won) == 1, "one of many concurrent creations succeeds")


async def deletes_for_good(state: RequestStateManager) -> None:
    """A deleted state is gone, may be deleted again, and may be created again."""
    await state.write(_make("a"), replaces=None)
    await state.delete("a")
    await state.delete("a")
    _expect(await state.read("a") is None, "a deleted state is not read")
    _expect(not await state.write(_make("a", "v2"), replaces="v1"), "a deleted state is not replaced")
    _expect(not await state.list_states(), "a deleted state is not listed")
    _expect(await state.write(_make("a", "v3"), replaces=None), "a deleted key can be used again")


async def hides_expired_states(state: RequestStateManager) -> None:
    """A state whose time is over does not exist: it is not read, listed or replaced, and its key is free."""
    await state.write(replace(_make("a"), expires_at=_PAST), replaces=None)
    await state.write(_make("b"), replaces=None)
    _expect(await state.read("a") is None, "an expired state is not read")
    _expect([each.key for each in await state.list_states()] == ["b"], "an expired state is not listed")
    _expect(not await state.write(_make("a", "v2"), replaces="v1"), "an expired state is not replaced")
    _expect(await state.write(_make("a", "v2"), replaces=None), "the key of an expired state is free")
    await state.write(replace(_make("b", "v2"), expires_at=_PAST), replaces="v1")
    _expect(await state.read("b") is None, "a state expires when a later version says so")


async def lists_all_states_in_pages(state: RequestStateManager) -> None:
    """Pages are sorted by key, and together they contain each state once, also with expired ones in between."""
    keys = [f"req_{number:03d}" for number in range(25)]
    for key in reversed(keys):
        await state.write(_make(key), replaces=None)
    await state.write(replace(_make("req_003", "v2"), expires_at=_PAST), replaces="v1")
    _expect(await _list_all(state, limit=4) == [key for key in keys if key != "req_003"], "pages list each state once")
    _expect(not await state.list_states(after=keys[-1]), "nothing follows the last key")


async def keeps_large_texts(state: RequestStateManager) -> None:
    """A text of 16 MiB, the largest result."""
    written = _make("a", text='"' + "x" * (16 * 1024 * 1024) + '"')
    await state.write(written, replaces=None)
    _expect(await state.read("a") == written, "a text of 16 MiB is read as it was written")


CHECKS: Final[Sequence[Callable[[RequestStateManager], Awaitable[None]]]] = (
    reads_what_was_written,
    writes_only_over_the_version_that_was_read,
    lets_one_of_many_writers_win,
    lets_one_of_many_creators_win,
    deletes_for_good,
    hides_expired_states,
    lists_all_states_in_pages,
    keeps_large_texts,
)


async def _list_all(state: RequestStateManager, *, limit: int) -> list[str]:
    keys: list[str] = []
    while page := await state.list_states(after=keys[-1] if keys else "", limit=limit):
        _expect(len(page) <= limit, "a page has at most `limit` states")
        keys += [each.key for each in page]
        if len(page) < limit:
            break
    return keys


def _make(key: str, version: str = "v1", text: str = "{}") -> StoredState:
    return StoredState(key=key, version=version, text=text, expires_at=_FAR)


def _expect(kept: bool, promise: str) -> None:  # noqa: FBT001 - reads like assert
    if not kept:
        raise NotConformant(f"The state manager breaks a promise: {promise}.")
