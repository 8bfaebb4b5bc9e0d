"""Answers, as they are given and as they are shown."""

from typing import Any, Self

from pydantic import Field

from ringback.api.schemas.calls import CallView
from ringback.api.schemas.fields import RequestBody, ResponseBody
from ringback.domain.inputs import InputAnswer
from ringback.services.answers import INPUT_RESPONSES_MAX


class AnswerBody(RequestBody):
    """Answers to what a call asks."""

    responses: dict[str, dict[str, Any]] = Field(
        min_length=1,
        max_length=INPUT_RESPONSES_MAX,
        description="ElicitResults by the keys in the call's `input_requests`: `action` is `accept` (with `content` in the "
        "form that was asked for), `decline` or `cancel`.",
    )


class AnsweredView(ResponseBody):
    call: CallView
    accepted: list[str] = Field(description="The keys that were answered by this.")
    ignored: list[str] = Field(description="The keys that are not asked, or not any more.")

    @classmethod
    def from_answer(cls, answered: InputAnswer) -> Self:
        return cls(call=CallView.from_call(answered.call), accepted=list(answered.accepted), ignored=list(answered.ignored))
