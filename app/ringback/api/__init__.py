"""REST: the services over HTTP, JSON in snake_case, every error a problem document (RFC 9457).

    request ──▶ UnhandledErrorMiddleware ▸ HeaderCheckMiddleware ▸ (CORS) ▸ BodyLimitMiddleware
                ▸ LargeResponseMiddleware ▸ ResponseHookMiddleware
                    │                          │                              │
                    │                          └ checks Host, Origin and      └ counts the bytes of the body,
                    │                            repeated headers              refuses compressed ones
                    └ turns an unexpected error into a 500 without details
            ──▶ AuthenticatedRoute            authentication (401), then the body (415, 413, 400)
            ──▶ one function per operation    validation (422) ▸ one service call ▸ response

`routes` has one module of operations for each noun; `ringback.schemas` holds the bodies of requests and responses. The API
decides nothing: a rule that REST and MCP both need belongs to `ringback.services`.

    app                 assembles the API
    routes              the operations of one noun each; metric_families builds what `metrics` sends
    authentication      the caller of a request, and strict parsing of its body; strict_queries: of its query
    login_pages         the pages on which a person signs in to an upstream; login_cookies: which browser began
    browser_forms       forms that browsers send: their origin, their size, the keys in them
    idempotency_keys    refuses the header Idempotency-Key where a repetition would do its work again
    operator_access     what an operator does for other principals, with a line in the audit log
    context             the services and the settings that every request uses
    middleware          the drawing above; cors: pages of allowed origins
    large_responses     limits the memory of large responses, and writes them in pieces
    http_spans          the span of each request, if the service makes traces
    request_context     the ids of a request, in log lines and in its response
    forwarded_clients   addresses of clients behind trusted proxies
    public_path         the path of the public URL
    misdirected_messages   messages of MCP clients whose URL lacks /mcp
    problems            maps errors to statuses and to documents; http_errors are the errors of HTTP itself
    responses           parts that several responses share
    openapi_rules       completes the OpenAPI document for all operations at once
    openapi_webhooks    describes the callbacks
    openapi_export      prints the document; openapi_endpoint serves it
    llms_endpoint       serves what language models read
"""
