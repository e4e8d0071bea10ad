"""What somebody else on this machine gets from a running process: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PORTS = Path(__file__).with_name("open_ports.py")


def test_other_users_of_the_machine_get_nothing_from_our_ports(tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'own'}",
        PORTS,
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_reach_neither_the_socket_nor_the_files(opened, tmp_path: Path):
    data = opened(tmp_path / "data").directory.root
    for folder in (data.parent, *data.parent.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    script = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for path in sys.argv[2:]:\n"
        "    try:\n"
        "        open(path)\n"
        "        print(path)\n"
        "    except PermissionError:\n"
        "        pass\n"
        "try:\n"
        "    socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
        "    print('connected')\n"
        "except PermissionError:\n"
        "    pass\n"
    )
    files = [data / "catalog.json", data / "lock"]
    assert (data / "socket").exists()
    run = subprocess.run(
        [sys.executable, "-c", script, data / "socket", *files], capture_output=True, text=True, check=True
    )
    assert run.stdout == ""
