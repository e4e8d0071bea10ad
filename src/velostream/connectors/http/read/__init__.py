"""Reading resources, streams of events, and what is posted to us."""
