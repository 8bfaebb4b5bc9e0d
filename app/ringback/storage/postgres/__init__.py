"""The PostgreSQL store: one database for any number of nodes.

    write(work) ─▶ lane ─▶ a connection ─▶ BEGIN ─▶ the unit ─▶ COMMIT ─▶ caller, end actions, waiters of this and other nodes
    read(work) ──▶ lane ─▶ a connection ─▶ one snapshot
    scan(who, work) ─▶ the same in a lane of its own, in turns between principals

Units run at the same time, on one node and on several, and lock what they decide about (`domain.ports`). PostgreSQL lets units
that commit at the same moment share one flush of its log.

    store            open, close, write, read, scan, and the clock that all nodes share
    lanes            waiting units, and how many of each kind run at once
    node_connections the connections of the node, which all lanes share
    unit_of_work     runs a unit in a transaction, again after a conflict, and refuses one that waits for anything else
    transaction      what a unit of work sees: the row classes of `storage.rows`
    log_appends      appends to logs, one statement for each step
    merged_rows      rows with one statement in the place of several of `storage.rows`
    statements       statements by name, with and without locks
    notifications    topics from and to other nodes: LISTEN and NOTIFY
    shared_clock     the time of all nodes: PostgreSQL's clock without its steps
    own_session      refuses a pooler that does not keep sessions
    driver           asyncpg's connections, with the settings that every unit relies on
    errors           what PostgreSQL's errors mean for a caller
    availability     logs when the database becomes unavailable, and when it works again
    inspection       what `ringback doctor` asks a server
    migrator         numbered migrations, applied at the start

Conventions of sql/*.sql, beside those of `storage.rows.statements`:

    :name          one parameter; a cast (`:now::bigint`) where PostgreSQL cannot know the type
    :ids           a list of scalars is an array: `unnest(:ids::text[]) WITH ORDINALITY`, `= ANY (:ids::text[])`
    :rows, :keys   a list of rows is one JSON text: `json_array_elements(:rows::json)`
    {lock}         `FOR NO KEY UPDATE` in a unit of work that writes, nothing in one that reads
    {lock calls}   the same with `OF calls`, for a statement that joins; {lock calls skip locked}: without the rows that another
                   unit has locked

A statement with a `:name` that it does not use does not exist; values that it does not name are ignored.
"""
