"""`python -m velostream` is `velo`."""

from __future__ import annotations

from velostream.cli.main import main

if __name__ == "__main__":
    main()
