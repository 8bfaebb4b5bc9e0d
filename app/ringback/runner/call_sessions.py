"""Port: what the runner needs of the upstreams. `drivers.selection.BoundDriverProvider` implements it."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ringback.domain.call import Call
from ringback.domain.principal import Principal
from ringback.runner.drivers import BoundDriverPort


class CallSessionProvider(Protocol):
    def get_capacity(self) -> Mapping[str, int]:
        """How many calls each upstream runs at once."""
        ...

    def has_open_session(self, call: Call) -> bool:
        """Whether `open_call_session` would return a session for the call without waiting."""
        ...

    def get_login_owner(self, call: Call) -> Principal:
        """Whose tokens requests of this call carry."""
        ...

    def open_call_session(self, call: Call) -> AbstractAsyncContextManager[BoundDriverPort]:
        """A live session for the call. Waits for the upstream; raises `UpstreamUnreachable` when the wait is over.

        Raises `UpstreamLoginRequired` at once if the upstream opens no session without a login, and `ServerChanged` if the call
        has a handle of another server than the upstream's present one.
        """
        ...
