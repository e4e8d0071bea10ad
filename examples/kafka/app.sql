-- A file feeds a topic; the topic is summed into a table; the sums go to another topic.

INSERT INTO kafka://127.0.0.1:9094/orders
SELECT order_id, user_id, amount FROM file://orders.jsonl
WITH ("key" = "order_id");

CREATE TABLE totals AS
SELECT user_id, COUNT(*) AS orders, SUM(amount) AS total
FROM kafka://127.0.0.1:9094/orders
GROUP BY user_id
WITH ("schema" = "order_id STRING, user_id STRING, amount DECIMAL(10,2)");

-- Every change: an update of a group is a record with the new value, under the key user_id, written exactly once.
INSERT INTO kafka://127.0.0.1:9094/totals
SELECT user_id, orders, total FROM totals
EMIT CHANGES
WITH ("delivery" = "exactly_once");
