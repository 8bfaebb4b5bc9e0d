-- oldest code: 6
-- What happened in each hour, for each principal ('*': all of them) and upstream ('': all of them). `counts` is a JSON object.
CREATE TABLE insight_hours (
    principal text COLLATE "C" NOT NULL,
    upstream  text COLLATE "C" NOT NULL,
    hour      bigint NOT NULL,
    counts    text COLLATE "C" NOT NULL,
    PRIMARY KEY (principal, upstream, hour)
) WITH (fillfactor = 80);

CREATE INDEX insight_hours_by_age ON insight_hours (hour);

-- Up to where calls, events, deliveries and attempts are counted: one row, a JSON object.
CREATE TABLE insight_positions (
    id        bigint PRIMARY KEY CHECK (id = 1),
    positions text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- Attempts are counted in the order of their ids, which is that of their times.
CREATE INDEX attempts_in_order ON attempts (id);

-- Events and deliveries are counted in the order of their times; rows of the same millisecond need an order, too.
DROP INDEX events_created;
CREATE INDEX events_created ON events (created_at, principal, seq);
DROP INDEX deliveries_finished;
CREATE INDEX deliveries_finished ON ended_deliveries (finished_at, id) WHERE finished_at IS NOT NULL;

-- Calls that ended without a result: few beside those that have one, and no part of a usual call's writes.
CREATE INDEX calls_unsuccessful ON calls (principal, id) WHERE outcome <> 'result';
CREATE INDEX calls_unsuccessful_of_all ON calls (id) WHERE outcome <> 'result';
