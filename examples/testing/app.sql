-- The statements under test, without the source `orders`: sources.sql takes it from a file, a test fills it itself.

CREATE TABLE totals AS
SELECT customer, COUNT(*) AS orders, SUM(amount) AS total
FROM orders
GROUP BY customer;

CREATE TABLE good_customers AS
SELECT customer, total FROM totals WHERE total >= 100;
