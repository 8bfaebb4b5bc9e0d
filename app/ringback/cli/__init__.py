"""The command line, for people at a terminal and for scripts.

    app               the root command: imports a command's module when it runs
    imports           … without the parts of its libraries that no command uses
    serve             runs the service
    mcp               connects a client that starts commands to the service's MCP endpoints
    embedded_service  … the service that it starts if none runs
    stdio_bridge      … standard input and output to streamable HTTP
    connect           puts the servers of an MCP client behind Ringback
    connect_report    … prints what changes and what to do next
    client_files      … reads and edits the clients' files
    keys              API keys and encryption keys, in the service's database
    call              starts a call through the REST API and waits for it
    arguments         … parses `--arg name=value`, times, and `list` after a command that lists by itself
    join              waits for a call that was started earlier
    following         … progress and result, for `call --wait` and `join`
    wait              waits for any or all of several calls
    calls             lists, shows, cancels and answers calls
    erasures          erases a call, a session or a principal
    portal_links      makes links to pages of the dashboard that need no key
    audit             prints who changed what
    events            prints and follows the event log
    listen            receives callbacks by the event stream or by webhook
    listening         … opens the parts of the durable listener and runs it
    durable_listener  … from the event stream, with an inbox on disk
    callback_receiver … by webhook: verifies and prints callbacks
    callback_server   … serves its ASGI application
    callback_text     … the printed text of a callback
    dev               wraps an MCP server for a first try
    webhooks          manages webhooks through the REST API
    webhook_names     … found by their names
    webhook_states    … enables, disables, pauses and resumes them; prints what happens with their open deliveries
    deliveries        lists deliveries through the REST API
    upstreams         lists, pauses, drains and resumes upstreams
    upstream_logins   … signs in to them and out
    login_redirects   … gets the redirect at the end of a login
    usage             prints the quotas
    top               shows what is open and what has happened, and keeps it up to date
    trigger           sends a signed test event, and shows what its receiver answered
    verify            verifies a callback that was saved to a file
    stored_request    … parses it, and finds why its signature does not match
    check_server      checks an MCP server that offers Events
    server_checks     … its cases
    backup            backs the database up with its keys, and restores a backup
    copy              moves an installation from SQLite to PostgreSQL
    migrate           brings the database to this version's schema
    help              prints the page for operators
    doctor            checks the whole installation
    installation_checks … its checks
    configured_upstreams … which these are
    check_receiver    checks a receiver of MCP Events
    receiver_checks   … its checks
    check_report      the table of `check-receiver` and `check-server`
    client_options    the options that client commands share, and how a command runs with a client
    option_groups     … declared once as the fields of a dataclass
    http_connections  reads one HTTP request for each connection, and responds: to callbacks, and to a login's redirect
    file_locks        locks that end with their process, for the own service and the durable listener
    server_options    --database, and the service's errors that end a command with one message
    hints             the service's advice, with commands in the place of REST requests
    output            printing and exit codes
    output_errors     … one message and an exit code where the output cannot be written
    demo_upstream     the MCP server behind `serve --dev`

Results go to standard output, everything else to standard error. An expected error is one message that says what to do; a
traceback is a bug. Exit codes:

    0    success
    1    the call ended with another outcome than `result`, a callback is invalid or was refused, or the doctor found a fault
    2    the request failed: usage, settings, connection, or a problem that the service reports
    74   the output could not be written; what the command did is done
    75   a wait ended before its call, or the service may start later
    130  Ctrl-C

`--json` prints the objects of the REST API. `ringback --install-completion` sets up completion for the shell.
"""
