-- Generated trades, summed by symbol as they come.
CREATE TABLE by_symbol AS
SELECT symbol, COUNT(*) AS trades, SUM(quantity) AS shares, SUM(quantity * price) AS volume
FROM datagen://trades?rows_per_second=100
GROUP BY symbol;
