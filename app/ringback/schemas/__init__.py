"""The JSON of REST as pydantic models, one file per noun. MCP's `_meta` callback and the extension use the same models.

A request is a `RequestBody` or `QueryParams`. It rejects unknown members, so that a misspelled filter is an error instead of a
filter without effect, and it bounds every string and number. A response is a `ResponseBody`: every member is present, `null`
without a value. Only `OmittedIfNone` members can be absent, because a response shows them once or sometimes.

    fields               types of members, with their limits
    validation_errors    describes errors without the rejected values
    jsonrpc_errors       errors as JSON-RPC errors, with which the MCP endpoints refuse requests
    calls, call_requests, reports, webhooks, webhook_requests, retries, deliveries, events,
    published_events, upstreams, upstream_logins, call_histories, keys, portal_links, audit, usage, insights, erasures,
    operations           the requests and responses of one noun each
    examples             examples of the OpenAPI document; a test validates them against these models; administration_examples:
                         those of keys, portal links, the audit log, erasures and insights
    schema_examples      which schema shows which example; callback_examples: those of the callbacks
"""
