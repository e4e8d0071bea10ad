CREATE TABLE a AS SELECT * FROM kafka://trades-topic t;
CREATE TABLE b AS SELECT * FROM file:///data/orders.csv;
CREATE TABLE c AS SELECT * FROM postgresql://host/db?schema=public&table=users;
CREATE TABLE d AS SELECT u.id FROM postgresql://localhost/mydb?query="SELECT * FROM users WHERE status='active'" u;
CREATE TABLE e AS SELECT * FROM mysql://host/db?table=orders&where="status='active'" WITH ("poll.interval" = "5s");
CREATE TABLE f AS SELECT * FROM s3://bucket/prefix/*.{csv,json};
CREATE TABLE g AS SELECT * FROM s3://bucket/with--dashes/*.parquet; -- a comment after
CREATE TABLE h AS SELECT * FROM (SELECT a, b FROM kafka://inner-topic) AS i WHERE a > 1;
CREATE TABLE i AS SELECT x.k, y.v FROM kafka://left x, kafka://right y WHERE x.k = y.k;
CREATE TABLE j AS SELECT * FROM 'kafka://quoted,several';
CREATE TABLE k AS SELECT * FROM kafka_topic('orders');
CREATE TABLE l AS SELECT * FROM file('/data/x.csv') WITH ("header" = "false", "delimiter" = "|");
CREATE TABLE m AS SELECT * FROM clickhouse://analytics:8123/events?table=user_events WITH ("batch.size" = "10000");
CREATE TABLE n AS SELECT * FROM datagen://trades?rows_per_second=100;
CREATE TABLE o AS
SELECT o.id, p.name
FROM kafka://orders o WITH ("auto.offset.reset" = "latest")
JOIN file:///data/products.csv WITH ("header" = "true") p ON o.product = p.id /* both sources have properties */
WHERE o.amount > 0
WITH ("retention" = "1d", "o.group.id" = "g1", "p.null" = "NA");
CREATE TABLE p AS SELECT * FROM http://example.com/feed.json WITH ("poll.interval" = "1m");
CREATE TABLE q AS SELECT * FROM https://example.com/a/b?page=1;
CREATE TABLE r AS SELECT orders.id FROM kafka://orders;
CREATE TABLE s AS SELECT id FROM range(10);
CREATE TABLE t AS SELECT * FROM sql://postgresql:host/db?query="SELECT 1" WITH ("incremental.column" = "id");
