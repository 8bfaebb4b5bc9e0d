"""`_meta["ringback/callback"]`: whom to ring for one call. The form of REST's `callback`, and its checks behind it."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, Strict, ValidationError

from ringback.domain.call import LABEL_LENGTH_MAX
from ringback.domain.errors import InvalidRequest
from ringback.domain.event import EventName
from ringback.domain.retry import RetryProfile
from ringback.domain.text import require_printable
from ringback.domain.webhook import DEFAULT_EVENTS, DESCRIPTION_LENGTH_MAX, SECRET_LENGTH_MAX, DeliveryCondition
from ringback.mcp_server.meta import CALLBACK_META_KEY
from ringback.notifier.target_guard import URL_LENGTH_MAX
from ringback.services.registrations import WebhookRegistration


class CallbackForm(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, Field(min_length=1, max_length=URL_LENGTH_MAX)]
    secret: Annotated[SecretStr, Field(max_length=SECRET_LENGTH_MAX)] | None = None
    events: Annotated[frozenset[EventName], Field(min_length=1)] = DEFAULT_EVENTS
    correlation_id: (
        Annotated[str, Field(min_length=1, max_length=LABEL_LENGTH_MAX), AfterValidator(require_printable)] | None
    ) = None
    retries: RetryProfile = RetryProfile.DAYS
    include_result: Annotated[bool, Strict()] = False
    when: DeliveryCondition = DeliveryCondition.ALWAYS
    description: Annotated[str, Field(max_length=DESCRIPTION_LENGTH_MAX), AfterValidator(require_printable)] | None = None

    def to_webhook_spec(self) -> WebhookRegistration:
        return WebhookRegistration(
            url=self.url,
            secret=self.secret.get_secret_value() if self.secret else None,
            events=self.events,
            correlation_id=self.correlation_id,
            retries=self.retries,
            include_result=self.include_result,
            when=self.when,
            description=self.description,
        )


def parse_callback(meta: Mapping[str, Any]) -> WebhookRegistration | None:
    """What the request asks to be rung for; raises `InvalidRequest`, which shows no value: it may be a secret."""
    if (value := meta.get(CALLBACK_META_KEY)) is None:
        return None
    try:
        return CallbackForm.model_validate(value).to_webhook_spec()
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_context=False)[0]
        location = ".".join(str(step) for step in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise InvalidRequest(f"_meta['{CALLBACK_META_KEY}']{'.' if location else ''}{location}: {reason}") from None
