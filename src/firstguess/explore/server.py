"""Serving the page: on this machine only, behind a token."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from firstguess.base.errors import InvalidInput

HOST = "127.0.0.1"
APP = Path(__file__).with_name("app.py")


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def serve(port: int | None = None, *, said: Callable[[str], None], token: str | None = None) -> None:
    """Serve until interrupted; `said` is given the address, token included, once it answers."""
    try:
        import marimo
        import uvicorn
    except ImportError:
        raise InvalidInput(
            "marimo, for the explorer", got="none", where="explore", hint="pip install 'firstguess[explore]'"
        ) from None
    token = token or secrets.token_urlsafe(16)
    chosen = port or free_port()
    page = marimo.create_asgi_app(quiet=True, token=token).with_app(path="/", root=str(APP)).build()
    server = uvicorn.Server(
        uvicorn.Config(page, host=HOST, port=chosen, log_level="critical", timeout_graceful_shutdown=1)
    )
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, chosen))
        except OSError:
            raise InvalidInput(
                "a free port", got=chosen, where="explore(port)", hint="--port 0: any that is free"
            ) from None
        listener.listen()  # who is quicker than the server waits, and is not turned away
        said(f"http://{HOST}:{chosen}/?access_token={token}")
        server.run(sockets=[listener])
