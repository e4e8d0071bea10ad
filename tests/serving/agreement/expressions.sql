-- Expressions over the table v, each line a SELECT list.
n, tiny, small, i, j, d, f, money, fine, huge, s, day, at, flag, `MixedCase`, mixedcase, V.MIXEDCASE
i = j, i <> n, i < 5, i <= j, j > 1.5, j >= d, money = fine, money < 2, money <= 2.505, fine > n, huge = fine
d = d, d > 0, d <=> NULL, k <=> NULL, k = 'a', k < 'b', s > 'a', s <= 'é', s >= '', s <> k
day = '2024-02-29', day > DATE '2000-01-01', at >= '2024-01-01', at < TIMESTAMP '2024-02-29 12:30:15', '2024-01-01' <= at
flag = true, flag <> false, flag <=> NULL, f = f, f < f, d > i, fine < d
i BETWEEN 0 AND 8, money NOT BETWEEN 0 AND 5.5, day BETWEEN '2000-01-01' AND '2024-01-31', s BETWEEN 'a' AND 'b'
i IN (1, 2, 5), i IN (1, NULL), i NOT IN (1, NULL), k IN ('a', 'é'), money IN (1, 2.5), d IN (0, 1.5), day IN ('1970-01-01')
flag AND i > 0, flag OR i > 0, NOT flag, flag IS TRUE, flag IS NOT TRUE, flag IS FALSE, i IS NULL, i IS NOT NULL
k IS DISTINCT FROM 'a', k IS NOT DISTINCT FROM NULL
tiny + n, small - n, n + n, n + 1, MixedCase + n, MixedCase - 5000000000, n * n, n * 3000000000, d + 1, d - d, d * 2, d * n
money + 1, money + fine, money - 0.005, fine * fine, fine * n, money * 2, money * fine, 1.5 * fine, -money, -n, -d, - 5
fine + n, n - fine, money + MixedCase, 1 + 0.25, 3 * 1.50, 2147483648 + 1, -9223372036854775807 - 1
n / 3, MixedCase / 7, d / 2, n / 0.5e0, n div 5, -n div 4, -7 div 2, MixedCase div 3, n % 5, -n % 4, MixedCase % 7, d % 2, -7 % 3
CAST(n AS BIGINT), CAST(n AS SMALLINT), CAST(n AS DECIMAL(10,2)), CAST(n AS DOUBLE), CAST(j AS DOUBLE), CAST(j AS STRING)
CAST(i AS STRING), CAST(fine AS DECIMAL(12,6)), CAST(fine AS DECIMAL(7,1)), CAST(fine AS DECIMAL(6,0)), CAST(fine AS DOUBLE)
CAST(f AS DOUBLE), CAST(at AS DATE), CAST(day AS TIMESTAMP), CAST(day AS STRING), CAST(flag AS STRING), CAST(NULL AS INT), CAST('2024-02-29' AS DATE), CAST('2024-02-29 01:02:03.5' AS TIMESTAMP)
n :: bigint, CAST(money AS DECIMAL(20,3)), CAST(5 AS TINYINT)
CASE WHEN i > 5 THEN 'big' WHEN i > 0 THEN 'small' END, CASE k WHEN 'a' THEN 1 WHEN 'b' THEN 2 ELSE 0 END
CASE WHEN flag THEN n ELSE j END, CASE WHEN flag THEN money ELSE fine END, CASE WHEN flag THEN n ELSE 1.5 END, CASE WHEN flag THEN NULL ELSE day END
upper(word), lower(word), ucase(word), lcase(word), length(s), len(s), char_length(s), character_length(s)
concat(s, '-', k), s || k, concat(k), concat_ws(',', s, k, NULL), concat_ws('', 'a', 'b')
substring(s, 2, 3), substr(s, 1), substring(s, 3), substring(s, 1, 0), substring(s FROM 2 FOR 1), trim(s), ltrim(s), rtrim(s), trim('  ünï  ')
replace(s, 'a', 'bb'), replace(s, '日', ''), startswith(s, 'a'), endswith(s, ' '), contains(s, 'pp'), contains(s, ''), instr(s, 'p'), instr(s, '本'), instr(s, 'zzz'), position('p' IN s)
s LIKE 'a%', s LIKE '%p_e', s LIKE '100%', s NOT LIKE '%本%', s LIKE '_', s LIKE '', s LIKE '__語', s LIKE 'A%'
coalesce(k, s, 'x'), coalesce(i, j), coalesce(money, fine), coalesce(NULL, i), nvl(k, 'none'), ifnull(d, 0), nullif(i, 5), nullif(k, 'a'), nullif(d, d)
if(flag, 1, 2), if(i > 0, money, 0), if(flag, s, NULL), greatest(n, i), greatest(n, 1.5, fine), least(k, s), least(d, 0.5e0), greatest(d, 1e0), greatest(day, DATE '2000-01-01')
isnull(k), isnotnull(k), isnan(d), abs(-n), abs(money), abs(d), abs(fine)
round(money, 1), round(fine, 2), round(fine), round(fine, 7), round(n, 2), floor(fine), ceil(fine), ceiling(money), floor(n), ceil(j), sqrt(abs(d))
year(day), quarter(day), month(day), day(day), dayofmonth(at), dayofweek(day), dayofyear(at), weekofyear(day), year(at), hour(at), minute(at), second(at)
extract(YEAR FROM at), extract(MONTH FROM day), extract(HOUR FROM at), extract(DAY FROM day)
date_trunc('year', at), date_trunc('quarter', at), date_trunc('MONTH', at), date_trunc('week', at), date_trunc('day', at), date_trunc('hour', at), date_trunc('minute', at), date_trunc('second', at)
date_add(day, 3), date_sub(day, n), date_add(day, -40), datediff(day, DATE '2000-01-01'), datediff(DATE '2024-01-01', day), date(at)
day + INTERVAL 1 DAY, day - INTERVAL 2 MONTHS, day + INTERVAL 1 YEAR, at + INTERVAL '90' MINUTE, at - INTERVAL 1 HOUR, at + INTERVAL 1 MONTH, at + INTERVAL 2 WEEKS, at - INTERVAL '15' SECOND, at + INTERVAL 3 DAYS
now() > TIMESTAMP '2020-01-01 00:00:00', current_timestamp() < at, current_date() > day, curdate() > DATE '2020-01-01'
1, 1.50, 'text', true, NULL, 1e3, 3000000000, 12345678901234567890, DATE '2024-01-01', -1.5, 0.05, 10L, 1.5D
money / 3, money / 7.5, 1 / (fine + 1000000), n / 0.07, fine / 3, -money / 9, money / -3, -(5) + 1.5, (5) * 1.5, if(money = 0, NULL, money) / 3, 2.5 / 3, money / (fine + 100000), CAST(5 AS DECIMAL(38,0)) / 3
