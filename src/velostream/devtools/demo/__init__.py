"""The story that `velo demo` tells."""
