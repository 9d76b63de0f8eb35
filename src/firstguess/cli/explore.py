"""`firstguess explore`: the web explorer."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """Examples:

firstguess explore

firstguess explore --port 8765 --headless
"""


def explore(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where to serve; 0: any port that is free.")
    ] = 0,
    headless: Annotated[bool, typer.Option("--headless", help="Open no browser; only print the address.")] = False,
) -> None:
    """Compose a network in the browser and see at once what it believes.

    Class shares, γ through the layers, phases, gradients, how long the bias lasts and what each change does follow the
    sliders. Served on this machine only (127.0.0.1), behind a token that is part of the printed address. Stop it with
    Ctrl-C.
    """
    import os
    import sys

    from firstguess.explore.server import serve

    def said(address: str) -> None:
        typer.echo(f"firstguess explore: {address}\nCtrl-C stops it.")
        if not headless:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(port or None, said=said)
    except KeyboardInterrupt:
        sys.stderr.write("firstguess explore: stopped\n")
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(0)  # marimo's kernels are threads that wait for ever; there is nothing to keep
