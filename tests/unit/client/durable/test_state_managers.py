"""The state managers keep the promises of their Protocol: memory, SQLite and a real Redis."""

import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.client.durable import (
    MemoryRequestState,
    RedisRequestState,
    RequestStateManager,
    SQLiteRequestState,
    StateUnavailable,
)
from ringback.client.durable.conformance import CHECKS, NotConformant, check_state_manager
from ringback.client.durable.state import StoredState
from scripts.ports import free_port
from tests.support.limits import WAIT_SECONDS
from tests.support.redis_server import running_redis

pytestmark = pytest.mark.requirement("R04")

Check = Callable[[RequestStateManager], Awaitable[None]]
FAR = 32_503_680_000.0


@pytest.fixture(scope="module")
async def redis_url() -> AsyncGenerator[str]:
    async with running_redis() as url:
        yield url


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_memory_conforms(check: Check) -> None:
    await check(MemoryRequestState())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sqlite_conforms(check: Check, tmp_path: Path) -> None:
    async with SQLiteRequestState(tmp_path / "calls.db") as state:
        await check(state)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_redis_conforms(check: Check, redis_url: str) -> None:
    async with RedisRequestState(redis_url, prefix=f"{{{check.__name__}}}:") as state:
        await check(state)


class CountedInstant(float):
    """A time that counts how often it is compared."""

    comparisons = 0

    def __gt__(self, other: float) -> bool:
        CountedInstant.comparisons += 1
        return float(self) > other

    def __le__(self, other: float) -> bool:
        return not self > other


async def test_a_page_of_states_in_memory_reads_no_state_of_the_other_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page read all states: a list of a hundred thousand calls blocked its event loop for half a minute."""
    monkeypatch.setattr(CountedInstant, "comparisons", 0)
    memory = MemoryRequestState()
    for number in range(40):
        state = StoredState(key=f"req_{number:02d}", version="v1", text="{}", expires_at=CountedInstant(FAR))
        await memory.write(state, replaces=None)

    after, pages = "", 0
    while page := await memory.list_states(after=after, limit=4):
        after, pages = page[-1].key, pages + 1

    assert (pages, CountedInstant.comparisons) == (10, 40)


async def test_an_sqlite_file_that_cannot_be_used_raises_the_library_s_own_error_with_advice(tmp_path: Path) -> None:
    state = StoredState(key="k", version="v1", text="{}", expires_at=FAR)
    (tmp_path / "notes.db").write_text("no database, certainly longer than a hundred bytes" * 10, encoding="utf-8")

    for path, reason in ((tmp_path / "missing" / "calls.db", "cannot be opened"), (tmp_path / "notes.db", "is not an")):
        async with SQLiteRequestState(path) as states:
            with pytest.raises(StateUnavailable, match=rf"{reason}.*Check that its folder exists"):
                await states.write(state, replaces=None)
            with pytest.raises(StateUnavailable):
                await states.read("k")


async def test_a_statement_that_sqlite_refuses_raises_the_library_s_own_error(tmp_path: Path) -> None:
    async with SQLiteRequestState(tmp_path / "calls.db") as states:
        await states.read("k")
        with closing(sqlite3.connect(tmp_path / "calls.db")) as connection:
            connection.execute("DROP TABLE request_states")
        with pytest.raises(StateUnavailable, match="no such table"):
            await states.list_states()


async def test_a_redis_that_is_not_there_raises_the_library_s_own_error_without_the_password() -> None:
    async with RedisRequestState(f"redis://:hidden@127.0.0.1:{free_port()}/0") as states:
        state = StoredState(key="k", version="v1", text="{}", expires_at=FAR)
        attempts = (states.read("k"), states.write(state, replaces=None), states.delete("k"), states.list_states())
        for attempt in attempts:
            with pytest.raises(StateUnavailable, match="Check that it runs at this URL") as refused:
                await attempt
            assert "hidden" not in str(refused.value)


async def test_redis_forgets_the_keys_of_expired_states_without_a_list(redis_url: str) -> None:
    from redis.asyncio import Redis  # noqa: PLC0415

    redis: Any = Redis.from_url(redis_url)  # pyright: ignore[reportUnknownMemberType] - its keyword arguments have no types
    state = RedisRequestState(redis, prefix="{expiring}:")
    for number in range(5):
        await state.write(StoredState(key=f"k{number}", version="v1", text="{}", expires_at=1.0), replaces=None)
    kept = StoredState(key="kept", version="v1", text="{}", expires_at=FAR)
    await state.write(kept, replaces=None)

    sizes = {await redis.zcard(key) for key in await redis.keys("{expiring}:*") if await redis.type(key) == b"zset"}
    assert sizes == {1}
    assert await state.list_states() == [kept]
    await state.delete("kept")
    assert await redis.keys("{expiring}:*") == []
    await redis.aclose()


async def test_redis_lists_a_state_that_is_written_again_while_it_is_listed(redis_url: str) -> None:
    from redis.asyncio import Redis  # noqa: PLC0415

    redis: Any = Redis.from_url(redis_url)  # pyright: ignore[reportUnknownMemberType] - its keyword arguments have no types

    class SlowlyListingState(RedisRequestState):
        async def _read_states(self, keys: Sequence[str]) -> dict[str, StoredState | None]:
            found = await super()._read_states(keys)
            await other.write(again, replaces=None)
            return found

    other = RedisRequestState(redis, prefix="{rewritten}:")
    again = StoredState(key="a", version="v2", text="{}", expires_at=FAR)
    await other.write(StoredState(key="a", version="v1", text="{}", expires_at=FAR), replaces=None)
    await redis.delete("{rewritten}:state:a")  # as a Redis that needs memory does
    await SlowlyListingState(redis, prefix="{rewritten}:").list_states()

    assert await other.list_states() == [again]
    await redis.aclose()


async def test_the_suite_checks_a_manager_of_a_user(tmp_path: Path) -> None:
    folder = iter(range(100))

    def open_state() -> AbstractAsyncContextManager[RequestStateManager]:
        return SQLiteRequestState(tmp_path / f"{next(folder)}.db")

    await check_state_manager(open_state)


class ForgetfulState(MemoryRequestState):
    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        await super().write(state, replaces=replaces)
        return True


async def test_the_suite_says_which_promise_a_manager_breaks() -> None:
    @asynccontextmanager
    async def open_state() -> AsyncGenerator[RequestStateManager]:
        yield ForgetfulState()

    with pytest.raises(NotConformant, match="a missing state is not replaced"):
        await check_state_manager(open_state)


async def test_two_sqlite_managers_share_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    state = StoredState(key="a", version="v1", text="{}", expires_at=FAR)
    async with SQLiteRequestState(path) as first, SQLiteRequestState(path) as second:
        assert await first.write(state, replaces=None)
        assert await second.read("a") == state
        assert not await second.write(state, replaces=None)

    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_closed_sqlite_manager_opens_again(tmp_path: Path) -> None:
    state = SQLiteRequestState(tmp_path / "calls.db")
    await state.write(StoredState(key="a", version="v1", text="{}", expires_at=FAR), replaces=None)
    await state.aclose()
    assert await state.read("a") is not None
    await state.aclose()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_sqlite_needs_a_file(path: str) -> None:
    with pytest.raises(ValueError, match="MemoryRequestState"):
        SQLiteRequestState(path)


FORKED: Final = """
import asyncio, os, sys
from ringback.client.durable import SQLiteRequestState, StoredState

