"""Event time: watermarks, windows, late rows."""
