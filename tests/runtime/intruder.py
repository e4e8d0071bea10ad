"""Another user of the machine: sends messages to ports and prints what came back, a connection for each.

Takes JSON from its input, a list of ports and messages (hex), prints the answers in their order, and keeps
the connections open until its input ends.
"""

import json
import os
import socket
import sys
import threading

NOBODY = 65534
SECONDS = 3


def attempt(port: int, message: bytes, answers: list[str], index: int) -> None:
    answer = b""
    connection = socket.socket()
    open_connections.append(connection)
    connection.settimeout(SECONDS)
    try:
        connection.connect(("127.0.0.1", port))
        connection.sendall(message)
        while part := connection.recv(65536):
            answer += part
    except OSError:
        pass
    answers[index] = answer.hex()


open_connections: list[socket.socket] = []
attempts = json.loads(sys.stdin.readline())
results = [""] * len(attempts)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
threads = [
    threading.Thread(target=attempt, args=(port, bytes.fromhex(message), results, index))
    for index, (port, message) in enumerate(attempts)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(results), flush=True)
sys.stdin.read()
