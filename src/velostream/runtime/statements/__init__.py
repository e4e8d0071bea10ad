"""What statements do when they are run."""
