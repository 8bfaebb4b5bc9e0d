"""The files of MCP clients: reads their servers, puts Ringback in their place, and takes it back.

    clients ──▶ safe_files ──▶ documents ──▶ plan ──▶ connection ──▶ safe_files      clients  where each client keeps what
    the table    bytes          text          pure     both files      atomic

    documents      a file's text with its servers; every edit is checked by parsing the text again
    json_spans     … the places of values in JSON, also with comments
    json_edits     … members of objects, added, replaced and removed
    toml_spans     … the places of statements in TOML
    toml_edits     … keys of tables, replaced and removed
    text_edits     … edits of a text by spans
    plan           which server gets which name, and both texts after the change
    entries        … one server of a client as one of Ringback's configuration
    own_entries    … Ringback as a server in a client's file
    configuration  Ringback's own file, to which servers are added
    connection     writes a plan, and undoes it
    service_units  the unit or agent that starts the user's service with the session
    records        … what a connection changed, kept until it is undone

Only the entries that move change. Comments, order, indentation, unknown keys, line endings and a byte order mark stay as the
user wrote them, because nothing is written anew: the edits replace spans of the text.
"""
