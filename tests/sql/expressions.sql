-- one expression a line; each must mean to Spark after our parser what it means in this file
'a\nb'
'a\\b'
r'a\nb'
'a\'b'
'a''b'
'a\%b'
"a'b"
'\u0041'
'x' 'y'
X'1F'
1
1L
1S
1Y
1.5
1.50BD
1e3
1.5D
1.5F
.5
-3
1e3BD
DATE '2024-02-29'
TIMESTAMP '2024-01-01 12:00:00.5'
TIMESTAMP_NTZ '2024-01-01 12:00:00'
INTERVAL '5' MINUTE
INTERVAL 2 HOURS
INTERVAL '1-2' YEAR TO MONTH
INTERVAL '1 2:03:04' DAY TO SECOND
INTERVAL 1 DAY 2 HOURS
INTERVAL '3 days'
7 DIV 2
7 / 2
7 % 4
-7 DIV 2
5 & 3
5 | 3
5 ^ 3
~5
1 = 1.0
NULL <=> NULL
'a' || 'b'
NOT true
! true
'abc' RLIKE 'a.c'
'A' ILIKE 'a'
'a' LIKE ANY ('a', 'b')
'a_b' LIKE 'a!_b' ESCAPE '!'
1 BETWEEN 0 AND 2
1 IN (1, 2)
array(1, 2)[1]
map('a', 1)['a']
named_struct('a', 1).a
CAST('1' AS INT)
TRY_CAST('x' AS INT)
'5'::INT
CAST(1 AS STRING)
CAST('2024-01-01' AS TIMESTAMP)
CAST(1.239 AS DECIMAL(10, 2))
CASE WHEN true THEN 1 END
if(false, 1, 2)
trim('  a ')
TRIM(BOTH 'x' FROM 'xax')
TRIM(LEADING 'x' FROM 'xax')
ltrim('x', 'xxa')
rtrim('a  ')
SUBSTRING('hello' FROM 2 FOR 3)
substr('hello', 2)
POSITION('l' IN 'hello')
OVERLAY('hello' PLACING 'X' FROM 2 FOR 2)
EXTRACT(YEAR FROM DATE '2024-05-06')
extract(SECONDS FROM TIMESTAMP '2024-01-01 00:00:01.5')
date_add(DATE '2024-01-31', 1)
date_add(MONTH, 1, TIMESTAMP '2024-01-31 00:00:00')
dateadd(DAY, 1, DATE '2024-01-01')
datediff(DATE '2024-01-05', DATE '2024-01-01')
datediff(DAY, DATE '2024-01-01', DATE '2024-01-05')
timestampadd(HOUR, 2, TIMESTAMP '2024-01-01 00:00:00')
timestampdiff(MINUTE, TIMESTAMP '2024-01-01 00:00:00', TIMESTAMP '2024-01-01 01:00:00')
date_trunc('MONTH', TIMESTAMP '2024-05-06 07:08:09')
trunc(DATE '2024-05-06', 'YEAR')
date_format(DATE '2024-05-06', 'yyyy/MM')
to_date('06.05.2024', 'dd.MM.yyyy')
to_timestamp('2024-05-06 07', 'yyyy-MM-dd HH')
unix_timestamp(TIMESTAMP '2024-01-01 00:00:00')
from_unixtime(0, 'yyyy')
year(DATE '2024-05-06')
dayofweek(DATE '2024-05-06')
weekofyear(DATE '2024-05-06')
last_day(DATE '2024-02-01')
split('a.b', '\\.')
regexp_extract('a1b', '([0-9])', 1)
regexp_replace('aaa', 'a', 'b')
concat_ws('-', 'a', NULL, 'b')
element_at(array(1, 2), 2)
try_element_at(array(1), 5)
slice(array(1, 2, 3), 2, 2)
sort_array(array(2, 1, NULL))
array_sort(array(2, 1, NULL))
sequence(1, 3)
size(array())
str_to_map('a:1,b:2')
map_from_arrays(array('a'), array(1))
get_json_object('{"a": 1}', '$.a')
from_json('{"a": 1}', 'a INT')
to_json(struct(1 AS a))
aggregate(array(1, 2), 0, (a, x) -> a + x)
transform(array(1, 2), x -> x + 1)
filter(array(1, 2), (x, i) -> i > 0)
exists(array(1), x -> x > 0)
zip_with(array(1), array(2), (a, b) -> a * b)
log(2, 8)
ln(2)
round(2.5)
bround(2.5)
ceil(1.234, 2)
floor(-1.5)
pow(2, 3)
shiftleft(1, 3)
try_divide(1, 0)
nvl2(NULL, 1, 2)
decode(1, 1, 'a', 'b')
base64('a')
hex('a')
sha2('a', 256)
format_string('%d', 1)
initcap('a b')
char(65)
ascii('A')
levenshtein('a', 'b')
coalesce(NULL, 1)
nullif(1, 1)
greatest(1, 2)
typeof(1.5)
hash(1, 'a')
struct(1, 2 AS b)
from_utc_timestamp(TIMESTAMP '2024-01-01 00:00:00', 'Europe/Berlin')
to_utc_timestamp('2024-01-01 00:00:00', 'Europe/Berlin')
make_date(2024, 1, 2)
make_timestamp(2024, 1, 2, 3, 4, 5)
months_between(DATE '2024-03-01', DATE '2024-01-01')
double(1)
string(1)
int('1')
date('2024-01-01')
boolean('true')
1 <> 2
1 != 2
1 == 1
(1, 2) IN ((1, 2))
array(1) = array(1)
