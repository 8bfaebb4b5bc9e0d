"""The dashboard at /ui: pages that the service renders, with buttons for callers whose key allows them.

    browser ──GET /ui/calls?status=failed──▶ PageRoutes ──cookie──▶ viewer ──▶ page handler ──▶ services ──▶ template
            ──POST /ui/webhooks/wh_…/test──▶ PageRoutes ──cookie, form token, Origin──▶ action handler ──▶ services ──▶ 303

A viewer is a caller (`domain.principal.Caller`) in a browser: the services check its scopes as they do for REST, so no page
decides about rights. An operator sees the rows of all principals. Pages need no script for reading: scripts refresh lists and
show times in the viewer's zone. Templates escape all that clients, upstreams and receivers wrote.

    routes         all routes of the dashboard
    page_routes    wraps a handler: viewer, errors as pages, form token
    pages/         the handlers, a module for each section
    forms/         the form that starts a call of a tool, made of its inputSchema
    charts/        charts, timelines and sessions as values that a template draws
    context        the services and settings that handlers use
    viewer         who looks at a page, and what it may do there
    viewers        finds the viewer of a request: viewer_cookies has the secrets of its browser
    viewer_checks  checks again that the viewers of open streams may see their pages
    live_frames    the HTML of live lists, made once for all viewers that see the same rows
    page_handlers  what all handlers share: the services, and the caller of a list or of one object
    redirects      sends a browser to another page, or reloads an open one
    rendering      templates, their filters and the sections that a viewer may open; page_headers: the headers of every page
    formats        times, durations, sizes and counts as text
    assets         style sheet, scripts and icon
    query_parameters  the filters of lists, with the checks of the REST API; call_filters: those of calls
    contents       arguments and results as text
    notices        the sentences after an action
"""
