"""Serving the page: on this machine only, behind a token."""

from __future__ import annotations

import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
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
        hint = "pip install 'firstguess[explore]'"
        raise InvalidInput("marimo, for the explorer", got="none", where="explore", hint=hint) from None
    token = token or secrets.token_urlsafe(16)
    chosen = port or free_port()
    page = marimo.create_asgi_app(quiet=True, token=token).with_app(path="/", root=str(APP)).build()
    config = uvicorn.Config(page, host=HOST, port=chosen, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, chosen))
        except OSError:
            hint = "--port 0: any that is free"
            raise InvalidInput("a free port", got=chosen, where="explore(port)", hint=hint) from None
        listener.listen()  # who is quicker than the server waits, and is not turned away
        said(f"http://{HOST}:{chosen}/?access_token={token}")
        server.run(sockets=[listener])


# The page as files that any web server can hand out: Python runs in the browser (marimo's WebAssembly export).
#
# Closed form only: there is no PyTorch there. The browser fetches Pyodide, NumPy and SciPy from Pyodide's own address.


def export(wheel: Path, out: Path) -> Path:
    """Write the page that installs this wheel of firstguess; the folder holds `index.html`."""
    if not re.fullmatch(r"firstguess-[^-]+-py3-none-any\.whl", wheel.name):
        raise InvalidInput("a wheel of firstguess", got=wheel.name, where="export(wheel)", hint="pip wheel --no-deps .")
    with tempfile.TemporaryDirectory() as folder:
        notebook = Path(folder) / "explorer.py"
        text, count = re.subn(r'wheel = ""', f'wheel = "{wheel.name}"', APP.read_text())
        assert count == 1
        notebook.write_text(text)
        public = notebook.with_name("public")
        public.mkdir()
        shutil.copy(wheel, public)
        command = [sys.executable, "-m", "marimo", "export", "html-wasm", str(notebook), "--output", str(out)]
        command += ["--mode", "run", "--force", "--no-sandbox"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not (out / "index.html").is_file():
            raise InvalidInput("an export by marimo", got=(done.stdout + done.stderr).strip()[-300:], where="explore")
        if not (out / "public" / wheel.name).is_file():  # marimo copies it by itself where it knows the folder
            shutil.copytree(public, out / "public", dirs_exist_ok=True)
    (out / "CLAUDE.md").unlink(missing_ok=True)  # marimo's notes for who edits notebooks
    return out
