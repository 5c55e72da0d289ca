-- From here on the concurrency of a level or probe of an open loop is its rate, as text: '5/s'.
-- JSON: what only such a level has.
ALTER TABLE levels ADD COLUMN open_loop TEXT;
