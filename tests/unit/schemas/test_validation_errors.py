"""Reasons of rejected values are in the words of JSON, whatever Python's types are called."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ringback.schemas.validation_errors import describe_validation_errors

PYTHON_WORDS: Final = re.compile(
    r"frozenset|\bset\b|tuple|dictionary|\bdict\b|instance|None|Part|validation", re.IGNORECASE
)


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    label: int = 0


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    names: Annotated[frozenset[str], Field(min_length=1, max_length=2)] = frozenset({"a"})
    pair: tuple[int, ...] | None = None
    labels: Annotated[Mapping[str, str], Field(max_length=1)] = {}
    steps: Annotated[Sequence[int], Field(max_length=1)] = ()
    inner: list[Inner] | None = None
    is_dead: Literal[True] | None = None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"names": []}, "names: A list should have at least 1 item, not 0"),
        ({"names": ["a", "b", "c"]}, "names: A list should have at most 2 items, not"),
        ({"names": "a"}, "names: Input should be a list"),
        ({"pair": {}}, "pair: Input should be a list"),
        ({"labels": {"a": "b", "c": "d"}}, "labels: An object should have at most 1 item, not"),
        ({"labels": []}, "labels: Input should be an object"),
        ({"steps": [1, 2]}, "steps: It should have at most 1 item, not 2"),
        ({"is_dead": False}, "is_dead: Input should be true"),
        ([], "Input should be an object"),
        ({"name": "a"}, "name: There is no such name. Did you mean 'names'?"),
        ({"inner": [{"lable": 1}]}, "inner.0.lable: There is no such name. Did you mean 'label'?"),
        ({"inner": [{"names": 1}]}, "inner.0.names: There is no such name. The names are: label."),
    ],
)
def test_a_reason_names_no_type_of_python(value: Any, reason: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Part).validate_python(value)

    (shown,) = describe_validation_errors(refused.value, model=Part)

    assert shown.startswith(reason)
    assert PYTHON_WORDS.search(shown) is None
