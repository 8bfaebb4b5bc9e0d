"""The states of a connection, as users see them."""

from enum import StrEnum


class ConnectionState(StrEnum):
    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"
    """Connected, but the child does not respond; a call may occupy it. Calls are still sent to it."""
    FAILING = "failing"
