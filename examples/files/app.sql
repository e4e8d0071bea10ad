-- A folder of CSV files and a JSON file, joined, and written to a file as they grow.

CREATE TABLE customers AS
SELECT * FROM file://customers.jsonl
WITH ("key" = "customer_id");

-- Every file of the folder, and those that will be added to it.
CREATE TABLE orders AS
SELECT * FROM file://orders/*.csv
WITH ("key" = "order_id");

CREATE TABLE by_city AS
SELECT c.city, COUNT(*) AS orders, SUM(o.amount) AS amount
FROM orders o JOIN customers c ON c.customer_id = o.customer_id
GROUP BY c.city;

-- Each large order once, also after a crash, in a file that other programs can follow.
INSERT INTO file://large.jsonl
SELECT order_id, amount FROM file://orders/*.csv WHERE amount >= 100;
