"""Signatures, resume tokens and encryption at rest, as pure functions.

    standard_webhooks   signs callbacks; receivers verify them
    ed25519             the same with a key pair, for receivers that must not hold a secret
    resume_token        encodes the tokens of callbacks; POST /v1/resume decodes them
    sealing             encrypts and decrypts columns of the database
    base64_text         standard base64, otherwise strict
    secrets             whsec_… and rbk_… texts: generation, validation, hashing

It imports nothing else of Ringback, reads no clock and draws no randomness: `now` and random bytes
are parameters, so tests cover every expiry and every nonce. `hmac`, `itsdangerous` and `cryptography` provide the primitives;
these modules define formats and policies: which data a signature covers, the maximum age, which key signs, and which
exception a failure raises.

No error text and no repr contains a signing secret, a token or a key.
"""
