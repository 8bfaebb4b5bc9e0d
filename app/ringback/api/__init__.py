"""REST: the services over HTTP, JSON in snake_case, every error a problem document (RFC 9457).

    request ──▶ UnhandledErrorMiddleware ▸ HostOriginMiddleware ▸ (CORS) ▸ BodyLimitMiddleware ▸ ResponseHookMiddleware
                    │                          │                              │
                    │                          └ checks Host and Origin       └ counts the bytes of the body
                    └ turns an unexpected error into a 500 without details
            ──▶ AuthenticatedRoute            authentication (401), then the body (415, 413, 400)
            ──▶ one function per operation    validation (422) ▸ one service call ▸ response

One file per noun holds the operations; `ringback.schemas` holds the bodies of requests and responses. The API decides nothing:
a rule that REST and MCP both need belongs to `ringback.services`.

`app` assembles the API, `problems` maps errors to statuses, `openapi_webhooks` describes the callbacks, `openapi_export` prints
the OpenAPI document, `openapi_endpoint` serves it, and `llms_endpoint` serves what language models read.
"""
