"""One life of a table that follows a topic, to be killed.

Usage: python -m benchmarks.pipelines.life FOLLOWER FOLDER BROKERS TOPIC OLD NEW

Prints the moment at which user OLD is readable, then the one at which user NEW is, and stays.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Event

from benchmarks.pipelines.following import FOLLOWERS

POLL_SECONDS = 0.002


def main() -> None:
    name, folder, brokers, topic, *users = sys.argv[1:7]
    follower = FOLLOWERS[name](Path(folder), brokers, topic)
    for user in users:
        while user != "-" and follower.sent(user) is None:
            time.sleep(POLL_SECONDS)
        print(time.time(), flush=True)
    Event().wait()


main()
