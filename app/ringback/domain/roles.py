"""Roles of a node: what one process of the service does. Nodes with any mix of roles share a PostgreSQL database."""

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    API = "api"
    """Serves REST and MCP."""
    RUNNER = "runner"
    """Runs calls at the upstreams, and records changes of their lists and resources."""
    DISPATCHER = "dispatcher"
    """Sends callbacks and the challenges that prove their URLs, and lets webhooks catch up with the log."""
    JANITOR = "janitor"
    """Recovers the work of nodes that died, and removes what has expired."""


ALL_ROLES: Final = tuple(Role)
UPSTREAM_ROLES: Final = frozenset({Role.API, Role.RUNNER})
"""The roles that speak to upstreams. A node without any of them connects to no upstream and starts no child process."""
