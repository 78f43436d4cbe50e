"""How `threadkeep serve` and `record` listen."""

from __future__ import annotations

import socket

from threadkeep.cli.serving import listening_at


def test_small_writes_wait_for_no_acknowledgement() -> None:
    with listening_at("127.0.0.1", 0) as (listening, _url), socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
