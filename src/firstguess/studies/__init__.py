"""Sweeps: many configurations, each a task whose result is kept; on this machine or on Ray, resumed after anything.

| file | what it knows |
|---|---|
| `store.py` | pieces of work as small Parquet files, there whole or not at all |
| `results.py` | results by their address, one a file or several small ones; failures; blocks of members |
| `identity.py`, `owned.py` | what a result depends on: values, data, a function with all that it refers to |
| `configurations.py` | `fg.grid`, and what else a study can be made of |
| `rows.py` | a result as one flat row; rows as one table |
| `tasks.py` | one task, as a worker does it: limits, blocks of members, what went wrong in words |
| `local_pool.py`, `worker.py` | processes of this machine, one thread each |
| `ray_pool.py` | the same on Ray |
| `driving.py` | which tasks are missing, in what order they run, what is kept of them |
| `kept.py` | a study's files in a store: what it is made of, its table, its failures |
| `sweeping.py` | `fg.study`: the `Study` |
| `pages.py` | a study as one HTML file |
| `plans.py` | a study written as TOML |
"""
