"""Names for things of several upstreams side by side, and the way back from each: `git__git_log`.

A name is the upstream's and the thing's own, joined by two underscores. Upstreams have none in their names, so such a name is
read back from itself. One that would be too long, or has characters that clients refuse, is cut and ends in a hash, and what
it stands for is stored: it is the same after a restart, and leads to the same thing before anything has been listed.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final

from ringback.domain.joined_names import JoinedName
from ringback.domain.ports import Store, Transaction
from ringback.domain.upstreams import UPSTREAM_NAME

log = logging.getLogger(__name__)

NAME_LENGTH_MAX: Final = 64
"""What the large models' APIs take as the name of a function, and MCP's own limit until 2025-11-25."""
HASH_DIGITS: Final = 10
"""40 bits: among ten thousand tools, one chance in twenty thousand that any two get the same."""
STORED_MAX: Final = 20_000
"""An upstream that lists other odd names every time must not fill the store."""
_SEPARATOR: Final = "__"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


class JoinedNames:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._loading = asyncio.Lock()
        self._stored: dict[tuple[str, str], JoinedName] | None = None

    async def of(self, kind: str, things: Sequence[tuple[str, str]]) -> Sequence[str | None]:
        """The name of each thing, an upstream and its own name there.

        None for one that cannot have a name, because another has it or too many are stored; that is logged.
        """
        wanted = [_wanted(kind, upstream, original) for upstream, original in things]
        stored = await self._all()
        missing = [name for name in wanted if not _tells_itself(name) and (kind, name.name) not in stored]
        if missing:
            await self._keep(missing[: max(0, STORED_MAX - len(stored))])
        return [self._given(name, stored) for name in wanted]

    async def find(self, kind: str, name: str) -> tuple[str, str] | None:
        """The upstream and the thing's own name there; None for a name that nothing can have."""
        await self._all()
        return self.find_known(kind, name)

    def find_known(self, kind: str, name: str) -> tuple[str, str] | None:
        """The same without asking the store, which has been asked once somebody has listed or called anything."""
        if stored := (self._stored or {}).get((kind, name)):
            return stored.upstream, stored.original
        upstream, separator, original = name.partition(_SEPARATOR)
        return (upstream, original) if separator and original and UPSTREAM_NAME.fullmatch(upstream) else None

    async def _all(self) -> dict[tuple[str, str], JoinedName]:
        async with self._loading:
            if self._stored is None:
                names = await self._store.read(lambda tx: tx.joined_names.all())
                self._stored = {(name.kind, name.name): name for name in names}
        return self._stored

    async def _keep(self, missing: Sequence[JoinedName]) -> None:
        """Another node may have been first: what is stored counts."""

        async def keep(tx: Transaction) -> Sequence[JoinedName]:
            for name in missing:
                await tx.joined_names.insert(name)
            return await tx.joined_names.all()

        names = await self._store.write(keep)
        (await self._all()).update({(name.kind, name.name): name for name in names})

    def _given(self, wanted: JoinedName, stored: Mapping[tuple[str, str], JoinedName]) -> str | None:
        if _tells_itself(wanted) or stored.get((wanted.kind, wanted.name)) == wanted:
            return wanted.name
        log.warning(
            "joined.no_name", extra={"kind": wanted.kind, "joined_name": wanted.name, "upstream": wanted.upstream}
        )
        return None


def _wanted(kind: str, upstream: str, original: str) -> JoinedName:
    name = f"{upstream}{_SEPARATOR}{original}"
    if len(name) > NAME_LENGTH_MAX or not _PLAIN.fullmatch(name):
        name = shortened(upstream, original)
    return JoinedName(kind=kind, name=name, upstream=upstream, original=original)


def _tells_itself(name: JoinedName) -> bool:
    return name.name == f"{name.upstream}{_SEPARATOR}{name.original}"


def shortened(upstream: str, original: str) -> str:
    """At most `NAME_LENGTH_MAX` of the characters that every client takes, the same for the same thing everywhere."""
    digest = hashlib.sha256(f"{upstream}{_SEPARATOR}{original}".encode()).hexdigest()[:HASH_DIGITS]
    begin = _FOREIGN.sub("_", f"{upstream}{_SEPARATOR}{original}")[: NAME_LENGTH_MAX - HASH_DIGITS - 1]
    return f"{begin}_{digest}"
