"""What happens to watched files: growth, edits, renames."""
