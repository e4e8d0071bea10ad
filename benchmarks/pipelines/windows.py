"""The same windows, as each contender's SQL says them. Loads nothing but Python's own library."""

from __future__ import annotations

from benchmarks.pipelines.workload import CLOSING

LATENESS = 5
"""Seconds by which records may be out of order; they are by less."""
_TOTALS = "COUNT(*) AS trades, SUM(quantity) AS quantity, SUM(quantity * price) AS turnover"
_OURS = f"SELECT symbol, window_start, {_TOTALS} FROM ticks WINDOW {{window}} GROUP BY symbol"
_TUMBLING = _OURS.format(window="TUMBLING(INTERVAL '1' MINUTE)")
OURS = {
    "tumbling": _TUMBLING,
    "sliding": _OURS.format(window="SLIDING(INTERVAL '5' MINUTE, INTERVAL '1' MINUTE)"),
    "session": _OURS.format(window="SESSION(INTERVAL '5' SECOND)"),
    "changes": f"{_TUMBLING} EMIT CHANGES",
    "rows": (
        "SELECT trade_id, symbol, price, AVG(price) OVER "
        "(ROWS WINDOW BUFFER 100 ROWS PARTITION BY symbol ORDER BY ts) AS average FROM ticks"
    ),
}
_BY_HAND = f"SELECT symbol, {{window}}.start AS window_start, {_TOTALS} FROM ticks GROUP BY symbol, {{call}}"
BY_HAND = {
    "tumbling": _BY_HAND.format(window="window", call="window(ts, '1 minute')"),
    "sliding": _BY_HAND.format(window="window", call="window(ts, '5 minutes', '1 minute')"),
    "session": _BY_HAND.format(window="session_window", call="session_window(ts, '5 seconds')"),
    "changes": _BY_HAND.format(window="window", call="window(ts, '1 minute')"),
}
FLINK = {
    "tumbling": f"""SELECT symbol, window_start, {_TOTALS}
      FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
      GROUP BY symbol, window_start, window_end""",
}
TIMES = {"sliding": 5}
"""In how many windows each trade is, where that is not one."""
CHECKED = f"symbol <> '{CLOSING}'"
"""The trades that are counted in the end: what is still open may be seen, or not."""
