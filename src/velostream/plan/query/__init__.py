"""Questions about one query: functions, names, headers."""
