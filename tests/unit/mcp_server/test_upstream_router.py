"""Which URIs match a template."""

import pytest

from ringback.mcp_server.upstream_router import has_same_own_scheme, matches_template


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("book://{number}", "book://7", True),
        ("book://{number}", "shelf://7", False),
        ("file:///{+path}", "file:///a/b.txt", True),
        ("https://a.example/{id}{?page}", "https://a.example/1?page=2", True),
        ("https://a.example/{id}/end", "https://a.example/1/2/end", True),
        ("https://a.example/{id}/end", "https://aXexample/1/end", False),
        ("note://today", "note://today", True),
        ("note://today", "note://today/x", False),
    ],
)
def test_a_uri_matches_a_template_by_its_literal_segments(template: str, uri: str, *, expected: bool) -> None:
    assert matches_template(template, uri) is expected


def test_a_long_uri_is_matched_fast_against_a_template_with_many_variables() -> None:
    """A regular expression with four variables takes hours for this URI."""
    uri = f"db://{'/' * 100_000}"
    assert matches_template("db://{schema}/{table}/{column}/{row}", uri)
    assert not matches_template("db://{schema}/{table}/{column}/end", uri)
    assert not matches_template("a{b}a", "a")


@pytest.mark.parametrize(
    ("listed", "uri", "expected"),
    [
        ("note://today", "note://old", True),
        ("{scheme}://today", "note://old", False),
        ("https://a.example/today", "https://a.example/old", False),
        ("note", "note", False),
    ],
)
def test_only_a_scheme_of_its_own_assigns_a_resource_to_an_upstream(listed: str, uri: str, *, expected: bool) -> None:
    assert has_same_own_scheme(listed, uri) is expected
