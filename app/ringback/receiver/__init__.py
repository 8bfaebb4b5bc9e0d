"""The receiver of callbacks: verifies them, handles each once, and waits for a certain one.

In your own web framework, use `verify` and `parse`:

    verify(headers, body, secrets, now=now)     raises VerificationError unless the sender signed exactly this body, recently
    parse(body)                                 Callback, or a control envelope: Verification, Gap, Terminated

`ReceiverApp` is an ASGI application, for any server or mounted into any framework:

    POST ──▶ bounded body ──▶ verify ──▶ parse ──▶ seen before? ──▶ on_callback ──▶ 204
             413              400        400       204              raises: 500, and the sender retries
                                                                    │
                                        receiver.wait_for(correlation_id=…)

Delivery is at least once. `ReceiverApp` recognises duplicates by subscription and `webhook-id`, in the memory of one process. A
handler whose effects must not happen twice also stores the `event_id` in its own database.

The signature proves the sender. It does not make the content, such as a tool's result, trustworthy.

The package imports only `ringback.signing`, and no web framework.
"""

from ringback.receiver.app import ReceiverApp
from ringback.receiver.envelopes import Callback, Gap, MalformedBody, Terminated, Verification, parse
from ringback.signing.standard_webhooks import VerificationError, VerifiedMessage, verify

__all__ = [
    "Callback",
    "Gap",
    "MalformedBody",
    "ReceiverApp",
    "Terminated",
    "Verification",
    "VerificationError",
    "VerifiedMessage",
    "parse",
    "verify",
]
