"""When calls that wait for a login are sent again without one."""

from collections.abc import Collection
from datetime import datetime

from ringback.domain.ids import CallId
from ringback.domain.login_checks import LoginCheck
from ringback.domain.principal import Principal
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.unit import SqlRows


class SqlLoginChecks(SqlRows, noun="login_checks"):
    """Implements `domain.login_checks.LoginCheckRows`."""

    async def add(self, check: LoginCheck) -> None:
        await self._sql.execute("insert", **RECORDS.login_check.encode(check))

    async def find_due(self, *, now: datetime) -> LoginCheck | None:
        return await self._sql.fetch_record("due", RECORDS.login_check, now=instant_to_column(now))

    async def replace(self, check: LoginCheck) -> None:
        await self._sql.execute("replace", **RECORDS.login_check.encode(check))

    async def is_waiting(self, call_id: CallId) -> bool:
        return await self._sql.fetch_one("waiting", call_id=call_id) is not None

    async def resume_others(self, call_ids: Collection[CallId], *, now: datetime) -> None:
        await self._sql.execute("resume_others", ids=self._sql.array(list(call_ids)), worked_at=instant_to_column(now))

    async def remove(self, upstream: str, owner: Principal) -> None:
        await self._sql.execute("delete", upstream=upstream, owner=owner)
