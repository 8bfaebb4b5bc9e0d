"""The handle of a durable call: plain, versioned data, by which any process finds the call again."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

CallKind = Literal["ringback", "task", "legacy_task", "stream", "mrtr", "plain"]
"""What keeps the call while no process of yours is connected:

ringback      a Ringback service
task          a task of the server (2026-07-28)
legacy_task   a task of the server (2025-11-25)
stream        the stored events of a legacy session, which a connection resumes
mrtr          nothing: the tool asked for input, and runs again with the answer
plain         nothing: the call needs this process and its connection"""


class CallHandle(BaseModel):
    """Names one call. Keep it anywhere: `handle.model_dump_json()`, `CallHandle.model_validate_json(text)`.

    A handle is a snapshot of the moment at which the request returned. It contains no secret and no arguments.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    id: str
    """The key of the call in the state."""
    target: str
    """The URL that was called, without credentials and query."""
    kind: CallKind
    rejoinable: bool
    """Whether the call survives this process and its connection."""
    state_is_shared: bool
    """Whether other processes can join: False if the state is in the memory of the process that requested the call."""
    call_id: str | None = None
    """The id of the call in Ringback, as in callbacks; None without a Ringback."""
    upstream: str | None = None
    tool: str
    client_session_id: str | None = None
    correlation_id: str | None = None
    created_at: datetime
