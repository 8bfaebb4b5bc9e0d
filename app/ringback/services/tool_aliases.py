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

from ringback.domain.ports import Store, Transaction
from ringback.domain.upstream_rows import ToolAlias
from ringback.domain.upstreams import UPSTREAM_NAME_PATTERN

log = logging.getLogger(__name__)

ALIAS_LENGTH_MAX: Final = 64
"""What the large models' APIs take as the name of a function, and MCP's own limit until 2025-11-25."""
ALIAS_HASH_DIGITS: Final = 10
"""40 bits: among ten thousand tools, one chance in twenty thousand that any two get the same."""
STORED_ALIASES_MAX: Final = 20_000
"""An upstream that lists other odd names every time must not fill the store."""
_SEPARATOR: Final = "__"
_PLAIN_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]+")
_FORBIDDEN_PATTERN: Final = re.compile(r"[^A-Za-z0-9_-]")


class ToolAliases:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._load_lock = asyncio.Lock()
        self._stored: dict[tuple[str, str], ToolAlias] | None = None

    async def assign_aliases(self, kind: str, originals: Sequence[tuple[str, str]]) -> Sequence[str | None]:
        """The name of each thing, an upstream and its own name there.

        None for one that cannot have a name, because another has it or too many are stored; that is logged.
        """
        aliases = [_build_alias(kind, upstream, original) for upstream, original in originals]
        stored = await self._load_aliases()
        missing = [name for name in aliases if not _is_self_describing(name) and (kind, name.name) not in stored]
        if missing:
            await self._store_aliases(missing[: max(0, STORED_ALIASES_MAX - len(stored))])
        return [self._assigned_alias(name, stored) for name in aliases]

    async def resolve_alias(self, kind: str, name: str) -> tuple[str, str] | None:
        """The upstream and the thing's own name there; None for a name that nothing can have."""
        await self._load_aliases()
        return self.resolve_loaded_alias(kind, name)

    def resolve_loaded_alias(self, kind: str, name: str) -> tuple[str, str] | None:
        """The same without asking the store, which has been asked once somebody has listed or called anything."""
        if stored := (self._stored or {}).get((kind, name)):
            return stored.upstream, stored.original
        upstream, separator, original = name.partition(_SEPARATOR)
        return (upstream, original) if separator and original and UPSTREAM_NAME_PATTERN.fullmatch(upstream) else None

    async def _load_aliases(self) -> dict[tuple[str, str], ToolAlias]:
        async with self._load_lock:
            if self._stored is None:
                names = await self._store.read(lambda tx: tx.tool_aliases.list_all())
                self._stored = {(name.kind, name.name): name for name in names}
        return self._stored

    async def _store_aliases(self, missing: Sequence[ToolAlias]) -> None:
        """Another node may have been first: what is stored counts."""

        async def insert_missing(tx: Transaction) -> Sequence[ToolAlias]:
            for name in missing:
                await tx.tool_aliases.insert(name)
            return await tx.tool_aliases.list_all()

        names = await self._store.write(insert_missing)
        (await self._load_aliases()).update({(name.kind, name.name): name for name in names})

    def _assigned_alias(self, wanted: ToolAlias, stored: Mapping[tuple[str, str], ToolAlias]) -> str | None:
        if _is_self_describing(wanted) or stored.get((wanted.kind, wanted.name)) == wanted:
            return wanted.name
        log.warning(
            "joined.no_name", extra={"kind": wanted.kind, "joined_name": wanted.name, "upstream": wanted.upstream}
        )
        return None


def _build_alias(kind: str, upstream: str, original: str) -> ToolAlias:
    name = f"{upstream}{_SEPARATOR}{original}"
    if len(name) > ALIAS_LENGTH_MAX or not _PLAIN_PATTERN.fullmatch(name):
        name = shorten_alias(upstream, original)
    return ToolAlias(kind=kind, name=name, upstream=upstream, original=original)


def _is_self_describing(name: ToolAlias) -> bool:
    return name.name == f"{name.upstream}{_SEPARATOR}{name.original}"


def shorten_alias(upstream: str, original: str) -> str:
    """At most `NAME_LENGTH_MAX` of the characters that every client takes, the same for the same thing everywhere."""
    digest = hashlib.sha256(f"{upstream}{_SEPARATOR}{original}".encode()).hexdigest()[:ALIAS_HASH_DIGITS]
    begin = _FORBIDDEN_PATTERN.sub("_", f"{upstream}{_SEPARATOR}{original}")[: ALIAS_LENGTH_MAX - ALIAS_HASH_DIGITS - 1]
    return f"{begin}_{digest}"
