-- Reference data from CSV file (updated daily)
CREATE TABLE symbol_metadata AS
SELECT 
    symbol,
    sector,
    market_cap,
    risk_rating
FROM file:///data/symbol_reference.csv;
