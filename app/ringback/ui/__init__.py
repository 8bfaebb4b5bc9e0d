"""The dashboard at /ui: pages that the service renders, with buttons for callers whose key allows them.

    browser ──GET /ui/calls?status=failed──▶ UiRoutes ──cookie──▶ viewer ──▶ page handler ──▶ services ──▶ template
            ──POST /ui/webhooks/wh_…/test──▶ UiRoutes ──cookie, form token, Origin──▶ action handler ──▶ services ──▶ 303

A viewer is a caller (`domain.principal.Caller`) in a browser: the services check its scopes as they do for REST, so no page
decides about rights. An operator sees the rows of all principals. Pages need no script for reading: scripts refresh lists and
show times in the viewer's zone. Templates escape all that clients, upstreams and receivers wrote.

    routes         all routes of the dashboard
    page_routes    wraps a handler: viewer, errors as pages, form token
    context        the services and settings that handlers use
    viewer         who looks at a page, and what it may do there
    viewers        finds the viewer of a request: viewer_cookies has the secrets of its browser
    redirects      sends a browser to another page
    page_headers   the headers of every page, and those that let a product embed pages of a portal link
    sign_in_pages  sign in with an API key, and sign out
    issuer_pages   sign in at the issuer of access tokens
    portal_pages   opens a portal link
    access         the caller of a list or of one object, for viewers that are operators
    rendering      templates, filters and headers
    formats        times, durations, sizes and counts as text
    navigation     the sections that a viewer may open
    assets         style sheet, scripts and icon
    charts         bars and lines as values that a template draws
    home_cards     the numbers of the first page
    home_charts    the charts and sums of the first page
    home_pages     the first page
    call_pages     the list of calls, the page of one call
    session_pages  the page of one client session; session_charts: its calls as a chart
    lookup_pages   one box for every id and key
    live_pages     the list of calls as server-sent events
    call_filters   the filter of the list in the query of its URL
    timelines      the timeline of a call; drawings: lanes along an axis of time
    contents       arguments and results as text
    audit_pages    who changed what
    webhook_pages  the webhooks; webhook_actions has the buttons of one
    delivery_pages  the deliveries; redelivery_pages sends all again that match a filter
    upstream_pages  the upstreams and their tools
    tool_pages     the form that starts a call of a tool
    schema_forms   the fields of that form, from the tool's inputSchema
    form_values    the arguments, from what was typed into the fields
    form_keys      idempotency keys of forms
    event_pages    the event log
    query_parameters  the filters of lists, with the checks of the REST API
    notices        the sentences after an action
    missing_pages  what is shown at a path without a page
"""
