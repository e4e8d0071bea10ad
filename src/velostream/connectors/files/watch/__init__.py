"""Watching files: finds growth, edits, renames and deletions, and turns them into changes of rows."""
