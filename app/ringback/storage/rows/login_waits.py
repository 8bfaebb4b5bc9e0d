"""Calls that wait for a login, when one of them is sent again without it, and logins whose calls are still being queued."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from ringback.domain.clock_confirmation import latest_of_right_clock
from ringback.domain.ids import CallId
from ringback.domain.login_checks import LoginCheck
from ringback.domain.login_waits import NO_TOKENS_VERSION, LoginResumption
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import CredentialsScope
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.unit import SqlRows

_ORPHAN_VERSION: Final = NO_TOKENS_VERSION - 1
"""Older than no tokens: a resumption of orphans queues these, and not again what waits anew."""
_OWNER_RANGES: Final = {CredentialsScope.SHARED: ("", ""), CredentialsScope.PRINCIPAL: ("\x01", "\U0010ffff")}
"""The first and the last owner of each kind, as the index has them: the shared owner is the empty one."""


class SqlLoginWaits(SqlRows, noun="login_waits"):
    """Implements `domain.login_waits.LoginWaitRows`."""

    async def lock(self, upstream: str, owner: Principal) -> None:
        await self._sql.execute("lock", upstream=upstream, owner=owner)

    async def add(self, call_id: CallId, upstream: str, owner: Principal, *, tokens_version: int) -> None:
        await self._sql.execute("add", call_id=call_id, upstream=upstream, owner=owner, tokens_version=tokens_version)

    async def list_waiting(
        self, upstream: str, owner: Principal, *, tokens_version: int, limit: int
    ) -> Sequence[CallId]:
        rows = await self._sql.fetch_all(
            "waiting", upstream=upstream, owner=owner, tokens_version=tokens_version, limit=limit
        )
        return [row["call_id"] for row in rows]

    async def remove(self, call_ids: Collection[CallId]) -> None:
        await self._sql.execute("remove", ids=self._sql.array(list(call_ids)))

    async def resume_orphans(self, upstream: str, owners: CredentialsScope, *, now: datetime) -> None:
        first_owner, last_owner = _OWNER_RANGES[owners]
        of_owners = {"upstream": upstream, "first_owner": first_owner, "last_owner": last_owner}
        if await self._sql.execute("mark_orphans", **of_owners, tokens_version=_ORPHAN_VERSION):
            await self._sql.execute(
                "resume_orphans", **of_owners, tokens_version=NO_TOKENS_VERSION, worked_at=instant_to_column(now)
            )

    async def save_resumption(self, resumption: LoginResumption) -> None:
        await self._sql.execute("save_resumption", **RECORDS.login_resumption.encode(resumption))

    async def find_next_resumption(self) -> LoginResumption | None:
        return await self._sql.fetch_record("next_resumption", RECORDS.login_resumption)

    async def remove_resumption(self, resumption: LoginResumption) -> None:
        await self._sql.execute(
            "remove_resumption",
            upstream=resumption.upstream,
            owner=resumption.owner,
            tokens_version=resumption.tokens_version,
        )


class SqlLoginChecks(SqlRows, noun="login_checks"):
    """Implements `domain.login_checks.LoginCheckRows`."""

    async def add(self, check: LoginCheck) -> None:
        await self._sql.execute("insert", **RECORDS.login_check.encode(check))

    async def find_due(self, *, now: datetime) -> LoginCheck | None:
        if check := await self._sql.fetch_record("due", RECORDS.login_check, now=instant_to_column(now)):
            return check
        latest = instant_to_column(latest_of_right_clock(now))
        return await self._sql.fetch_record("late", RECORDS.login_check, latest=latest)

    async def replace(self, check: LoginCheck) -> None:
        await self._sql.execute("replace", **RECORDS.login_check.encode(check))

    async def is_waiting(self, call_id: CallId) -> bool:
        return await self._sql.fetch_one("waiting", call_id=call_id) is not None

    async def resume_others(self, call_ids: Collection[CallId], *, now: datetime) -> None:
        await self._sql.execute("resume_others", ids=self._sql.array(list(call_ids)), worked_at=instant_to_column(now))

    async def remove(self, upstream: str, owner: Principal) -> None:
        await self._sql.execute("delete", upstream=upstream, owner=owner)
