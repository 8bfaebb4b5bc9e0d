"""The HTTP client of callbacks: one replaceable package behind the two protocols of `sender`.

    Sender.post, HttpRequester.send_request           sender: the protocols, limits, headers and attempt categories
        ├─▶ client.Http1Sender                        production: HTTP/1.1 over sockets that the guard allows
        │       ├─▶ connection_pool                   idle connections, by origin
        │       ├─▶ egress_proxy, client_certificates   how connections leave, if the operator configures it
        │       ├─▶ failures                          the category of each error
        │       ├─▶ authorities                       the certificate authorities of RINGBACK_CA_FILE
        │       ├─▶ dialer ──▶ guard ──▶ caching_resolver ──▶ resolver (c-ares)
        │       │                └─▶ addresses        the tables of forbidden addresses
        │       └─▶ connection ──▶ response_reader    one request and its response (llhttp)
        └─▶ httpx_sender.HttpxSender                  any httpx transport: tests, an egress of the user's own

`target` parses callback URLs. Nothing here knows webhooks, deliveries in the store, or transactions.
"""
