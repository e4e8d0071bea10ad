"""The binlog's protocol and content: events as Arrow columns."""
