"""The command `velo` with the connectors of this folder: python velo.py run app.sql."""

from ledger import LedgerConnector
from outbox import OutboxConnector

import velostream
from velostream.cli.main import main

velostream.register(OutboxConnector)
velostream.register(LedgerConnector)

if __name__ == "__main__":
    main()
