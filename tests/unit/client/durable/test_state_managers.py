"""The state managers keep the promises of their Protocol: memory, SQLite and a real Redis."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from ringback.client.durable import MemoryRequestState, RedisRequestState, RequestStateManager, SQLiteRequestState
from ringback.client.durable.conformance import CHECKS, NotConformant, check_state_manager
from ringback.client.durable.state import StoredState
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
