"""The versions: of the package, and of the numbers that it computes."""

__version__ = "0.2.0"

# Part of the address of every cached result (studies, `fg.train(store=…)`). Raise it by one whenever the same call may
# give other numbers than before; never for words, comments or speed. tests/golden/test_numerics.py reminds.
NUMERICS = 6
