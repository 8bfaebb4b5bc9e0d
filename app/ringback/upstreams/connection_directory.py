"""Finds the connection of an upstream that serves a principal."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from ringback.domain.call import ServerFingerprint
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import ToolConfig, UpstreamInfo
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.errors import UpstreamNotConfigured
from ringback.upstreams.owned_connections import OwnedConnections


class ConnectionDirectory:
    """The connections of the configured upstreams.

    credentials: shared      one connection, which is always open and serves every principal
    credentials: principal   `OwnedConnections`: one for each principal, opened by its first use
    """

    def __init__(self, shared: Mapping[str, UpstreamConnection] | None = None) -> None:
        self.shared: dict[str, UpstreamConnection] = dict(shared or {})
        self.owned: dict[str, OwnedConnections] = {}
        self._names: list[str] = list(self.shared)

    def replace_all(
        self,
        names: Sequence[str],
        *,
        shared: Mapping[str, UpstreamConnection],
        owned: Mapping[str, OwnedConnections],
    ) -> None:
        """`names` are those of both, in their configured order. The dictionaries stay the same objects: others hold them."""
        self._names[:] = names
        self.shared.clear()
        self.shared.update(shared)
        self.owned.clear()
        self.owned.update(owned)

    def __contains__(self, upstream: str) -> bool:
        return upstream in self.shared or upstream in self.owned

    def list_names(self) -> Sequence[str]:
        return self._names

    def get_owner(self, upstream: str, principal: Principal) -> Principal:
        """The owner of the connection that this principal uses."""
        return principal if upstream in self.owned else SHARED_OWNER

    def list_shared_names(self, upstream: str, server_fingerprint: ServerFingerprint | None) -> Sequence[str]:
        """The upstream and all other names of the server at which principals share credentials, in alphabetical order.

        Empty if each principal has credentials of its own at the upstream.
        """
        if upstream in self.owned:
            return []
        names = {upstream}
        known = [] if server_fingerprint is None else [server_fingerprint]
        for fingerprint in known:  # grows: one name may have the address of the server, and another one its id
            for name, each in self.shared.items():
                if name not in names and each.server_fingerprint.is_same_server(fingerprint):
                    names.add(name)
                    known.append(each.server_fingerprint)
        return sorted(names)

    def get_tool_config(self, upstream: str, tool: str) -> ToolConfig:
        """The defaults if there is no such upstream."""
        if (connection := self.shared.get(upstream)) is not None:
            return connection.get_tool_config(tool)
        owned = self.owned.get(upstream)
        return ToolConfig() if owned is None else owned.config.get_tool_config(tool)

    def get_info(self, upstream: str, principal: Principal | None) -> UpstreamInfo:
        """The state of the connection that this principal uses; None: of all of them."""
        owned = self.owned.get(upstream)
        return self.shared[upstream].get_info() if owned is None else owned.get_info(principal)

    def find_connection(self, upstream: str, principal: Principal) -> UpstreamConnection | None:
        """The connection, if it is open. The caller uses it at once, and does not wait meanwhile."""
        if (owned := self.owned.get(upstream)) is not None:
            return owned.find_connection(principal)
        return self.shared.get(upstream)

    async def check_login(self, upstream: str, principal: Principal) -> None:
        """Replace the principal's connection if it belongs to an earlier login. Call it before `use_connection`."""
        if (connection := self.find_connection(upstream, principal)) is not None:
            await connection.check_login()

    @contextmanager
    def use_connection(self, upstream: str, principal: Principal) -> Generator[UpstreamConnection]:
        """The connection, which stays open while entered. Raises `UpstreamUnreachable`, `UpstreamNotConfigured`."""
        if (connection := self.shared.get(upstream)) is not None:
            yield connection
        elif (owned := self.owned.get(upstream)) is not None:
            with owned.use_connection(principal) as connection:
                yield connection
        else:
            raise UpstreamNotConfigured("it is not configured any more. Configure it again, or cancel the call.")

    @contextmanager
    def listen_on_connections(self, upstream: str | None, principal: Principal) -> Generator[None]:
        """Keep the principal's connection open for its notifications; None: those of all upstreams, once it uses them."""
        with ExitStack() as stack:
            for name, owned in list(self.owned.items()):
                if upstream in {name, None}:
                    stack.enter_context(owned.listen_on_connection(principal, opens=upstream is not None))
            yield

    async def wait_for_place(self, upstream: str, principal: Principal, timeout_seconds: float) -> None:
        """Wait until the principal can have a connection, but no longer than the timeout."""
        if (owned := self.owned.get(upstream)) is not None:
            await owned.wait_for_place(principal, timeout_seconds)
