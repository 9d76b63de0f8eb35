"""Figures: a result becomes a chart, and a chart a file; nothing is computed here but coordinates.

>>> import firstguess as fg
>>> from firstguess.show import charts as figures
>>> chart = figures.guesses_chart(fg.predict(fg.mlp(depth=1)), fg.predict(fg.mlp(depth=20)))
>>> figures.save(chart, "guesses.gif")
Traceback (most recent call last):
...
firstguess.InvalidInput: Expected a file name that ends in .html, .pdf, .png or .svg, but got 'guesses.gif', at
save(path). Try: guesses.png

`import firstguess.show.charts` loads no altair; the figures do, when they are first asked for.
"""

from firstguess._lazy import listed, resolve


def __getattr__(name: str):
    return resolve(__name__, name)


def __dir__():
    return listed(__name__)
