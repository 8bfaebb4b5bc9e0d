-- oldest code: 20
-- When the calls of an owner that wait for a login to an upstream are checked next: one of them is sent again, because the upstream
-- may have stopped asking for a login. A node of an older version makes no checks.
CREATE TABLE login_checks (
    upstream      TEXT NOT NULL,
    owner         TEXT NOT NULL,
    due_at        INTEGER NOT NULL,
    pause_seconds REAL NOT NULL,
    PRIMARY KEY (upstream, owner)
) STRICT, WITHOUT ROWID;

CREATE INDEX login_checks_due ON login_checks (due_at);

-- The calls that wait already.
INSERT INTO login_checks (upstream, owner, due_at, pause_seconds) SELECT DISTINCT upstream, owner, 0, 60 FROM login_waits;
