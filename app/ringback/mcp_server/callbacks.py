"""`_meta["ringback/callback"]`: whom to ring for one call. The form of REST's `callback`, and its checks behind it."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, Strict, ValidationError

from ringback.domain.call import LABEL_LENGTH_MAX
from ringback.domain.errors import InvalidRequest
from ringback.domain.event import EventName
from ringback.domain.retry import Profile
from ringback.domain.text import printable
from ringback.domain.webhook import DEFAULT_EVENTS, DESCRIPTION_LENGTH_MAX, SECRET_LENGTH_MAX, When
from ringback.mcp_server.meta import CALLBACK
from ringback.notifier.target_guard import URL_LENGTH_MAX
from ringback.services.registrations import Registration


class Callback(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, Field(min_length=1, max_length=URL_LENGTH_MAX)]
    secret: Annotated[SecretStr, Field(max_length=SECRET_LENGTH_MAX)] | None = None
    events: Annotated[frozenset[EventName], Field(min_length=1)] = DEFAULT_EVENTS
    correlation_id: (
        Annotated[str, Field(min_length=1, max_length=LABEL_LENGTH_MAX), AfterValidator(printable)] | None
    ) = None
    retries: Profile = Profile.DAYS
    include_result: Annotated[bool, Strict()] = False
    when: When = When.ALWAYS
    description: Annotated[str, Field(max_length=DESCRIPTION_LENGTH_MAX), AfterValidator(printable)] | None = None

    def registration(self) -> Registration:
        return Registration(
            url=self.url,
            secret=self.secret.get_secret_value() if self.secret else None,
            events=self.events,
            correlation_id=self.correlation_id,
            retries=self.retries,
            include_result=self.include_result,
            when=self.when,
            description=self.description,
        )


def callback_in(meta: Mapping[str, Any]) -> Registration | None:
    """What the request asks to be rung for; raises `InvalidRequest`, which shows no value: it may be a secret."""
    if (asked := meta.get(CALLBACK)) is None:
        return None
    try:
        return Callback.model_validate(asked).registration()
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_context=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise InvalidRequest(f"_meta['{CALLBACK}']{'.' if place else ''}{place}: {reason}") from None
