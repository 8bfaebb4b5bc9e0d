"""The text of a configuration: comments, and inputs that a naive search reads again and again."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationInfo

from ringback.upstreams.config.expansion import expand_placeholders
from ringback.upstreams.config.loader import strip_json_comments

REPEATS = 400_000
"""A search that begins again at each place would take hours; one that reads each character once takes milliseconds."""


ENVIRONMENT = cast("ValidationInfo", cast("Any", SimpleNamespace(context={"NAME": "value"})))


def test_comments_and_trailing_commas_are_left_out_and_strings_are_kept() -> None:
    text = '{"a": "x, // no", /* yes */ "b": ["\\"/*", 2,], // yes\n}'

    assert json.loads(strip_json_comments(text)) == {"a": "x, // no", "b": ['"/*', 2]}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"a": "' + '\\"' * REPEATS, id="a string that is not closed"),
        pytest.param('{"a": ' + "/*" * REPEATS, id="a comment that is not closed"),
        pytest.param('"' * (2 * REPEATS + 1), id="quotes"),
        pytest.param('{"a": "x\\', id="a backslash at the end"),
        pytest.param("," * REPEATS, id="commas"),
    ],
)
def test_a_broken_file_is_read_once_and_is_no_json(text: str) -> None:
    stripped = strip_json_comments(text)

    assert len(stripped) == len(text)
    with pytest.raises(json.JSONDecodeError):
        json.loads(stripped)


def test_placeholders_that_are_not_closed_stay_as_they_are() -> None:
    assert expand_placeholders("a ${NAME} b ${NAME", ENVIRONMENT) == "a value b ${NAME"
    assert expand_placeholders("${" * REPEATS, ENVIRONMENT) == "${" * REPEATS
