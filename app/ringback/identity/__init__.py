"""Authentication: verifies a bearer token and returns its caller.

    authenticators       API keys (`services.access.api_keys`) and access tokens, distinguished by their prefix
    access_tokens        JWTs of the configured issuer: signature, issuer, audience, time, scopes
    issuer               the issuer's keys: fetched, cached, and kept during its outages
    issuer_documents     fetches one JSON document from the issuer, bounded in size and time
    issuer_sign_in       sign-in of people at the issuer, with a browser
    resolving_transport  resolves the issuer's host without blocking a thread

A token is used here only. It is never logged, stored or sent to an upstream.
"""
