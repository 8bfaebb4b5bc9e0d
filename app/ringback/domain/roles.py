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
COUNT_DUTY: Final = "count-hours"
"""One node with the role janitor at a time (`leadership`) counts. Two would count right, too, but one of them in vain."""
CHANGES_DUTY: Final = "watch-upstreams"
"""One node with the role runner at a time records changes: with two, each change would make two events. What only the stdio
child of another node reports is not recorded. When another node takes over, each resource with a subscription makes one event,
as after a restart."""
DISPATCH_DUTY: Final = "dispatch"
"""One node with the role dispatcher at a time has it, and it does nothing: it shows the others that a dispatcher runs. All
dispatchers lease deliveries one by one."""
DUTIES: Final = {Role.JANITOR: COUNT_DUTY, Role.RUNNER: CHANGES_DUTY, Role.DISPATCHER: DISPATCH_DUTY}
"""Roles of which some node has a duty while one runs."""
UPSTREAM_ROLES: Final = frozenset({Role.API, Role.RUNNER})
"""The roles that speak to upstreams. A node without any of them connects to no upstream and starts no child process."""
