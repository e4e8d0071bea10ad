"""The story of `velo demo`."""
