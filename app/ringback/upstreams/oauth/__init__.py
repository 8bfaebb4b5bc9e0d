"""The OAuth client towards upstreams: access tokens for their requests, and logins with a browser.

Requests    bearer_transport ──▶ token_source (ports) ──▶ client_credentials   the configured client
                                                     └──▶ stored_tokens        the tokens of one owner
            token_renewal    the refresh of claimed tokens ──▶ token_requests
            token_validity   whether tokens are used, replaced early, or kept after a refusal
            source_factory   makes the source of an upstream and an owner
            followed_login   the login to which a source keeps until its end
            token_store      reads and saves tokens; one node refreshes them at a time
            challenge        the `WWW-Authenticate` header of a refusal
            login_offers     whether an upstream that refuses a request offers a login

Logins      authorization ──▶ discovery ──▶ metadata       the upstream's and its authorization server's metadata
                │                 └──▶ challenge
                ├──▶ registration ──▶ client_store         how Ringback identifies itself
                ├──▶ scopes
                └──▶ token_requests                        code, refresh token, revocation
Both        metadata_http ──▶ endpoints                    bounded requests to addresses that are allowed
            token_responses                                what is read of a token response

The rules are those of MCP 2025-11-25 and 2026-07-28, "Authorization". What a server says is not trusted: every URL is judged
before a request (`endpoints`), every address before a connection, and every response is bounded. Errors contain no text of a
server.

The provider of the SDK (2.3.0) is not used: it holds its lock until the upstream starts to respond, which on 2026-07-28 is at
the end of the tool, so all calls of an upstream would run one after the other. Its helpers are used where they are pure.
"""
