"""Resumes: when a client came back for a call, and by which interface.

A resume is a use of a resume token, or a read of an ended call's result by the client that started the call. It says whether an
agent has returned after it disconnected. Resumes are recorded in batches, after the response: a crash can lose some of them,
and no call depends on them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from ringback.domain.ids import CallId

RESUMES_STORED_MAX: Final = 20
"""Rows of one call. The last row counts later resumes, too: a client that polls a result all day adds no rows."""


class ResumeSurface(StrEnum):
    REST_RESUME = "rest_resume"
    """POST /v1/resume."""
    REST_RESULT = "rest_result"
    """GET /v1/calls/{id}/result."""
    MCP_TASK = "mcp_task"
    """tasks/get or tasks/result of an ended task."""
    MCP_RESOURCE = "mcp_resource"
    """A read of the ended call's resource."""
    TOOL = "tool"
    """A built-in tool, such as ringback_resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResume:
    call_id: CallId
    resumed_at: datetime
    surface: ResumeSurface
    resumes: int = 1
    """The number of resumes that this row stands for: those of one interface within a second or so, and in the last row of a
    call all later ones."""


class CallResumeRows(Protocol):
    async def list_of_calls(self, call_ids: Collection[CallId]) -> Sequence[CallResume]:
        """The stored rows of these calls, oldest first."""
        ...

    async def add(self, resumes: Sequence[CallResume]) -> None:
        """Insert these rows, or add to the counts of those that are stored. Rows of calls that do not exist are left out."""
        ...


def fit_resumes(stored: Iterable[CallResume], new: Iterable[CallResume]) -> list[CallResume]:
    """The rows to add for new resumes, beside the stored rows of the same calls (oldest first)."""
    last_rows: dict[CallId, CallResume] = {}
    row_counts: defaultdict[CallId, int] = defaultdict(int)
    for row in stored:
        last_rows[row.call_id] = row
        row_counts[row.call_id] += 1
    added: list[CallResume] = []
    for resume in sorted(new, key=lambda each: each.resumed_at):
        row = resume
        if row_counts[resume.call_id] >= RESUMES_STORED_MAX:
            row = replace(last_rows[resume.call_id], resumes=resume.resumes)
        else:
            row_counts[resume.call_id] += 1
            last_rows[resume.call_id] = resume
        added.append(row)
    return added
