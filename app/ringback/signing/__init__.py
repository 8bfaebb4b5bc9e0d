"""Signatures, tokens and seals: the product's cryptography, as pure functions of what they are given.

    standard_webhooks   a callback is signed ───────▶ its receiver verifies it
    resume_token        a callback carries it ──────▶ POST /v1/resume reads it
    sealing             a row is sealed on its way in ▶ and unsealed on its way out
    ed25519             the same with a key pair, whose public half anybody may have
    secrets             whsec_… and rbk_… texts: how they are made, judged and hashed

This is the lowest ring of the house. It imports nothing of ours, reads no clock and draws no randomness: `now` and random
bytes are parameters, so every expiry and every nonce can be tested. The primitives are those of `hmac`, `itsdangerous` and
`cryptography`; what is here decides the formats and the policies: what is bound to what, how old is too old, which key
signs, and which one exception says no.

Signing secrets, tokens and keys are never part of an error's text, and no value of these modules shows them in its repr.
"""
