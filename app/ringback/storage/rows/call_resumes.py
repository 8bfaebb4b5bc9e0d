"""When clients came back for their calls."""

from collections.abc import Collection, Sequence

from ringback.domain.call_resumes import CallResume
from ringback.domain.ids import CallId
from ringback.storage.rows.columns import RECORDS
from ringback.storage.rows.unit import SqlRows


class SqlCallResumes(SqlRows, noun="call_resumes"):
    """Implements `domain.call_resumes.CallResumeRows`."""

    async def list_of_calls(self, call_ids: Collection[CallId]) -> Sequence[CallResume]:
        ids = self._sql.array(list(call_ids))
        return await self._sql.fetch_records("of_calls", RECORDS.call_resume, ids=ids)

    async def add(self, resumes: Sequence[CallResume]) -> None:
        await self._sql.execute_many("add", [RECORDS.call_resume.encode(resume) for resume in resumes])
