"""The third reading: ensembles of untrained networks, and what they show, with error bars.

`fg.measure` is `run.measure`. Importing this package loads no torch; the engines do, when they run.
"""
