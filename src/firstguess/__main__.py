"""`python -m firstguess`."""

from firstguess.cli.app import main

main()
