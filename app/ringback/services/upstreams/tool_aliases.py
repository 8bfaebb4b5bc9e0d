"""Aliases for tools and prompts when several upstreams share one endpoint: `git__git_log`.

An alias is the upstream's name, two underscores, and the original name. Upstream names have no underscore, so such an alias can
be parsed. An alias that would be too long, or has characters that clients reject, is cut and ends in a hash, and its original
is stored. So it stays the same after a restart, and it can be resolved before any list has been read.

What an upstream lists to one principal only is not stored here: all principals share these aliases, and their number is
limited. Such an alias is computed again for each entry of the principal's own list.
"""

import asyncio
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ringback.domain.ports import Store, Transaction
from ringback.domain.upstream_rows import ToolAlias
from ringback.protocol.upstream_logins import UPSTREAM_NAME_PATTERN

log = logging.getLogger(__name__)

ALIAS_LENGTH_MAX: Final = 64
"""The limit of function names in the large models' APIs, and of tool names in MCP until 2025-11-25."""
ALIAS_HASH_DIGITS: Final = 10
"""40 bits: among 10,000 tools, the probability of any collision is 1 in 20,000."""
STORED_ALIASES_MAX: Final = 20_000
"""The limit for upstreams that list different names each time, so that they cannot fill the store."""
UPSTREAM_SHARE_DIVISOR: Final = 2
"""One upstream has at most half of them: the tools of the others need names, too."""
LOGGED_NAMES_MAX: Final = 1_000
"""Names without an alias that this process has logged; each is logged once, and not with each list."""
SHORTENED_ALIAS_PATTERN: Final = re.compile(rf"_[0-9a-f]{{{ALIAS_HASH_DIGITS}}}\Z")
"""The end of an alias that may be shortened."""
ALIAS_SEPARATOR: Final = "__"
_PLAIN_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]+")
_FORBIDDEN_PATTERN: Final = re.compile(r"[^A-Za-z0-9_-]")


class ToolAliases:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._load_lock = asyncio.Lock()
        self._stored: dict[tuple[str, str], ToolAlias] | None = None
        self._logged: set[tuple[str, str]] = set()

    async def assign_aliases(self, kind: str, originals: Sequence[tuple[str, str]]) -> Sequence[str | None]:
        """Return the alias of each (upstream, original name).

        None, with a log line, if another original has the alias already or too many aliases are stored, and for an original
        that has U+0000: no store of several nodes can keep it, and it must not leave all other names without aliases.
        """
        aliases = [_build_alias(kind, upstream, original) for upstream, original in originals]
        stored = await self._load_aliases()
        missing = [name for name in aliases if _is_stored(name) and (kind, name.name) not in stored]
        if missing and (storable := _select_storable(missing, stored.values())):
            await self._store_aliases(storable)
        return [self._assigned_alias(name, stored) for name in aliases]

    async def resolve_alias(self, kind: str, name: str) -> tuple[str, str] | None:
        """Return the upstream and the original name; None for a name that cannot be an alias."""
        await self._load_aliases()
        return self.resolve_loaded_alias(kind, name)

    def resolve_loaded_alias(self, kind: str, name: str) -> tuple[str, str] | None:
        """The same without reading the store. The first list or call has loaded the stored aliases."""
        if stored := (self._stored or {}).get((kind, name)):
            return stored.upstream, stored.original
        return split_alias(name)

    async def _load_aliases(self) -> dict[tuple[str, str], ToolAlias]:
        async with self._load_lock:
            if self._stored is None:
                names = await self._store.read(lambda tx: tx.tool_aliases.list_all())
                self._stored = {(name.kind, name.name): name for name in names}
        return self._stored

    async def _store_aliases(self, missing: Sequence[ToolAlias]) -> None:
        """Insert the missing aliases and read all again, because another node can have inserted an alias first."""

        async def insert_missing(tx: Transaction) -> Sequence[ToolAlias]:
            for name in missing:
                await tx.tool_aliases.insert(name)
            return await tx.tool_aliases.list_all()

        names = await self._store.write(insert_missing)
        (await self._load_aliases()).update({(name.kind, name.name): name for name in names})

    def _assigned_alias(self, wanted: ToolAlias, stored: Mapping[tuple[str, str], ToolAlias]) -> str | None:
        if _is_self_describing(wanted) or stored.get((wanted.kind, wanted.name)) == wanted:
            return wanted.name
        key = wanted.kind, wanted.name
        if key not in self._logged and len(self._logged) < LOGGED_NAMES_MAX:
            self._logged.add(key)
            log.warning(
                "joined.no_name", extra={"kind": wanted.kind, "joined_name": wanted.name, "upstream": wanted.upstream}
            )
        return None


def _select_storable(missing: Sequence[ToolAlias], stored: Collection[ToolAlias]) -> Sequence[ToolAlias]:
    """Those for which there is room, in all and of their upstream."""
    free, share = STORED_ALIASES_MAX - len(stored), STORED_ALIASES_MAX // UPSTREAM_SHARE_DIVISOR
    counts = Counter(alias.upstream for alias in stored)
    storable: list[ToolAlias] = []
    for alias in missing:
        if len(storable) < free and counts[alias.upstream] < share:
            counts[alias.upstream] += 1
            storable.append(alias)
    return storable


def _build_alias(kind: str, upstream: str, original: str) -> ToolAlias:
    return ToolAlias(kind=kind, name=make_alias(upstream, original), upstream=upstream, original=original)


def make_alias(upstream: str, original: str) -> str:
    """The alias of an original name, deterministic."""
    name = f"{upstream}{ALIAS_SEPARATOR}{original}"
    if len(name) > ALIAS_LENGTH_MAX or not _PLAIN_PATTERN.fullmatch(name):
        name = shorten_alias(upstream, original)
    return name


def split_alias(name: str) -> tuple[str, str] | None:
    """The upstream of an alias, and what follows it: the original name unless it was shortened. None for other names."""
    upstream, separator, rest = name.partition(ALIAS_SEPARATOR)
    return (upstream, rest) if separator and rest and UPSTREAM_NAME_PATTERN.fullmatch(upstream) else None


def _is_self_describing(name: ToolAlias) -> bool:
    return name.name == f"{name.upstream}{ALIAS_SEPARATOR}{name.original}"


def _is_stored(name: ToolAlias) -> bool:
    return not _is_self_describing(name) and "\0" not in name.original


def shorten_alias(upstream: str, original: str) -> str:
    """At most `ALIAS_LENGTH_MAX` characters that every client accepts; deterministic."""
    digest = hashlib.sha256(f"{upstream}{ALIAS_SEPARATOR}{original}".encode()).hexdigest()[:ALIAS_HASH_DIGITS]
    begin = _FORBIDDEN_PATTERN.sub("_", f"{upstream}{ALIAS_SEPARATOR}{original}")[
        : ALIAS_LENGTH_MAX - ALIAS_HASH_DIGITS - 1
    ]
    return f"{begin}_{digest}"
