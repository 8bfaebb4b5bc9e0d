"""Logins to upstreams, their tokens, registered OAuth clients, and upstreams without a configuration. Secrets are sealed."""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from ringback.domain.ids import LoginId
from ringback.domain.principal import Principal
from ringback.domain.unused_logins import UnusedLogin
from ringback.domain.upstream_logins import RegisteredClient, UnreadableTokens, UpstreamLogin, UpstreamTokens
from ringback.signing.sealing import UnsealError
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.sealing_keys import SqlSealingKeys
from ringback.storage.rows.statements import Row
from ringback.storage.rows.unit import SqlRows
from ringback.storage.upstream_login_records import (
    client_row_id,
    from_stored_client,
    from_stored_tokens,
    to_stored_client,
    to_stored_tokens,
    tokens_id,
)

log = logging.getLogger(__name__)

CLIENTS_MAX: Final = 1_000
"""An installation uses some dozen authorization servers. A hostile upstream could name another one for each login."""

_LOGIN: Final = RECORDS.upstream_login
_TOKENS: Final = RECORDS.upstream_tokens
_CLIENT: Final = RECORDS.oauth_client


class _SealedRows(SqlRows):
    def _seal(self, text: bytes, place: str) -> bytes:
        return self._unit.sealer.seal(text, associated_data=place)

    def _unseal(self, sealed: bytes, place: str) -> bytes | None:
        """None if no key of the ring unseals the value."""
        try:
            return self._unit.sealer.unseal(sealed, associated_data=place)
        except UnsealError:
            log.warning("login.unreadable")
            return None


class SqlUpstreamLogins(_SealedRows, noun="upstream_logins"):
    """Implements `domain.upstream_logins.UpstreamLoginRows`."""

    async def add(self, login: UpstreamLogin) -> None:
        row = _LOGIN.encode(login)
        row["request"] = self._seal(row["request"], login_associated_data(login.id))
        await self._sql.execute("insert", **row)

    async def get(self, login_id: LoginId, *, now: datetime) -> UpstreamLogin | None:
        return self._read(await self._sql.fetch_one("get", id=login_id, now=instant_to_column(now)))

    async def find_by_state(self, state_hash: str, *, now: datetime) -> UpstreamLogin | None:
        return self._read(await self._sql.fetch_one("by_state", state_hash=state_hash, now=instant_to_column(now)))

    async def delete(self, login_id: LoginId) -> bool:
        return await self._sql.execute("delete", id=login_id) == 1

    async def count(self, principal: Principal, *, now: datetime, limit: int) -> int:
        (row,) = await self._sql.fetch_all("count", principal=principal, now=instant_to_column(now), limit=limit)
        count: int = row["logins"]
        return count

    async def remove_expired(self, *, now: datetime, limit: int) -> int:
        return await self._sql.execute("remove_expired", now=instant_to_column(now), limit=limit)

    def _read(self, row: Row | None) -> UpstreamLogin | None:
        request = None if row is None else self._unseal(row["request"], login_associated_data(row["id"]))
        return None if row is None or request is None else _LOGIN.decode(row, request=request)


