"""The application: it writes an order, and a row of the outbox that tells of it, in one transaction."""

import sqlite3
import sys
from contextlib import closing

with closing(sqlite3.connect("shop.db")) as shop, shop:
    shop.execute("CREATE TABLE IF NOT EXISTS orders (customer TEXT, cents INTEGER)")
    shop.execute("CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY, customer TEXT, cents INTEGER)")
    for order in sys.argv[1:]:
        customer, cents = order.split("=")
        shop.execute("INSERT INTO orders VALUES (?, ?)", (customer, cents))
        shop.execute("INSERT INTO outbox (customer, cents) VALUES (?, ?)", (customer, cents))
