"""States in Redis, which processes on many machines share. Needs `pip install "ringback[redis]"`."""

from collections.abc import Awaitable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, cast

from ringback.client.durable.errors import StateUnavailable
from ringback.client.durable.state import StoredState

if TYPE_CHECKING:
    from redis.asyncio import Redis

PREFIX: Final = "{ringback}:requests:"
"""The braces keep all keys on one node of a Redis Cluster, as a script that uses several of them requires."""
_WRITE: Final = """
local stored = redis.call('HGET', KEYS[1], 'version')
if (stored or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'text', ARGV[3], 'expires_at', ARGV[4])
redis.call('PEXPIREAT', KEYS[1], ARGV[5])
redis.call('ZADD', KEYS[2], 0, ARGV[6])
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[6])
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local expired = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. now, 'LIMIT', 0, ARGV[7])
if #expired > 0 then
    redis.call('ZREM', KEYS[2], unpack(expired))
    redis.call('ZREM', KEYS[3], unpack(expired))
end
return 1
"""
"""KEYS: the state, the index by key, the index by expiry in milliseconds since 1970."""
EXPIRED_REMOVED_MAX: Final = 100
"""Expired keys that one write removes from the indexes, as in SQLite: more than one, so that they become fewer."""
_FIELDS: Final = ("version", "text", "expires_at")


class RedisRequestState:
    """Keeps states in Redis, which deletes them when they expire.

    A write is as durable as your Redis: with `appendonly yes` and `appendfsync always` it is on disk when it returns.
    """

    is_shared = True

    def __init__(self, redis: "str | Redis", *, prefix: str = PREFIX) -> None:
        """`redis` is a URL (`redis://host:6379/0`), or a client of your own, which stays open."""
        self._owns_client = isinstance(redis, str)
        self._redis: Any = _open_client(redis) if isinstance(redis, str) else redis
        self._prefix = prefix
        self._index = f"{prefix}index"
        self._expiries = f"{prefix}expiries"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, unless the client was passed to the constructor."""
        if self._owns_client:
            await self._redis.aclose()

    async def read(self, key: str) -> StoredState | None:
        with _errors_of_redis():
            return _parse_state(key, await cast("Awaitable[list[Any]]", self._redis.hmget(self._name(key), _FIELDS)))

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        arguments = (
            replaces or "",
            state.version,
            state.text,
            repr(state.expires_at),
            str(int(state.expires_at * 1000)),
            state.key,
            str(EXPIRED_REMOVED_MAX),
        )
        keys = (self._name(state.key), self._index, self._expiries)
        with _errors_of_redis():
            written = await cast("Awaitable[int]", self._redis.eval(_WRITE, len(keys), *keys, *arguments))
        return bool(int(written))

    async def delete(self, key: str) -> None:
        with _errors_of_redis():
            await self._delete(key)

    async def _delete(self, key: str) -> None:
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.delete(self._name(key))
            pipeline.zrem(self._index, key)
            pipeline.zrem(self._expiries, key)
            await pipeline.execute()

    async def list_states(self, *, after: str = "", limit: int = 100) -> Sequence[StoredState]:
        """The index may name states that have expired, until a write removes them, so a page may take several requests."""
        with _errors_of_redis():
            return await self._list_states(after, limit)

    async def _list_states(self, after: str, limit: int) -> Sequence[StoredState]:
        states: list[StoredState] = []
        while len(states) < limit:
            keys = [_text(key) for key in await self._list_keys(after, limit - len(states))]
            if not keys:
                break
            found = await self._read_states(keys)
            states += [state for state in found.values() if state is not None]
            after = keys[-1]
        return states

    async def _list_keys(self, after: str, limit: int) -> list[Any]:
        start = f"({after}" if after else "-"
        return await cast("Awaitable[list[Any]]", self._redis.zrangebylex(self._index, start, "+", start=0, num=limit))

    async def _read_states(self, keys: Sequence[str]) -> dict[str, StoredState | None]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hmget(self._name(key), _FIELDS)
            rows: list[list[Any]] = await pipeline.execute()
        return {key: _parse_state(key, row) for key, row in zip(keys, rows, strict=True)}

    def _name(self, key: str) -> str:
        return f"{self._prefix}state:{key}"


@contextmanager
def _errors_of_redis() -> Generator[None]:
    """Raise them as `StateUnavailable`."""
    from redis.exceptions import RedisError  # noqa: PLC0415 - only users of Redis have it

    try:
        yield
    except (RedisError, OSError) as error:
        raise StateUnavailable(
            f"Redis cannot read or write the state of calls: {type(error).__name__}: {error}. Check that it runs at this URL, "
            "accepts the password and has memory left, then try again."
        ) from error


def _open_client(url: str) -> Any:
    try:
        from redis.asyncio import Redis  # noqa: PLC0415 - only users of Redis have it
    except ImportError:
        raise ImportError('RedisRequestState needs the package redis: pip install "ringback[redis]"') from None
    return Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType] - its keyword arguments have no types


def _parse_state(key: str, row: Sequence[Any]) -> StoredState | None:
    version, text, expires_at = row
    if version is None:
        return None
    return StoredState(key=key, version=_text(version), text=_text(text), expires_at=float(_text(expires_at)))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
