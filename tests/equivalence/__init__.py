"""Relations that change at random, queries over them, and what is right at any moment."""
