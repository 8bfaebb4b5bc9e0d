"""The sessions of a node with the simulated upstreams: the seam at which the real drivers end."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from contextvars import copy_context
from typing import Any, Final, NoReturn

from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import LATEST_MODERN_VERSION

from ringback.domain.call import Call, ServerFingerprint
from ringback.domain.errors import StoreUnavailable
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER, UpstreamTokens
from ringback.domain.upstreams import ToolInfo
from ringback.protocol.sessions import LegacySessionId, NegotiatedProtocol, OnStreamPosition, StreamPosition
from ringback.protocol.tasks import TASKS_EXTENSION
from ringback.services.logins.login_tokens import get_readable_tokens
from ringback.upstreams.errors import UpstreamLoginRequired, UpstreamUnreachable
from ringback.upstreams.session_ports import LegacySessionPort, NotificationStreamPort, OnElicitation
from scripts.simulate_runs.history import History
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node_store import NodeStore
from scripts.simulate_runs.plan import PlannedLogin, UpstreamKind
from scripts.simulate_runs.upstreams import Exchange, SimulatedUpstream

CONNECT_TIMEOUT_SECONDS: Final = 10.0
"""How long a call waits for its upstream before it counts as unreachable. A service waits for 30 s by default."""
CONNECT_RETRY_SECONDS: Final = 1.0
LEGACY_VERSION: Final = "2025-11-25"

_PROTOCOLS: Final = {
    UpstreamKind.TASK: NegotiatedProtocol(
        protocol_version=LATEST_MODERN_VERSION, capabilities={"extensions": {TASKS_EXTENSION: {}}}
    ),
    UpstreamKind.ROUNDS: NegotiatedProtocol(protocol_version=LATEST_MODERN_VERSION),
    UpstreamKind.PLAIN: NegotiatedProtocol(protocol_version=LEGACY_VERSION),
}


class NodeSessions:
    """Implements `runner.drivers.selection.CallSessionOpener` for one node."""

    def __init__(
        self,
        upstreams: Mapping[UpstreamKind, SimulatedUpstream],
        *,
        node: str,
        store: NodeStore,
        logins: Sequence[PlannedLogin],
        loop: SimulationLoop,
        capacity: int,
        history: History,
    ) -> None:
        self._upstreams = {kind.value: upstream for kind, upstream in upstreams.items()}
        self._store = store
        self._own_logins = {login.upstream.value for login in logins if not login.is_shared}
        """Upstreams with a login of each principal."""
        self._capacity = dict.fromkeys(self._upstreams, capacity)
        self._history = history
        self._open_calls: Counter[str] = Counter()
        self._calls_of_principals: Counter[tuple[str, Principal]] = Counter()
        self._node = node
        self._loop = loop
        self.open_count = 0

    def get_capacity(self) -> Mapping[str, int]:
        return self._capacity

    def has_open_session(self, call: Call) -> bool:
        return self._upstreams[call.upstream].is_up

    def get_login_owner(self, call: Call) -> Principal:
        return call.principal if call.upstream in self._own_logins else SHARED_OWNER

    @asynccontextmanager
    async def open_call_session(self, call: Call) -> AsyncGenerator["SimulatedSession"]:
        self._enter(call)
        try:
            async with self._connect(call) as session:
                yield session
        finally:
            self._open_calls[call.upstream] -= 1
            self._calls_of_principals[call.upstream, call.principal] -= 1

    def _enter(self, call: Call) -> None:
        """Count a call that has begun at its upstream, also while it still waits for the connection."""
        self._open_calls[call.upstream] += 1
        count, capacity = self._open_calls[call.upstream], self._capacity[call.upstream]
        if count > capacity:
            self._history.crowds.append(
                f"{self._node} has {count} calls at {call.upstream}, and a capacity of {capacity}"
            )
        self._calls_of_principals[call.upstream, call.principal] += 1
        own = self._calls_of_principals[call.upstream, call.principal]
        if own == capacity > 1:
            self._history.crowds.append(f"{self._node} gave {call.principal} all places at {call.upstream}")

    @asynccontextmanager
    async def _connect(self, call: Call) -> AsyncGenerator["SimulatedSession"]:
        upstream = self._upstreams[call.upstream]
        give_up_at = self._loop.time() + CONNECT_TIMEOUT_SECONDS
        while not upstream.is_up:
            if self._loop.time() >= give_up_at:
                raise UpstreamUnreachable("The connection was refused.")
            await asyncio.sleep(CONNECT_RETRY_SECONDS)
        tokens = await self._read_tokens(call)
        if not upstream.accepts(tokens):
            raise UpstreamLoginRequired("Sign in.", tokens_version=None if tokens is None else tokens.version)
        self.open_count += 1
        try:
            yield SimulatedSession(upstream, node=self._node, loop=self._loop, tokens=tokens)
        finally:
            self.open_count -= 1

    async def _read_tokens(self, call: Call) -> UpstreamTokens | None:
        owner = self.get_login_owner(call)
        try:
            return await self._store.read(lambda tx: get_readable_tokens(tx, call.upstream, owner))
        except StoreUnavailable:
            raise UpstreamUnreachable("The tokens cannot be read.") from None


class SimulatedSession:
    """Implements `upstreams.session_ports.CallSessionPort`."""

    def __init__(
        self, upstream: SimulatedUpstream, *, node: str, loop: SimulationLoop, tokens: UpstreamTokens | None
    ) -> None:
        self.protocol = _PROTOCOLS[upstream.kind]
        self.server_fingerprint: ServerFingerprint | None = ServerFingerprint(f"simulated:{upstream.kind.value}")
        self._upstream = upstream
        self._node = node
        self._loop = loop
        self._tokens = tokens

    def get_tool(self, name: str) -> ToolInfo | None:  # noqa: ARG002 - the names of CallSessionPort
        return None

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        client_capabilities: Mapping[str, Any] | None = None,  # noqa: ARG002 - as above
        on_progress: ProgressFnT | None = None,
        on_position: OnStreamPosition | None = None,  # noqa: ARG002 - as above
    ) -> dict[str, Any]:
        exchange = Exchange(
            method, params, self._node, self._loop.create_future(), on_progress, self._tokens, copy_context()
        )
        self._upstream.send(exchange)
        try:
            return await exchange.response
        except asyncio.CancelledError:
            self._upstream.abandon(exchange)
            raise

    @asynccontextmanager
    async def open_notification_stream(
        self,
        notification_filter: Mapping[str, Any],  # noqa: ARG002 - as above
        *,
        client_capabilities: Mapping[str, Any],  # noqa: ARG002 - as above
    ) -> AsyncGenerator[NotificationStreamPort | None]:
        yield None

    @property
    def legacy_session(self) -> LegacySessionPort:
        return _NoLegacySession()

    def rejoin_session(self, session_id: LegacySessionId) -> AbstractAsyncContextManager[LegacySessionPort]:  # noqa: ARG002
        _refuse_legacy_session()


class _NoLegacySession:
    """The legacy session of an upstream that has none: a server without session ids. Implements `LegacySessionPort`."""

    session_id: LegacySessionId | None = None
    retry_seconds = 0.0

    def keep_alive(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def send_request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        _refuse_legacy_session()

    async def resume_stream(
        self,
        position: StreamPosition,  # noqa: ARG002
        *,
        on_progress: ProgressFnT | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        _refuse_legacy_session()

    async def send_notification(self, method: str, params: Mapping[str, Any]) -> None:  # noqa: ARG002
        _refuse_legacy_session()

    def handle_elicitations(self, on_elicitation: OnElicitation) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    async def answer_elicitation(self, request_id: str, answer: Mapping[str, Any]) -> None:  # noqa: ARG002
        _refuse_legacy_session()


def _refuse_legacy_session() -> NoReturn:
    raise NotImplementedError("The simulated upstreams have no legacy sessions.")
