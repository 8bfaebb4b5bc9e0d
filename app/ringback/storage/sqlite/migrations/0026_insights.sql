-- oldest code: 15
-- What happened in each hour, for each principal ('*': all of them) and upstream ('': all of them). `counts` is a JSON object.
CREATE TABLE insight_hours (
    principal TEXT NOT NULL,
    upstream  TEXT NOT NULL,
    hour      INTEGER NOT NULL,
    counts    TEXT NOT NULL,
    PRIMARY KEY (principal, upstream, hour)
) STRICT, WITHOUT ROWID;

CREATE INDEX insight_hours_by_age ON insight_hours (hour);

-- Up to where calls, events, deliveries and attempts are counted: one row, a JSON object.
CREATE TABLE insight_positions (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    positions TEXT NOT NULL
) STRICT;

-- Attempts are counted in the order of their ids, which is that of their times.
CREATE INDEX attempts_in_order ON attempts (id);

-- Calls that ended without a result: few beside those that have one, and no part of a usual call's writes.
CREATE INDEX calls_unsuccessful ON calls (principal, id) WHERE outcome <> 'result';
CREATE INDEX calls_unsuccessful_of_all ON calls (id) WHERE outcome <> 'result';
