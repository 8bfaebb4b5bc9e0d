"""Which protocol the next handshake with an upstream begins with, by its last profile and its failures since."""

from typing import Final

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback.domain.upstreams import UpstreamProfile
from ringback.upstreams.config import ProtocolChoice
from ringback.upstreams.connection_problems import ConnectionProblem
from ringback.upstreams.handshake import ModernProbe
from ringback.upstreams.session import UpstreamSession

SILENT_PROBES_MAX: Final = 3
"""Probes without a response in time, after which an upstream that used the modern protocol may have become a legacy one."""
FAILED_PROBES_MAX: Final = 10
"""The same for lost connections and failed servers, which end at once: the attempts take a minute, in which most servers have
restarted."""
_FAILURES: Final = frozenset({ConnectionProblem.LOST, ConnectionProblem.HANDSHAKE})


class HandshakeOrder:
    def __init__(self, protocol: ProtocolChoice = ProtocolChoice.AUTO, *, is_child: bool = False) -> None:
        """`is_child` says that the upstream is a command, whose end also ends the handshake."""
        self._is_child = is_child
        self._is_legacy = protocol is ProtocolChoice.LEGACY
        self._skips_probe = False
        self._silent_probes = 0
        self._failed_probes = 0

    def note_failure(self, problem: ConnectionProblem) -> None:
        # Some legacy servers exit when the first message is not `initialize`: the next attempt sends it first.
        self._skips_probe = problem is ConnectionProblem.LOST and not self._skips_probe
        self._silent_probes = self._silent_probes + 1 if problem is ConnectionProblem.TIMEOUT else 0
        self._failed_probes = self._failed_probes + 1 if problem in _FAILURES else 0

    def note_success(self) -> None:
        self._silent_probes = self._failed_probes = 0

    def choose_probe(self, last_profile: UpstreamProfile | None) -> ModernProbe:
        """The probe of the next shared session."""
        if self._is_legacy:
            return ModernProbe.SKIP
        was_modern = last_profile is not None and last_profile.protocol_version in MODERN_PROTOCOL_VERSIONS
        if was_modern and self._silent_probes < SILENT_PROBES_MAX and self._failed_probes < FAILED_PROBES_MAX:
            return ModernProbe.EXPECT
        # After a probe that was lost over HTTP, the legacy handshake follows on another connection.
        return ModernProbe.SKIP if self._skips_probe and (self._is_child or not was_modern) else ModernProbe.TRY


def get_later_probe(shared: UpstreamSession) -> ModernProbe:
    """The probe of a session beside the open shared one."""
    return ModernProbe.EXPECT if shared.protocol.is_modern else ModernProbe.SKIP
