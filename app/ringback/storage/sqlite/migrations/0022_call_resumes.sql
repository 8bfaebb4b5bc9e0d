-- oldest code: 15
-- When clients came back for their calls. A call has at most some twenty rows; the last one counts later resumes, too.
CREATE TABLE call_resumes (
    call_id    TEXT NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    resumed_at INTEGER NOT NULL,
    surface    TEXT NOT NULL,
    resumes    INTEGER NOT NULL,
    PRIMARY KEY (call_id, resumed_at, surface)
) STRICT, WITHOUT ROWID;
