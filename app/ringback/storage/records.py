"""The codec of every record that a store keeps, for the column types of one database."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.audit import AuditEntry
from ringback.domain.call import Call, Handle, InputRequest, Progress, ServerFingerprint
from ringback.domain.call_resumes import CallResume
from ringback.domain.call_rows import Tombstone
from ringback.domain.callback_headers import CallbackHeaders
from ringback.domain.catch_up import CatchUp
from ringback.domain.change_subscriptions import ChangeSubscription
from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds
from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.erasure import Erasure
from ringback.domain.event import Event, event_name, progress_data
from ringback.domain.event_subscriptions import EventSubscription
from ringback.domain.event_types import EventDemand, EventFollowing, PublishedEventType
from ringback.domain.failure_rate import FailureRate
from ringback.domain.login_checks import LoginCheck
from ringback.domain.login_waits import LoginResumption
from ringback.domain.mcp_sessions import McpSession, SessionState
from ringback.domain.portal_links import PortalLink
from ringback.domain.principal import ApiKey
from ringback.domain.sign_ins import SignIn
from ringback.domain.unused_logins import UnusedLogin
from ringback.domain.upstream_logins import UpstreamLogin
from ringback.domain.upstream_rows import CatalogPart, ToolAlias, UpstreamControl
from ringback.domain.verification import Challenge
from ringback.domain.webhook import Webhook, WebhookSecret
from ringback.storage.codec import ColumnType, ColumnTypes, RowCodec
from ringback.storage.upstream_login_records import ClientRecord, TokensRecord, decode_request, encode_request

_ARGUMENTS: Final = ("arguments", "meta")
"""Fields of a call in a table of their own. A whole call is read with them."""


class Records:
    """Codecs by record.

    Bodies, secrets and states are sealed: their columns hold what a `Sealer` makes of the value. Arguments and `_meta` of calls
    may be.
    """

    def __init__(self, types: ColumnTypes) -> None:
        self.call = _make_call_codec(types, stored_elsewhere=_ARGUMENTS)
        self.whole_call = _make_call_codec(types, sealed=_ARGUMENTS)
        self.call_resume = RowCodec(CallResume, types)
        self.tombstone = RowCodec(Tombstone, types)
        self.event = RowCodec(Event, types, columns={"name": ColumnType(decode=event_name)})
        self.event_type = RowCodec(PublishedEventType, types)
        self.event_demand = RowCodec(EventDemand, types)
        self.event_following = RowCodec(EventFollowing, types)
        self.delivery = RowCodec(Delivery, types, stored_elsewhere=("body",))
        self.whole_delivery = RowCodec(Delivery, types, sealed=("body",))
        self.attempt = RowCodec(Attempt, types)
        self.circuit_breaker = RowCodec(CircuitBreaker, types)
        self.webhook = _make_webhook_codec(types, self.circuit_breaker)
        self.catch_up = RowCodec(CatchUp, types)
        self.change_subscription = RowCodec(ChangeSubscription, types)
        self.event_subscription = RowCodec(EventSubscription, types)
        self.challenge = RowCodec(Challenge, types)
        self.api_key = RowCodec(ApiKey, types)
        self.sign_in = RowCodec(SignIn, types)
        self.portal_link = RowCodec(PortalLink, types)
        self.audit_entry = RowCodec(AuditEntry, types)
        self.catalog_part = RowCodec(CatalogPart, types)
        self.tool_alias = RowCodec(ToolAlias, types)
        self.upstream_control = RowCodec(UpstreamControl, types)
        self.login_resumption = RowCodec(LoginResumption, types)
        self.login_check = RowCodec(LoginCheck, types)
        self.unused_login = RowCodec(UnusedLogin, types)
        self.erasure = RowCodec(Erasure, types)
        self.mcp_session = RowCodec(
            McpSession,
            types,
            columns={"state": ColumnType(encode=_encode_session_state, decode=_decode_session_state)},
            sealed=("state",),
        )
        self.upstream_login = _make_login_codec(types)
        self.upstream_tokens = RowCodec(TokensRecord, types, sealed=("secrets",))
        self.oauth_client = RowCodec(ClientRecord, types, sealed=("client",))

    def by_name(self) -> Mapping[str, RowCodec[Any]]:
        """The codecs under the names that statements use."""
        return vars(self)


def _make_call_codec(
    types: ColumnTypes, *, sealed: Collection[str] = (), stored_elsewhere: Collection[str] = ()
) -> RowCodec[Call]:
    json = types.json
    return RowCodec(
        Call,
        types,
        columns={
            "progress": json.storing(progress_data, lambda values: Progress(**values)),
            "handle": json.storing(_encode_handle, _decode_handle),
            "input_requests": json.storing(_encode_input_requests, _decode_input_requests, empty_is_null=True),
            "input_responses": json.storing(dict, dict, empty_is_null=True),
        },
        sealed=sealed,
        stored_elsewhere=stored_elsewhere,
    )


def _encode_handle(handle: Handle) -> list[Any]:
    """What is None is left out at the end: older versions stored, and still read, the first two or three elements."""
    fingerprint = [each for each in handle.server_fingerprint or () if each is not None]
    return [handle.driver, handle.data, *fingerprint]


def _decode_handle(elements: Sequence[Any]) -> Handle:
    driver, data, *fingerprint = elements
    return Handle(
        driver=driver, data=data, server_fingerprint=ServerFingerprint(*fingerprint[:2]) if fingerprint else None
    )


def _make_login_codec(types: ColumnTypes) -> RowCodec[UpstreamLogin]:
    request = ColumnType(encode=encode_request, decode=decode_request)
    return RowCodec(UpstreamLogin, types, columns={"request": request}, sealed=("request",))


def _make_webhook_codec(types: ColumnTypes, breaker: RowCodec[CircuitBreaker]) -> RowCodec[Webhook]:
    return RowCodec(
        Webhook,
        types,
        columns={
            "secrets": ColumnType(encode=_encode_secrets, decode=_decode_secrets),
            "retry_steps": types.json.storing(list, tuple),
        },
        embedded={"breaker": breaker, "failure_rate": RowCodec(FailureRate, types)},
        sealed=("secrets",),
        stored_elsewhere=("headers",),
    )


def _encode_input_requests(requests: Mapping[str, InputRequest]) -> dict[str, Any]:
    return {key: [request.name, request.method, request.params] for key, request in requests.items()}


def _decode_input_requests(entries: Mapping[str, Any]) -> dict[str, InputRequest]:
    return {
        key: InputRequest(name=name, method=method, params=params) for key, (name, method, params) in entries.items()
    }


def _encode_secrets(secrets: tuple[WebhookSecret, ...]) -> bytes:
    """`[[value, ends_at], …]`, newest first, instants in milliseconds since 1970: the text that is sealed."""
    return jsontext.dumps(
        [(secret.value, None if secret.ends_at is None else epoch_milliseconds(secret.ends_at)) for secret in secrets]
    )


def _decode_secrets(text: bytes) -> tuple[WebhookSecret, ...]:
    return tuple(
        WebhookSecret(value=value, ends_at=None if ends_at is None else from_epoch_milliseconds(ends_at))
        for value, ends_at in _parse_sealed_parts(text)["secrets"]
    )


def encode_headers(secrets: bytes, headers: CallbackHeaders) -> bytes:
    """The text that is sealed for a webhook: its encoded secrets, or `{"secrets": …, "headers": [[name, value], …]}`."""
    return jsontext.dumps({"secrets": jsontext.loads(secrets), "headers": headers}) if headers else secrets


def decode_headers(text: bytes) -> CallbackHeaders:
    return tuple((name, value) for name, value in _parse_sealed_parts(text)["headers"])


def _parse_sealed_parts(text: bytes) -> dict[str, Any]:
    parsed: Any = jsontext.loads(text)
    return {"secrets": parsed, "headers": []} if isinstance(parsed, list) else parsed


def _encode_session_state(state: SessionState) -> bytes:
    """The text that is sealed."""
    return jsontext.dumps([state.initialize, state.log_level, state.subscriptions])


def _decode_session_state(text: bytes) -> SessionState:
    initialize, log_level, subscriptions = jsontext.loads(text)
    return SessionState(initialize=initialize, log_level=log_level, subscriptions=tuple(subscriptions))
