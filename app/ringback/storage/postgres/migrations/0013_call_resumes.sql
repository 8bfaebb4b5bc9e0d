-- oldest code: 6
-- When clients came back for their calls. A call has at most some twenty rows; the last one counts later resumes, too. Unlike other
-- rows of calls these have a foreign key: they are written in batches after the response, and a node of an older version does not
-- delete them with their call.
CREATE TABLE call_resumes (
    call_id    text COLLATE "C" NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    resumed_at bigint NOT NULL,
    surface    text COLLATE "C" NOT NULL,
    resumes    bigint NOT NULL,
    PRIMARY KEY (call_id, resumed_at, surface)
);
