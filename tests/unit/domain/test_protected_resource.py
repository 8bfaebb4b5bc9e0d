import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.principal import Scope
from ringback.domain.protected_resource import (
    WELL_KNOWN_PATH,
    ProtectedResource,
    enclosing_resources,
    parse_bearer_token,
    resource_for_path,
)

NAMES = st.from_regex(r"[a-z0-9-]{1,24}", fullmatch=True)
RESOURCES = st.just("") | st.just("/mcp") | NAMES.map("/mcp/{}".format)


def protected(public_url: str = "https://ringback.example") -> ProtectedResource:
    return ProtectedResource(public_url=public_url, issuer="https://issuer.example", scopes=[Scope.READ])


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/mcp", "/mcp"),
        ("/mcp/", "/mcp"),
        ("/mcp/git", "/mcp/git"),
        ("/mcp/git/more", "/mcp/git"),
        ("/mcp/Git", "/mcp"),
        ("/mcp/" + "g" * 25, "/mcp"),
        ("/mcpx", ""),
        ("/v1/mcp", ""),
        ("/", ""),
    ],
)
def test_a_path_belongs_to_the_resource_with_its_prefix(path: str, resource: str) -> None:
    assert resource_for_path(path) == resource


@given(resource=RESOURCES)
def test_a_resource_is_below_those_that_begin_its_path(resource: str) -> None:
    around = enclosing_resources(resource)

    assert (around[0], around[-1]) == (resource, "")
    assert all(longer.startswith(shorter) for longer, shorter in itertools.pairwise(around))
    assert {resource_for_path(one) for one in around} == set(around)


@pytest.mark.requirement("R25")
@given(resource=RESOURCES, public_url=st.sampled_from(["https://ringback.example", "https://apps.example:8443/a/b"]))
def test_the_metadata_url_of_a_challenge_serves_the_resource(resource: str, public_url: str) -> None:
    known = protected(public_url)
    origin = "/".join(public_url.split("/")[:3])

    suffix = known.metadata_url(resource).removeprefix(origin + WELL_KNOWN_PATH)

    document = known.metadata_document(suffix)
    assert document is not None
    assert document["resource"] == public_url + resource
    assert f'resource_metadata="{known.metadata_url(resource)}"' in known.challenge_header(resource)


@given(path=st.text(max_size=40))
def test_no_path_gets_anything_but_names_into_a_header(path: str) -> None:
    challenge = protected().challenge_header(resource_for_path(path))

    assert challenge.isascii()
    assert challenge.isprintable()
    assert challenge.count('"') == 4


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("Bearer x", "x"),
        ("bearer   x ", "x"),
        ("Basic x", None),
        ("x", None),
    ],
)
def test_a_bearer_token_is_found_in_its_header(header: str | None, token: str | None) -> None:
    assert parse_bearer_token(header) == token
