"""Sweeps: many configurations, each a task whose result is kept; on this machine or on Ray, resumed after anything.

| file | what it knows |
|---|---|
| `study.py` | `fg.study` and `fg.grid`: what a study is made of, and the `Study` |
| `store.py` | results by their address as small Parquet files, there whole or not at all; rows as one table |
| `study_files.py` | a study's files in a store: what it is made of, its table, its failures |
| `identity.py` | what a result depends on: values, data, a function with all that it refers to |
| `tasks.py` | one task, as a worker does it: limits, blocks of members, what went wrong in words |
| `scheduler.py` | which tasks are missing, in what order they run, what is kept of them |
| `pools.py` | who does them: processes of this machine, or Ray |
| `pages.py` | a study as one HTML file |
| `plans.py` | a study written as TOML |
| `zoo.py` | published architectures made small |
"""
