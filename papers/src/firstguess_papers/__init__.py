"""Every initialization-time figure and claim of the three papers, computed anew, with a ledger of what holds.

An *item* is one figure: sizes (data), and a function from a `Run` to an `Outcome` (tables, charts, entries for the
ledger). Items that measure are data throughout (`measured.py`). A paper is a module, or several whose names begin with
its name (`igb.py`, `igb_images.py`, …); nothing has to be registered by hand.

| file | what lives there |
|---|---|
| `items.py` | `Item` with its sizes, `Entry`, `Outcome`, titles that follow verdicts, the decorator `item` |
| `measured.py` | items that are data: cells to measure or train, quantities, checks, charts |
| `running.py` | `Run`: sizes, data, pieces that survive an interruption and that others may compute |
| `judging.py` | numbers with errors, three-valued checks, verdicts |
| `tables.py`, `charts.py` | what items share: numbers of measurements, γ by layer, lines of tables, charts of them |
| `training_pieces.py` | trainings and predictions of them as pieces |
| `nodes.py` | plain networks, node by node |
| `claims.py` | the claims, in our words |
| `bias_mode.py` | the bias of any model in training, predicted from one backward pass; hand-overs between classes |
| `registry.py` | finds the items |
| `records.py`, `execute.py` | runs items, writes what they found |
| `spread.py` | runs several items at once, or spreads the pieces of one, in processes or on Ray |
| `ledger.py`, `opening.py` | records → `docs/claims.md` and a page per paper |
| `library.py` | all that is used of firstguess beyond its public names |

Importing this loads neither torch nor altair; items import what they need inside.
"""
