"""Analysis of one query: functions, names, headers, statelessness."""
