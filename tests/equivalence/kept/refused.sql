-- What no table can hold, and a part of the reason that the user is given.
SELECT id, make_ym_interval(1, i) AS r FROM t -- "r" is of type INTERVAL YEAR TO MONTH
SELECT id, INTERVAL 1 MONTH AS r FROM t -- "r" is of type INTERVAL MONTH
SELECT id, array(INTERVAL 1 MONTH) AS r FROM t -- "r" is of type INTERVAL MONTH
SELECT id, make_interval(1, i) AS r FROM t -- "r" is of type INTERVAL, which no table can hold
SELECT id, parse_json(s) AS r FROM t -- "r" is of type VARIANT
SELECT id, st_geomfromwkb(bin) AS r FROM t -- "r" is of type GEOMETRY
SELECT id, array() AS r FROM t -- "r" is an empty array or map of no type
SELECT id, map() AS r FROM t -- "r" is an empty array or map of no type
SELECT id, arrays_zip(arr, arr) AS r FROM t -- two fields of one name
SELECT id, rand() AS r FROM t -- rand() may return another value
SELECT t.id, uuid() AS r FROM t JOIN u ON t.g = u.g -- uuid() may return another value
SELECT t.id, now() AS r FROM t JOIN u ON t.g = u.g -- now() may return another value
SELECT id FROM t TABLESAMPLE (50 PERCENT) -- draws other rows each time
SELECT id FROM t TABLESAMPLE (BUCKET 1 OUT OF 2) -- draws other rows each time
SELECT id FROM t TABLESAMPLE (50 PERCENT) REPEATABLE (3) -- draws other rows each time
WITH a AS (SELECT g FROM t), A AS (SELECT g FROM u) SELECT g FROM a -- two queries named "A"
SELECT id FROM t |> LIMIT 2 -- |> is not part of the language
