"""The SQLite store: one file, one writer, and commits that units of work share.

    write(work) ─▶ waiting ─┐                  event loop                    │ commit thread
    write(work) ─▶ waiting ─┼─▶ BEGIN, one unit after the other ─────────────┼─▶ COMMIT (fsync)
    write(work) ─▶ waiting ─┘                                                │
   units that arrive meanwhile are the next group ◀── values, errors, notifications ─┘

    read(work) ──▶ BEGIN, the unit, ROLLBACK, on a second, read-only connection; sees the last commit, never waits
    scan(principal, work) ──▶ the same on one of a few read-only connections, each in a thread of its own

Statements of write and read take microseconds and run on the event loop's own thread. Statements of lists visit a bounded
number of rows and may take milliseconds, and so does the fsync of a commit: these run on threads of their own. While one group
becomes durable, the next one gathers. So groups grow with the load, and no timer is needed.

A unit of work runs to its end without the event loop; that makes it a transaction. A unit that waits for anything but its
transaction is rolled back with a RuntimeError.

An error inside a unit rolls back that unit and is raised to its caller. A BEGIN or COMMIT that fails (locked by another
process, full disk, I/O error) rolls back the group, and every caller in it gets `StoreUnavailable`.

    store            open, close, write, read, scan
    group_commit     the left side of the drawing
    group_queue      which waiting units form the next group: those that start calls first
    commit_counter   COMMIT, its count, and whether any commits are missing at a start
    checkpointer     copies pages of the log into the file, so that commits need not
    read_pool        the connections of scan
    transaction      what a unit of work sees: the row classes of `storage.rows`
    unit_of_work     runs a unit
    statements       statements by name
    inserts          which inserts run as statements of several rows
    database         connections, errors
    migrator         numbered migrations, applied at the start
    file_lock        one serving process for one file, and its count of commits
    use_mark         a mark in a file that a service uses, so that a copy without its log is recognised
    log_check        damage in the write-ahead log, before SQLite opens it
    backup           copies the database while a service uses it, and puts a copy into its place
    integrity        stops all work if the file is damaged, removed or replaced
    integrity_check  damage and missing commits, for `ringback doctor`
"""
