-- oldest code: 25
-- How far the scheduling time of the nodes is ahead of PostgreSQL's clock, and when a node said so last, by that clock. A node that
-- starts begins with the time of the others: after a step of PostgreSQL's clock they approach it by a second a minute.
CREATE TABLE shared_clock (
    id       bigint PRIMARY KEY CHECK (id = 1),
    ahead    bigint NOT NULL,
    saved_at bigint
) WITH (fillfactor = 50);

INSERT INTO shared_clock (id, ahead, saved_at) VALUES (1, 0, NULL);
