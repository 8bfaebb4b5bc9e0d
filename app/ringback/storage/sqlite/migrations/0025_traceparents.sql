-- oldest code: 15
-- The trace context (W3C) of the request that started a call, to which the spans of its run, its attempts and its resumes are linked.
ALTER TABLE calls ADD COLUMN traceparent TEXT;
ALTER TABLE deliveries ADD COLUMN traceparent TEXT;
