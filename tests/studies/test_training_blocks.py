"""Trainings in blocks: the very numbers of one machine, however they are cut, and what cannot be cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import InProcess
from torch import nn

import firstguess as fg
from firstguess.ensemble import member_statistics as sharding
from firstguess.ensemble.training_engine import DescriptionTrainer
from firstguess.studies import study
from firstguess.studies.tasks import packed, unpacked

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LocalPool", InProcess)


def plain(table: Any) -> Any:
    return table.drop_columns(["seconds"])


def trained(p: dict[str, Any], data: Any) -> Any:
    net = f"dense(weight_var=2) > {p['norm']} > relu > dense(weight_var=2)"
    how: dict[str, Any] = {"optimizer": p["optimizer"], "lr": 0.01, "steps": 12, "inits": 41, "width": 57}
    if p["optimizer"] != "gd":
        how["batch"] = 32
    return fg.train(net, data=data, test=data, **how)


def test_trainings_in_blocks_join_to_the_very_numbers_of_one_machine(tmp_path: Path) -> None:
    """Sizes at which groups of another size give other bits: 300 points are looked at in parts."""
    data = fg.data.two_blobs(300, 20)
    grid = fg.grid(norm=["layernorm", "batchnorm", "rmsnorm"], optimizer=["gd", "adam"])
    whole = fg.study("a", grid, trained, data=data, store=tmp_path / "whole").run().table()
    assert whole.num_rows == 6
    for block in (1, 20):
        s = fg.study("a", grid, trained, data=data, store=tmp_path / f"{block}", block=block).run()
        assert plain(s.table()).equals(plain(whole))
        assert list((tmp_path / f"{block}" / "blocks").iterdir()) == []  # there were some, and they have been joined
    one = trained({"norm": "layernorm", "optimizer": "adam"}, data)
    assert whole["loss_by_step"].to_pylist()[1] == one.loss.mean.tolist()


def test_groups_of_another_size_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why blocks are whole groups. If this fails, bits do not depend on groups any more, and blocks may be any."""
    data = fg.data.two_blobs(300, 20)
    found = []
    real = DescriptionTrainer._fitting
    for group in (1, 16):
        with monkeypatch.context() as patch:
            patch.setattr(
                DescriptionTrainer, "_fitting", lambda self, g, t, m, group=group: (group, real(self, g, t, m)[1])
            )
            found.append(trained({"norm": "layernorm", "optimizer": "adam"}, data).loss.draws)
    assert not np.array_equal(*found)
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_a_block_keeps_every_bit_on_disk(tmp_path: Path) -> None:
    arrays = {"loss": np.array([[np.nan, 1 / 3], [np.inf, -0.0]]), "shares": np.random.default_rng(0).random((2, 2, 3))}
    back = unpacked(packed(sharding.TrainedBlock(16, arrays), 100, 16))
    assert isinstance(back, sharding.TrainedBlock)
    assert (back.start, back.inits) == (16, 2)
    for name, values in arrays.items():
        assert back.arrays[name].tobytes() == values.tobytes()


def test_modules_one_by_one_are_cut_and_others_are_not(tmp_path: Path) -> None:
    data = fg.data.two_blobs(40, 6)
    counted: list[int] = []

    def function(p: dict[str, Any], data: Any) -> Any:
        counted.append(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        how = {} if p["strategy"] is None else {"strategy": p["strategy"]}
        return fg.train(model, data=data, inits=5, steps=4, lr=0.01, start=p["start"], **how)

    def ran(**p: Any) -> tuple[int, Any]:
        tables = []
        for block in (None, 2):
            counted.clear()
            s = fg.study("a", [p], function, data=data, store=tmp_path / f"{p} {block}", block=block).run()
            assert s.failures().to_pylist() == []
            tables.append(plain(s.table()))
        return len(counted), tables

    calls, (whole, cut) = ran(strategy="loop", start="any")
    assert calls == 3 + 1  # blocks of 2, 2 and 1, and the join
    assert cut.equals(whole)
    assert ran(strategy=None, start="any")[0] == 1  # the clock may choose vmap, which rounds otherwise
    calls, (whole, cut) = ran(strategy="loop", start="even")
    assert calls == 1  # which members are kept is known only when all have been drawn
    assert cut.equals(whole)


def test_members_that_diverge_in_a_block_are_counted_where_they_are(tmp_path: Path) -> None:
    data = fg.data.two_blobs(60, 6)

    def function(p: dict[str, Any], data: Any) -> Any:
        return fg.train("dense(weight_var=2) > relu > dense", data=data, inits=40, width=20, optimizer="gd", lr=1e18,
                        steps=6, loss="squared")  # fmt: skip

    tables = [
        plain(fg.study("a", [{"k": 1}], function, data=data, store=tmp_path / str(b), block=b).run().table())
        for b in (None, 16)
    ]
    assert tables[0]["diverged"].to_pylist()[0] > 0
    assert str(tables[0].to_pylist()) == str(tables[1].to_pylist())  # NaN is nan


def test_blocks_of_other_groups_are_refused() -> None:
    known = [sharding.TrainedBlock(start, {"loss": np.zeros((size, 2))}) for start, size in ((0, 8), (8, 8))]
    with sharding.joined(known, 16), pytest.raises(fg.FirstguessError, match="groups of another size"):
        sharding.share(32, 16)
