"""RINGBACK_SEAL=all: arguments, `_meta` and results are sealed at rest, and rows of either setting are read with both."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.call import MRTR_DRIVER, UNREADABLE_MEMBER, Call, Handle
from ringback.domain.call_outcome import CallOutcome, completion_from_result
from ringback.domain.call_rows import CallFilter
from ringback.domain.clock import SystemClock
from ringback.domain.errors import ContentUnreadable
from ringback.domain.ports import Store, Transaction
from ringback.resealing import count_sealed_by_key
from ringback.services.sealing_keys import find_missing_keys
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.storage.open import open_store
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.databases import count_rows, database_url, query_rows
from tests.support.engine import Engine, ScriptedUpstreams

PRIVATE: Final = "private-7f3a"
KEYS: Final = {name: name.encode() * KEY_BYTES for name in ("a", "b")}
RESULT: Final = b'{"content":[{"type":"text","text":"private-7f3a"}]}'


@asynccontextmanager
async def store_with(folder: Path, *names: str, seals_content: bool) -> AsyncGenerator[Store]:
    """A store with these keys, newest first."""
    sealer = AesGcmSealer(
        {name: KEYS[name] for name in names}, current=names[0], random_bytes=os.urandom, seals_content=seals_content
    )
    async with open_store(database_url(folder), clock=FakeClock(), sealer=sealer, exclusive=True) as store:
        yield store


def make_private_call() -> Call:
    return make_call(
        arguments={"repo_path": PRIVATE, "text": "\x00"},
        meta={"trace": PRIVATE},
        deadline_at=SystemClock().now() + timedelta(days=1),
    )


async def finish_call(store: Store, call: Call) -> None:
    await Engine(store, FakeClock()).finish_call(call, completion_from_result(RESULT, is_error=False))


async def read_content(store: Store, call: Call) -> tuple[object, object, bytes | None]:
    async def read(tx: Transaction) -> tuple[object, object, bytes | None]:
        found = await tx.calls.get_whole(call.id)
        assert found is not None
        return found.arguments, found.meta, await tx.call_completions.get_result(call.id)

    return await store.read(read)


@pytest.mark.parametrize("seals_content", [True, False])
async def test_content_is_read_with_both_settings_whatever_it_was_written_with(
    tmp_path: Path, *, seals_content: bool
) -> None:
    call = make_private_call()
    async with store_with(tmp_path, "a", seals_content=seals_content) as store:
        await finish_call(store, call)

        assert await read_content(store, call) == (call.arguments, call.meta, RESULT)
    async with store_with(tmp_path, "b", "a", seals_content=not seals_content) as other:
        assert await read_content(other, call) == (call.arguments, call.meta, RESULT)


async def test_no_table_holds_sealed_content_in_readable_form(tmp_path: Path) -> None:
    async with store_with(tmp_path, "a", seals_content=True) as store:
        await finish_call(store, make_private_call())

        tables = count_rows(tmp_path)
        readable = [name for name in tables if PRIVATE in repr(query_rows(tmp_path, f"SELECT * FROM {name}"))]  # noqa: S608
        assert (tables["inputs"], tables["results"], readable) == (1, 1, [])


async def test_sealed_content_is_counted_and_its_key_is_missed(tmp_path: Path) -> None:
    async with store_with(tmp_path, "a", seals_content=True) as store:
        await finish_call(store, make_private_call())

        assert await count_sealed_by_key(store) == {"a": 2}
        await store.write(lambda tx: tx.sealing_keys.add("a", None))
        assert await find_missing_keys(store, ["b"]) == ["a"]


async def test_content_of_a_lost_key_hides_nothing_else(tmp_path: Path) -> None:
    lost, kept = make_private_call(), make_call()
    async with store_with(tmp_path, "a", seals_content=True) as store:
        await finish_call(store, lost)
    async with store_with(tmp_path, "b", seals_content=True) as store:
        await finish_call(store, kept)

        page = await store.read(lambda tx: tx.calls.list_page(kept.principal, CallFilter(), position=None, limit=10))
        assert {call.id for call in page} == {lost.id, kept.id}
        whole = await store.read(lambda tx: tx.calls.get_whole(lost.id))
        assert whole is not None
        assert (whole.arguments, whole.meta) == ({}, {UNREADABLE_MEMBER: True})
        assert await read_content(store, kept) == (kept.arguments, kept.meta, RESULT)
        with pytest.raises(ContentUnreadable, match="sealed with the key 'a'"):
            await store.read(lambda tx: tx.call_completions.get_result(lost.id))


async def run_without_its_key(folder: Path, call: Call) -> tuple[Call, ScriptedUpstreams]:
    """The ended call, which a service without the key of its arguments found in the store, and its upstreams."""
    upstreams = ScriptedUpstreams()
    async with store_with(folder, "a", seals_content=True) as store:
        await store.write(lambda tx: tx.calls.insert(call))
    async with store_with(folder, "b", seals_content=True) as store:
        engine = Engine(store, SystemClock())
        async with engine.running_runner(upstreams):
            (ended,) = await engine.wait_until_final(call)
    return ended, upstreams


async def test_a_call_whose_arguments_cannot_be_read_is_never_sent(tmp_path: Path) -> None:
    ended, upstreams = await run_without_its_key(tmp_path, make_private_call())

    assert ended.outcome is CallOutcome.REJECTED
    assert "sealed with a key" in (ended.error or {})["message"]
    assert upstreams.called == []


async def test_an_answered_call_whose_arguments_cannot_be_read_is_not_sent_without_them(tmp_path: Path) -> None:
    """The next round repeats the arguments: without them the tool would run with none."""
    answered = replace(
        make_private_call(),
        handle=Handle(driver=MRTR_DRIVER, data={"request_state": "s", "round": 1}),
        dispatched_at=SystemClock().now(),
        runs=1,
    )
    ended, upstreams = await run_without_its_key(tmp_path, answered)

    assert ended.outcome is CallOutcome.UNKNOWN
    assert "sealed with a key" in (ended.error or {})["message"]
    assert upstreams.called == []
