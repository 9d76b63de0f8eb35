"""The `firstguess` command: one file a subcommand."""

from firstguess.cli.app import main

__all__ = ["main"]
