CREATE SOURCE orders (id BIGINT, customer STRING, amount DECIMAL(10,2))
FROM file://orders.csv;
