"""Every figure and claim of the three papers, computed again, with a ledger of what holds.

An *item* is one figure, and data: sizes, cells to measure or train, quantities, checks, charts; or, where that does not
fit, a function from a `Run` to an `Outcome`. A paper is the modules whose names begin with its name
(`igb.py`, `igb_images.py`, …); nothing has to be registered by hand.

| file | what lives there |
|---|---|
| `items.py`, `measured.py` | `Item` with its sizes, `Entry`, `Outcome`; what an item finds |
| `running.py` | `Run`: sizes, data, pieces that survive an interruption and that others may compute |
| `judging.py` | numbers with errors, three-valued checks, verdicts |
| `charts.py` | numbers of measurements, rows of tables, charts of them |
| `training_pieces.py` | trainings and predictions of them as pieces; how fast |
| `models.py`, `image_models.py` | models in PyTorch |
| `claims.toml` | the claims in our words, findings, checks that were changed |
| `registry.py`, `execute.py` | finds items, and runs them: one by one, several at once, or spread |
| `records.py`, `ledger.py` | what items found; records → `docs/claims.md` and a page per paper |
| `library.py` | all that is used of firstguess beyond its public names |

Importing this loads neither torch nor altair; items import what they need inside.
"""
