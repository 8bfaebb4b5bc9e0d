"""What `ringback check-server` says about the requests that came to its callbacks."""

from collections import Counter
from dataclasses import replace

import pytest

from ringback.cli.server_checks.callback_endpoint import KEPT_BYTES_MAX, POSTS_MAX, REQUEST_BYTES_MAX, CallbackEndpoint
from ringback.cli.server_checks.callbacks import ReceivedPost, generate_secret
from ringback.signing.standard_webhooks import build_signed_headers

SECRET = generate_secret()
BODY = b'{"test": 2432232314}'
DOCUMENTED_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def make_post(message_id: str, signature: str) -> ReceivedPost:
    headers = (("webhook-id", message_id), ("webhook-timestamp", "1614265330"), ("webhook-signature", signature))
    return ReceivedPost(method="POST", target="/", headers=headers, body=BODY, at=0.0)


def test_a_signature_is_judged_by_its_formula_however_long_ago_it_came() -> None:
    documented = make_post("msg_p5jXN8AQM9LWM0D4loKWxJek", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
    signed = build_signed_headers([SECRET], message_id="evt_1", timestamp=1614265330, body=BODY)
    post = make_post("evt_1", f"v1a,abc {signed['webhook-signature']}")

    assert documented.find_signature_fault(generate_secret(), DOCUMENTED_SECRET) is None
    assert post.find_signature_fault(SECRET) is None
    assert post.find_signature_fault(DOCUMENTED_SECRET) is not None
    assert replace(post, body=BODY + b" ").find_signature_fault(SECRET) is not None


def test_an_id_from_upstream_may_have_a_full_stop() -> None:
    post = make_post("thread.4711", "v1,xwELGQ9YCURywGa9CVxbwiqdKa/2HfhIMiUBxVRqrRQ=")

    assert post.find_signature_fault(DOCUMENTED_SECRET) is None


def test_a_repeated_header_of_the_signature_is_named() -> None:
    post = make_post("evt_1", "v1,abc")

    assert (
        replace(post, headers=(*post.headers, ("webhook-id", "evt_2"))).find_signature_fault() == "2 headers webhook-id"
    )
    assert replace(post, headers=post.headers[1:]).find_signature_fault() == "0 headers webhook-id"


@pytest.mark.parametrize("body", [b"{}", b" " * REQUEST_BYTES_MAX])
def test_an_endpoint_keeps_a_bounded_number_of_requests_and_of_bytes(body: bytes) -> None:
    endpoint = CallbackEndpoint("http://127.0.0.1:1", 1, is_public=False)
    callback = endpoint.add_callback()
    post = replace(make_post("evt_1", "v1,abc"), target=callback.target, body=body)

    statuses = Counter(endpoint.receive(post).status for _ in range(POSTS_MAX + 1))

    kept = min(POSTS_MAX, KEPT_BYTES_MAX // len(body))
    assert statuses == {204: kept, 503: POSTS_MAX + 1 - kept}
    assert len(callback.posts) == kept
