"""What the use cases are built from. A service has it from its components and settings; tests and simulations bring fakes.

bootstrap/components.py                 Components, settings ──┐
tests/support/service.py                fakes ─────────────────┼──▶ ServiceParts, ServicesConfig ──▶ build_services
scripts/simulate_runs/node_services.py  simulated seams ───────┘
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ringback.admission import AdmissionGate
from ringback.attended_calls import AttendedCalls
from ringback.domain.clock import Clock
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store
from ringback.domain.upstream_logins import LoginFlow
from ringback.domain.upstreams import ToolCatalog, UpstreamConfiguration, UpstreamConnections
from ringback.domain.webhook import MessageIds
from ringback.measurements import Measurements
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.sender import HttpRequester
from ringback.notifier.recorder import Recorder
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import CallHandoff
from ringback.protocol.mcp_events.grants import TtlPolicy
from ringback.services.calls.adoption import TaskLookup
from ringback.services.calls.resume_recorder import CallResumeRecorder
from ringback.services.events.event_types import UpstreamEventTypes
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.logins.login_waits import LoginWaits
from ringback.services.long_polling import WAIT_SECONDS_MAX_DEFAULT
from ringback.services.webhooks.verification import VerificationPolicy
from ringback.signing.ed25519 import SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesConfig:
    """What the settings of a service decide. The defaults are those of the use cases."""

    public_url: str
    wait_seconds_max: float = WAIT_SECONDS_MAX_DEFAULT
    verification: VerificationPolicy = field(default_factory=VerificationPolicy)
    ttl_policy: TtlPolicy = field(default_factory=TtlPolicy)
    message_ids: MessageIds = MessageIds.EVENT
    signing_keys: Sequence[SigningKey] = ()
    """Sign challenges, as they sign callbacks."""
    login_redirect_urls: Collection[str] = ()
    has_dashboard: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """What the use cases share with the workers and the upstreams of their process."""

    store: Store
    clock: Clock
    ids: IdGenerator
    recorder: Recorder
    catch_ups: CatchUps
    attended_calls: AttendedCalls
    measurements: Measurements
    resume_tokens: CallResumeTokens
    call_resumes: CallResumeRecorder
    call_handoff: CallHandoff
    admission: AdmissionGate
    quotas: QuotaEnforcer
    target_guard: TargetGuard
    requester: HttpRequester
    """Sends challenges."""
    tool_catalog: ToolCatalog
    event_catalog: UpstreamEventTypes
    task_lookup: TaskLookup
    configuration: UpstreamConfiguration
    upstream_connections: UpstreamConnections
    login_flow: LoginFlow
    login_waits: LoginWaits
