"""Where a browser may come back to after a login, and Ringback's own document."""

import pytest

from ringback.domain.login_urls import client_metadata_document, is_allowed_redirect, login_page_url

PUBLIC_URL = "https://ringback.example/base"
FRONT_END = "https://app.example/signed-in?tenant=7"


def is_allowed(redirect_uri: str) -> bool:
    return is_allowed_redirect(redirect_uri, upstream="git", public_url=PUBLIC_URL, configured=[FRONT_END])


@pytest.mark.parametrize(
    "redirect_uri",
    [
        "http://127.0.0.1:4711/callback",
        "http://[::1]:1/",
        "http://localhost:8000/a",
        FRONT_END,
        f"{PUBLIC_URL}/login/callback/git",
    ],
)
def test_a_browser_may_come_back_to_loopback_to_a_configured_url_and_to_the_services_own_page(
    redirect_uri: str,
) -> None:
    assert is_allowed(redirect_uri)


@pytest.mark.parametrize(
    "redirect_uri",
    [
        "",
        "https://evil.example/",
        f"{FRONT_END}&next=https://evil.example",
        "https://app.example/signed-in",
        f"{PUBLIC_URL}/login/callback",
        f"{PUBLIC_URL}/login/callback/other",
        f"{PUBLIC_URL}/login/callback/git?x=1",
        f"{PUBLIC_URL}/login/other",
        "https://ringback.example/login/callback/git",
        "http://127.0.0.1/",
        "http://127.0.0.1.evil.example:80/",
        "http://127.0.0.1:80@evil.example/",
        "http://user@127.0.0.1:80/",
        "https://127.0.0.1:80/",
        "http://127.0.0.1:80/#fragment",
        "http://127.0.0.1:80/#",
        "http://127.0.0.1:80/?query=1",
        "http://127.0.0.1:no/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.2:80/",
        "http://10.0.0.1:80/",
        "http://[::1:80/",
        "javascript:alert(1)",
        "http://127.0.0.1:80/\n",
        "http://127.0.0.1:80/é",
        "http://127.0.0.1:80/" + "a" * 2048,
    ],
)
def test_a_browser_may_come_back_to_no_other_place(redirect_uri: str) -> None:
    assert not is_allowed(redirect_uri)


def test_the_client_metadata_document_names_itself_and_every_redirect_uri() -> None:
    document = client_metadata_document(PUBLIC_URL, "git", [FRONT_END])

    assert document["client_id"] == f"{PUBLIC_URL}/login/git/client.json"
    assert document["redirect_uris"] == [
        f"{PUBLIC_URL}/login/callback/git",
        FRONT_END,
        "http://127.0.0.1/callback/git",
        "http://[::1]/callback/git",
    ]
    assert document["token_endpoint_auth_method"] == "none"
    assert login_page_url(PUBLIC_URL, "git") == f"{PUBLIC_URL}/login/git"
