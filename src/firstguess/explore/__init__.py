"""The web explorer: compose a network, see at once what it believes. One module a part; `app.py` is the marimo page."""
