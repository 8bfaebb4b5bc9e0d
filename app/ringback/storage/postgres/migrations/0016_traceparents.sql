-- oldest code: 6
-- The trace context (W3C) of the request that started a call, to which the spans of its run, its attempts and its resumes are linked.
ALTER TABLE calls ADD COLUMN traceparent text COLLATE "C";
ALTER TABLE deliveries ADD COLUMN traceparent text COLLATE "C";

-- A view keeps the columns that its table had when it was made, and `CREATE OR REPLACE` cannot add one in the middle.
DROP VIEW whole_calls;
CREATE VIEW whole_calls AS
SELECT
    calls.*,
    (SELECT inputs.arguments FROM inputs WHERE inputs.call_id = calls.id) AS arguments,
    (SELECT inputs.meta FROM inputs WHERE inputs.call_id = calls.id) AS meta
FROM calls;

DROP VIEW whole_deliveries;
CREATE VIEW whole_deliveries AS
SELECT deliveries.*, (SELECT bodies.body FROM bodies WHERE bodies.delivery_id = deliveries.id) AS body
FROM deliveries;
