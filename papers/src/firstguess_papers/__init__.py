"""Every initialization-time figure and claim of the three papers, computed anew, with a ledger of what holds.

An *item* is one figure: a function from a `Run` to an `Outcome` (tables, charts, entries for the ledger). A paper is a
module, or several with its name in front (`igb.py`, `igb_images.py`, …); nothing has to be registered by hand.

| file | what lives there |
|---|---|
| `items.py` | `Item`, `Entry`, `Outcome`, and the decorator `item` |
| `running.py` | `Run`: what an item function gets: quick or full, data, pieces that survive an interruption |
| `studies/store.py` | the store of those pieces |
| `judging.py` | numbers with errors, three-valued checks, verdicts |
| `tables.py`, `sweeps.py` | what items share: numbers of measurements, γ by layer, series of them |
| `nodes.py` | plain networks, node by node |
| `claims.py` | the claims, in our words |
| `bias_mode.py` | the bias of any model in training, predicted from one backward pass; hand-overs between classes |
| `registry.py` | finds the items |
| `records.py`, `execute.py` | runs items, writes what they found |
| `spread.py` | runs several at once, in processes or on Ray |
| `ledger.py` | records → `docs/claims.md` |

Importing this loads neither torch nor altair; items import what they need inside.
"""
