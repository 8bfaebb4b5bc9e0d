"""Who is asking: whatever a bearer token says, checked, and turned into a caller.

    bearers         one door for all: API keys (`services.keys`) and access tokens, told apart by how they look
    access_tokens   JWTs of the configured issuer: signature, issuer, audience, time, scopes
    issuer          the issuer's keys: fetched, kept, fetched again, and kept through its outages
    documents       one JSON document from the issuer, bounded in size and time

A token is looked at here and goes no further: not into a log, not into a row, and never to an upstream.
"""
