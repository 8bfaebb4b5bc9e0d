"""The whole service as a process whose store completes no write once a file named `stuck` exists."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from ringback.bootstrap import Environment
from ringback.domain.ports import Store, Transaction
from ringback.server import serve
from ringback.settings import load_settings
from ringback.upstreams.config import parse_upstream_option
from tests.support.stores import StoreWrapper

T = TypeVar("T")


class BlockedStore(StoreWrapper):
    """As a network disk that is gone: a write neither fails nor returns, and nothing can be done about it from inside."""

    def __init__(self, store: Store, sign: Path) -> None:
        super().__init__(store)
        self._sign = sign

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        while self._sign.exists():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
        return await super().write(work)


def main(spec: dict[str, str]) -> None:
    folder = Path(spec["folder"])
    settings = load_settings(
        database_url=spec["database_url"],
        secret_keys=spec.get("secret_keys"),
        port=0,
        auth="off",
        drain_seconds=0.1,
    )
    world = Environment(wrap_store=lambda store: BlockedStore(store, folder / "stuck"))
    serve(settings, [parse_upstream_option(f"stage={spec['upstream']}")], environment=world, exit_seconds=0.1)
