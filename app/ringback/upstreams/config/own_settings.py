"""The object `ringback` of an entry: what Ringback, and no other host, reads.

Unknown keys are errors, because a misspelt setting would otherwise have no effect.
"""

from typing import Annotated, Any, Self
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, Strict, model_validator

from ringback.domain.call import RerunPolicy
from ringback.domain.upstream_logins import CredentialsScope
from ringback.domain.upstreams import PendingForm
from ringback.upstreams.config.expansion import SHOWN_NAME_LENGTH_MAX, make_field_error
from ringback.upstreams.config.fields import (
    TEXT_RULE,
    Bool,
    OnDisconnect,
    PendingResult,
    Rerun,
    Seconds,
    ServerId,
    Text,
    Texts,
    Url,
    check_confidential,
    check_meta_keys,
    check_object,
    must_be,
)
from ringback.upstreams.config.models import (
    CONCURRENT_CALLS_MAX,
    META_WILDCARD,
    AuthMethod,
    ClientCredentials,
    Isolation,
    LoginSettings,
    ProtocolChoice,
)


class OwnSettings(BaseModel):
    """An object under `ringback`."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, value: Any) -> Any:
        settings = check_object(value)
        if unknown := sorted(settings.keys() - cls.model_fields.keys()):
            shown = unknown[0][:SHOWN_NAME_LENGTH_MAX]
            raise make_field_error(f"has no setting '{shown}'; there is {', '.join(cls.model_fields)}")
        return settings


class _ToolSettings(OwnSettings):
    inline_wait_seconds: Seconds = None
    on_disconnect: OnDisconnect = None
    pending: PendingResult | None = None
    rerun_policy: Rerun | None = None
    task_only: Bool = False


class _OAuthSettings(OwnSettings):
    token_url: Annotated[Url, AfterValidator(check_confidential)]
    client_id: Text
    client_secret: Text
    scope: Text = ""
    resource: Annotated[Text | None, must_be(TEXT_RULE)] = None
    auth_method: Annotated[AuthMethod, must_be(f"one of {', '.join(AuthMethod)}")] = AuthMethod.BASIC

    def make_credentials(self, upstream_url: str) -> ClientCredentials:
        resource = self.resource if "resource" in self.model_fields_set else _strip_url(urlsplit(upstream_url))
        return ClientCredentials(
            token_url=self.token_url,
            client_id=self.client_id,
            client_secret=self.client_secret,
            scope=self.scope or None,
            resource=resource,
            auth_method=self.auth_method,
        )


class _LoginSettings(OwnSettings):
    client_id: Annotated[Text | None, must_be(TEXT_RULE)] = None
    client_secret: Annotated[Text | None, must_be(TEXT_RULE)] = None
    scope: Annotated[Text | None, must_be(TEXT_RULE)] = None
    issuer: Annotated[Url, AfterValidator(check_confidential)] | None = None

    @model_validator(mode="after")
    def _check_client(self) -> Self:
        if self.client_secret is not None and self.client_id is None:
            raise make_field_error("has a 'client_secret' without its 'client_id'; give both")
        if (
            self.client_secret is not None and self.issuer is None
        ):  # the upstream could name any server, which then gets it
            raise make_field_error(
                "has a 'client_secret' without the 'issuer' that it belongs to; give the URL of that authorization server"
            )
        return self

    def make_settings(self) -> LoginSettings:
        return LoginSettings(
            client_id=self.client_id, client_secret=self.client_secret, scope=self.scope, issuer=self.issuer
        )


def _strip_url(parts: SplitResult) -> str:
    """The URL that names the upstream as a resource: without user, query and fragment."""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class RingbackSettings(OwnSettings):
    max_concurrent: Annotated[
        int,
        Strict(),
        Field(ge=1, le=CONCURRENT_CALLS_MAX),
        must_be(f"a whole number from 1 to {CONCURRENT_CALLS_MAX}"),
    ] = 0
    """0 stands for the default of the transport."""
    server_id: ServerId = None
    trust_annotations: Bool = False
    check_arguments: Bool = True
    protocol: Annotated[ProtocolChoice, must_be(f"one of {', '.join(ProtocolChoice)}")] = ProtocolChoice.AUTO
    isolation: Annotated[Isolation, must_be(f"one of {', '.join(Isolation)}")] = Isolation.SHARED
    inline_wait_seconds: Seconds = None
    on_disconnect: OnDisconnect = None
    pending: PendingResult = PendingForm.RESULT
    rerun_policy: Rerun = RerunPolicy.NEVER
    tools: Annotated[dict[str, _ToolSettings], must_be("an object")] = Field(default_factory=dict[str, _ToolSettings])
    pass_meta: Annotated[Texts, AfterValidator(check_meta_keys)] = (META_WILDCARD,)
    oauth: Annotated[_OAuthSettings | None, BeforeValidator(check_object)] = None
    credentials: Annotated[CredentialsScope, must_be(f"one of {', '.join(CredentialsScope)}")] = CredentialsScope.SHARED
    login: Annotated[_LoginSettings, BeforeValidator(check_object)] = Field(default_factory=_LoginSettings)

    @model_validator(mode="after")
    def _check_rerun_policies(self) -> Self:
        policies = {self.rerun_policy, *(tool.rerun_policy for tool in self.tools.values())}
        if RerunPolicy.IF_SAFE in policies and not self.trust_annotations:
            raise make_field_error(
                "has 'rerun_policy': 'if_safe', which needs 'trust_annotations': true: the tools' annotations say what is safe"
            )
        return self
