-- What happened in the shop, as a table; and the totals, kept up to date in a database that a report reads.
CREATE TABLE orders AS SELECT id, customer, cents FROM outbox://shop.db;

CREATE TABLE totals AS SELECT customer, COUNT(*) AS orders, SUM(cents) AS cents FROM orders GROUP BY customer;

INSERT INTO ledger://report.db?table=totals SELECT customer, orders, cents FROM totals EMIT CHANGES;