class SqlUpstreamTokens(_SealedRows, noun="upstream_tokens"):
    """Implements `domain.upstream_logins.UpstreamTokenRows`."""

    async def get(self, upstream: str, owner: Principal) -> UpstreamTokens | UnreadableTokens | None:
        row = await self._sql.fetch_one("get", id=tokens_id(upstream, owner))
        return None if row is None else self._read(row) or await self._describe_unreadable(row)

    async def save(self, tokens: UpstreamTokens, *, expected_version: int | None) -> bool:
        row = _TOKENS.encode(to_stored_tokens(tokens))
        row["secrets"] = self._seal(row["secrets"], tokens_associated_data(row["id"]))
        if expected_version is None:
            return await self._sql.execute("insert", **row) == 1
        return await self._sql.execute("replace", **row, expected_version=expected_version) == 1

    async def delete(self, upstream: str, owner: Principal) -> bool:
        return await self._sql.execute("delete", id=tokens_id(upstream, owner)) == 1

    async def list_owned(
        self, upstreams: Sequence[str], owners: Sequence[Principal]
    ) -> Sequence[UpstreamTokens | UnreadableTokens]:
        ids = [tokens_id(upstream, owner) for upstream in upstreams for owner in owners]
        rows = await self._sql.fetch_all("many", ids=self._sql.array(ids))
        found = [self._read(row) or await self._describe_unreadable(row) for row in rows]
        return [tokens for tokens in found if tokens is not None]

    async def count_owners(self, upstream: str, *, limit: int) -> int:
        (row,) = await self._sql.fetch_all("count_owners", upstream=upstream, limit=limit)
        count: int = row["owners"]
        return count

    async def list_all_owned(self, owner: Principal, *, limit: int) -> Sequence[UpstreamTokens]:
        found = [self._read(row) for row in await self._sql.fetch_all("all_owned", owner=owner, limit=limit)]
        return [tokens for tokens in found if tokens is not None]

    def _read(self, row: Row) -> UpstreamTokens | None:
        secrets = self._unseal(row["secrets"], tokens_associated_data(row["id"]))
        return None if secrets is None else from_stored_tokens(_TOKENS.decode(row, secrets=secrets))

    async def _describe_unreadable(self, row: Row) -> UnreadableTokens | None:
        """None if no other node may have the key: the tokens are lost, and their owner signs in again."""
        if not await SqlSealingKeys(self._unit).lacks_any():
            return None
        stored = _TOKENS.decode(row, secrets=b"")
        return UnreadableTokens(
            upstream=stored.upstream,
            owner=stored.owner,
            version=stored.version,
            resource=stored.resource,
            scope=stored.scope,
            expires_at=stored.expires_at,
        )


class SqlOAuthClients(_SealedRows, noun="oauth_clients"):
    """Implements `domain.upstream_logins.OAuthClientRows`."""

    async def get(self, issuer: str, redirect_uri: str, *, now: datetime) -> RegisteredClient | None:
        row_id = client_row_id(issuer, redirect_uri)
        row = await self._sql.fetch_one("get", id=row_id, now=instant_to_column(now))
        return None if row is None else self._read(row)

    async def save(self, registered: RegisteredClient) -> None:
        row = _CLIENT.encode(to_stored_client(registered))
        row["client"] = self._seal(row["client"], client_associated_data(row["id"]))
        await self._sql.execute("save", **row)
        await self._sql.execute("remove_oldest", clients_max=CLIENTS_MAX)

    async def delete(self, issuer: str, redirect_uri: str, client_id: str) -> bool:
        row_id = client_row_id(issuer, redirect_uri)
        row = await self._sql.fetch_one("any", id=row_id)
        stored = None if row is None else self._read(row)
        if stored is None or stored.client.client_id != client_id:
            return False
        return await self._sql.execute("delete", id=row_id) == 1

    def _read(self, row: Row) -> RegisteredClient | None:
        client = self._unseal(row["client"], client_associated_data(row["id"]))
        return None if client is None else from_stored_client(_CLIENT.decode(row, client=client))


def login_associated_data(login_id: str) -> str:
    return f"upstream_logins/{login_id}/request"


def tokens_associated_data(row_id: str) -> str:
    return f"upstream_tokens/{row_id}/secrets"


def client_associated_data(row_id: str) -> str:
    return f"oauth_clients/{row_id}/client"


class SqlUnusedLogins(SqlRows, noun="unused_logins"):
    """Implements `domain.unused_logins.UnusedLoginRows`."""

    async def list_upstreams(self, *, limit: int) -> Sequence[str]:
        return [row["upstream"] for row in await self._sql.fetch_all("with_tokens", limit=limit)]

    async def mark(self, upstreams: Collection[str], *, now: datetime) -> int:
        since = instant_to_column(now)
        marked = [await self._sql.execute("insert", upstream=each, unused_since=since) for each in upstreams]
        return sum(marked)

    async def unmark(self, upstreams: Collection[str]) -> None:
        await self._sql.execute("delete", upstreams=self._sql.array(list(upstreams)))

    async def find_due(self, *, cutoff: datetime) -> UnusedLogin | None:
        return await self._sql.fetch_record("due", RECORDS.unused_login, cutoff=instant_to_column(cutoff))

    async def remove_tokens(self, unused: UnusedLogin, *, limit: int) -> int:
        since = instant_to_column(unused.unused_since)
        return await self._sql.execute("remove_tokens", upstream=unused.upstream, unused_since=since, limit=limit)