def make(key):
    return StoredState(key=key, version="v1", text="{}", expires_at=32_503_680_000.0)

async def read(key):
    async with SQLiteRequestState(sys.argv[1]) as state:
        return await state.read(key)

state = SQLiteRequestState(sys.argv[1])
asyncio.run(state.write(make("parent"), replaces=None))
reader, writer = os.pipe()
if (child := os.fork()) == 0:
    os.read(reader, 1)
    asyncio.run(state.write(make("child"), replaces=None))
    os._exit(0)
asyncio.run(state.aclose())
os.write(writer, b"x")
os.waitpid(child, 0)
print(asyncio.run(read("parent")) is not None, asyncio.run(read("child")) is not None)
"""


def test_what_a_forked_process_writes_into_the_state_of_its_parent_is_in_the_file(tmp_path: Path) -> None:
    """SQLite forbids to use a connection after a fork: its locks stay with the parent, which then removes the child's log."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "calls.db")],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert (ran.stdout, ran.stderr) == ("True True\n", "")


FORKED_BESIDE_NEW_STATES: Final = """
import os, sys, threading, warnings
from ringback.client.durable import SQLiteRequestState

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: the process has threads when it forks
sys.setswitchinterval(1e-5)
has_ended = threading.Event()

def make_states():
    kept = []
    while not has_ended.is_set():
        kept = kept[-200:] + [SQLiteRequestState(sys.argv[1])]

making = threading.Thread(target=make_states)
making.start()
for _ in range(200):
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
has_ended.set()
making.join()
print("ended")
"""


def test_a_process_forks_while_another_thread_makes_states(tmp_path: Path) -> None:
    """The fork failed to go through them, and every later fork of the process waited for ever."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKED_BESIDE_NEW_STATES, str(tmp_path / "calls.db")],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert (ran.stdout, ran.stderr) == ("ended\n", "")
