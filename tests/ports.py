"""Ports for servers that tests start as programs."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

PORTS = 20_000, 32_000  # below those that the kernel gives to connections, and to servers that ask for any port


def free_ports(count: int) -> list[int]:
    """Different ports that nothing listens on, and that nobody else gets before a server starts or while it is away."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(*PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found += [port] if port not in found else []
    return found
