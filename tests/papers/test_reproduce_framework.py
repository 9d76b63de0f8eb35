"""The frame of `reproduce`: items, pieces that survive an interruption, verdicts, records, the ledger."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firstguess_papers import claims, judging, ledger, records, registry
from firstguess_papers.execute import run_item
from firstguess_papers.items import Entry, Item, Outcome
from firstguess_papers.judging import (
    UNDECIDED,
    UNKNOWN,
    Check,
    Number,
    above,
    below,
    check,
    claimed,
    each,
    same,
    verdict,
)
from firstguess_papers.running import Missing, Run

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.base.files import address
from firstguess.studies.store import Store

EXPECTED = {f"I{i}" for i in range(1, 17)} | {f"N{i}" for i in range(1, 12)} | {f"M{i}" for i in range(1, 10)}


def make(function: Any, **options: Any) -> Item:
    given: dict[str, Any] = {"where": "§0", "claims": ("I4",), "seconds": (1, 2), "about": "{coins} coins."}
    given |= {"quick": {"coins": 2}, "full": {"coins": 9}}
    return Item("beyond/toy", "A toy", function=function, **(given | options))


def done(run: Run) -> Outcome:
    return Outcome([Entry("I4", "s", "1 ± 0", "holds")])


# -- The registry


def test_every_claim_of_a_finished_paper_has_an_item() -> None:
    answered = {claim for one in registry.items().values() for claim in one.claims}
    assert EXPECTED - answered == set()
    assert answered <= set(claims.CLAIMS)


def test_claims_are_complete() -> None:
    numbers = {letter: sorted(int(c[1:]) for c in claims.CLAIMS if c[0] == letter) for letter in "INM"}
    assert numbers == {"I": list(range(1, 28)), "N": list(range(1, 22)), "M": list(range(1, 16))}


def test_items_say_what_they_do() -> None:
    for one in registry.items().values():
        assert one.quick
        assert one.full
        assert one.title
        assert 0 < one.seconds[0] <= one.seconds[1], one.id


def test_quick_numbers_of_all_items_are_stored() -> None:
    kept = json.loads((Path(__file__).parents[1] / "golden/papers_quick.json").read_text(encoding="utf-8"))
    assert set(registry.items()) == set(kept)


def test_all_quick_items_take_at_most_twenty_minutes() -> None:
    assert sum(one.seconds[0] for one in registry.items().values()) <= 1200


def test_choosing_by_id_paper_and_all() -> None:
    known = list(registry.items())
    assert [x.id for x in registry.choose(["all"])] == known
    assert [x.id for x in registry.choose(["igb"])] == [k for k in known if k.startswith("igb/")]
    assert [x.id for x in registry.choose(["igb/fig5", "igb/fig5"])] == ["igb/fig5"]
    with pytest.raises(InvalidInput, match="igb/fig5"):
        registry.choose(["igb/fig55"])
    with pytest.raises(InvalidInput, match="igb/maxpool"):
        registry.choose(["maxpol"])
    with pytest.raises(InvalidInput, match="--list"):
        registry.choose(["qqqqqq"])


def test_bad_items_are_refused() -> None:
    with pytest.raises(InvalidInput, match="igb/fig5"):
        Item("fig5", "t", "", claims=("I1",), about="", quick={}, full={}, seconds=(1, 1))
    with pytest.raises(InvalidInput, match="about= with the sizes coins"):
        make(done, about="some coins")  # a size that the sentence does not say
    with pytest.raises(InvalidInput, match="about= with the sizes coins"):
        make(done, about="{coins} coins, {tables} tables")
    with pytest.raises(InvalidInput, match="verdict"):
        Entry("I1", "s", "m", "maybe")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="why"):
        Entry("I1", "s", "m", "does not hold")


# -- Pieces


def test_pieces_come_back_as_they_were(tmp_path: Path) -> None:
    store = Store(tmp_path)
    values = {
        "matrix": np.arange(6.0).reshape(2, 3) / 7,
        "counts": np.array([1, 2, 3]),
        "flag": True,
        "name": "σw² = 2",
        "names": np.array(["a", "b"]),
        "special": np.array([math.inf, -math.inf, math.nan]),
        "none": np.zeros((0, 4)),
        "one": 0.1,
    }
    store.write("k", values, 2.5)
    back = store.read("k")
    assert back is not None
    piece, seconds = back
    assert seconds == 2.5
    for name, value in values.items():
        np.testing.assert_array_equal(np.asarray(piece[name]), np.asarray(value))
        assert np.asarray(piece[name]).shape == np.asarray(value).shape
    assert store.read("another") is None
    with pytest.raises(TypeError, match="numbers and texts"):
        store.write("k", {"x": object()}, 0.0)


def test_a_broken_piece_is_computed_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("k", {"x": 1.0}, 0.0)
    (tmp_path / "k.parquet").write_bytes(b"half a file")
    assert store.read("k") is None


def test_addresses_depend_on_everything() -> None:
    seen = {address("a", 1, {"n": 1}), address("a", 2, {"n": 1}), address("b", 1, {"n": 1}), address("a", 1, {"n": 2})}
    assert len(seen) == 4


def counting(stop_at: int | None, calls: list[int]) -> Any:
    """An item of five random pieces, which is interrupted in one of them."""

    def function(run: Run) -> Outcome:
        values: list[float] = []
        for k in range(5):

            def compute(k: int = k) -> dict[str, Any]:
                calls.append(k)
                if k == stop_at:
                    raise KeyboardInterrupt
                return {"x": np.random.default_rng([run.seed, k]).standard_normal(3)}

            values += run.piece({"k": k}, compute)["x"].tolist()
        text = " ".join(repr(v) for v in values)
        return Outcome([Entry("I4", "s", text, "holds")], {"values": {"x": values}})

    return function


def test_an_interrupted_item_goes_on_where_it_stopped(tmp_path: Path) -> None:
    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        run_item(make(counting(3, calls)), tmp_path / "one", quick=True)
    assert calls == [0, 1, 2, 3]
    calls.clear()
    resumed = run_item(make(counting(None, calls)), tmp_path / "one", quick=True)
    assert calls == [3, 4]  # nothing was computed twice
    whole = run_item(make(counting(None, [])), tmp_path / "two", quick=True)
    assert resumed.entries == whole.entries
    for name in ("one", "two"):
        assert (tmp_path / name / "quick/beyond/toy/values.parquet").exists()
    one, two = ((tmp_path / n / "quick/beyond/toy/values.parquet").read_bytes() for n in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("change", ["version", "seed", "quick", "sizes", "fresh"])
def test_other_sizes_do_not_reuse_pieces(tmp_path: Path, change: str) -> None:
    calls: list[int] = []
    run_item(make(counting(None, calls)), tmp_path, quick=True)
    calls.clear()
    changes: dict[str, Any] = {"version": {"version": 2}, "sizes": {"quick": {"coins": 3}}}
    options = changes.get(change, {})
    seed, fresh, quick = int(change == "seed"), change == "fresh", change != "quick"
    run_item(make(counting(None, calls), **options), tmp_path, quick=quick, seed=seed, fresh=fresh)
    assert calls == [0, 1, 2, 3, 4]


def test_words_are_no_key(tmp_path: Path) -> None:
    """Hours were lost to a reworded sentence; a changed number went unnoticed where the sentence stayed."""
    calls: list[int] = []
    record = run_item(make(counting(None, calls)), tmp_path, quick=True)
    calls.clear()
    reworded = make(counting(None, calls), about="So many coins: {coins}")
    assert record.current(reworded)
    assert run_item(reworded, tmp_path, quick=True).settings == "So many coins: 2"
    assert calls == []
    assert not record.current(make(done, quick={"coins": 3}))
    assert not record.current(make(done, version=2))


def test_a_measurement_stays_where_other_sizes_change(tmp_path: Path) -> None:
    import firstguess as fg

    def function(run: Run) -> Outcome:
        m = run.measure("dense > relu > dense", fg.data.blob(30, 5), inits=run.sizes[0]["coins"], width=10)
        return Outcome([Entry("I4", "s", f"{m.inits} {len(run.reused)}", "holds")])

    sizes = {"about": "{coins} {tables}", "quick": {"coins": 20, "tables": 1}, "full": {"coins": 20, "tables": 1}}
    assert run_item(make(function, **sizes), tmp_path, quick=True).entries[0].measured == "20 0"
    sizes["quick"] = {"coins": 20, "tables": 2}
    assert run_item(make(function, **sizes), tmp_path, quick=True).entries[0].measured == "20 1"


def test_sizes_can_be_changed_for_one_run(tmp_path: Path) -> None:
    toy = make(lambda run: Outcome([Entry("I4", "s", str(run.sizes[0]["coins"]), "holds")]))
    usual = run_item(toy, tmp_path, quick=True)
    other = run_item(toy, tmp_path, quick=True, changed={"coins": 5})
    assert (usual.entries[0].measured, other.entries[0].measured, other.settings) == ("2", "5", "5 coins.")
    assert usual.current(toy)
    assert not other.current(toy)
    assert records.read_all(tmp_path, True, ["beyond/toy"]) == [usual]  # in a folder of its own
    with pytest.raises(InvalidInput, match="Try: coins"):
        run_item(toy, tmp_path, quick=True, changed={"coin": 5})
    with pytest.raises(InvalidInput, match="coins like 2"):
        run_item(toy, tmp_path, quick=True, changed={"coins": (5, 6)})


@pytest.mark.parametrize(
    ("id", "changed", "match"),
    [("igb/layers", {"inits": "abc"}, "inits like 60, but got abc"), ("igb/layers", {"inits": -5}, "but got -5"),
     ("igb/fig5", {"n": 100.5}, "n like 100 and 800"), ("mf/fig2", {"inits": 5}, "inits like 30: 400"),
     ("igb/fig13", {"models": ("ResNet10", "x")}, "models of igb/fig13: ResNet10; .*but got x")],
)  # fmt: skip
def test_a_size_of_another_kind_is_refused_before_anything_runs(id: str, changed: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        registry.items()[id].sizes(True, changed)


def test_one_size_will_do_where_there_are_several() -> None:
    assert registry.items()["igb/layers"].sizes(True, {"widths": 400})[0]["widths"] == (400,)


def test_all_records_are_of_the_items_as_they_are() -> None:
    kept = records.kept(Path(__file__).parents[2] / "docs/claims/records")
    known = registry.items()
    assert sorted(record.id for record in kept) == sorted(known)
    assert [record.id for record in kept if not record.current(known[record.id])] == []
    assert [record.id for record in kept if record.quick or record.status != "done"] == []


def test_measurements_are_kept_and_interruptions_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import firstguess as fg
    from firstguess.ensemble.engine import DescriptionEngine

    def function(run: Run) -> Outcome:
        m = run.measure("dense > relu > dense", fg.data.blob(30, 5), inits=200, width=10)
        return Outcome([Entry("I4", "s", f"{m.guesses.std()!r} {m.gamma.tolist()} {m.inits}", "holds")])

    original, ran = DescriptionEngine.run, []

    def interrupted(self: Any, start: int, stop: int) -> Any:
        if ran:
            raise KeyboardInterrupt
        ran.append(start)
        return original(self, start, min(stop, start + 7))

    monkeypatch.setattr(DescriptionEngine, "batch_hint", property(lambda self: 7))
    monkeypatch.setattr(DescriptionEngine, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_item(make(function), tmp_path, quick=True)
    monkeypatch.undo()
    first = run_item(make(function), tmp_path, quick=True)
    assert first.entries[0].measured.endswith(" 200")
    monkeypatch.setattr(DescriptionEngine, "run", interrupted)  # a second run needs no engine
    assert run_item(make(function), tmp_path, quick=True).entries == first.entries


# -- What is missing, what fails


def test_absent_data_skip_the_item_and_say_how_to_get_them(tmp_path: Path) -> None:
    def function(run: Run) -> Outcome:
        run.data("mnist:even-odd")
        raise AssertionError

    record = run_item(make(function, needs=("mnist",)), tmp_path, data_dir=tmp_path / "nowhere")
    assert record.status == "skipped"
    assert "train-images-idx3-ubyte" in record.reason
    assert run_item(make(function), tmp_path, data_dir=tmp_path / "nowhere").status == "failed"


def test_absent_packages_skip_the_item(tmp_path: Path) -> None:
    record = run_item(make(done, packages=("no_such_package_at_all",)), tmp_path)
    assert record.status == "skipped"
    assert "pip install no_such_package_at_all" in record.reason


def test_faults_are_recorded_and_not_raised(tmp_path: Path) -> None:
    def function(run: Run) -> Outcome:
        raise ZeroDivisionError("so it goes")

    record = run_item(make(function), tmp_path)
    assert record.status == "failed"
    assert "ZeroDivisionError: so it goes" in record.reason
    assert "Traceback" in (tmp_path / "full/beyond/toy/error.txt").read_text(encoding="utf-8")
    assert run_item(make(lambda run: Outcome([])), tmp_path).status == "failed"  # no entry for its claim
    with pytest.raises(Missing):
        raise Missing("x")


# -- Verdicts


def test_checks_know_when_they_do_not_know() -> None:
    assert above(Number(1.0, 0.1), 0.5) is True
    assert above(Number(1.0, 0.1), 0.7) is None
    assert above(Number(1.0, 0.1), np.float64(0.5)) is True  # NumPy's True would be no True
    assert above(Number(1.0), np.float64(0.5)) is True
    assert below(Number(1.0, 0.1), 0.5) is False
    assert above(Number(1.0), 1.0) is False
    assert above(Number(math.nan, 0.1), 0.0) is None
    assert same(Number(1.0, 0.01), Number(1.01, 0.01), room=0.05) is True
    assert same(Number(1.2, 0.01), 1.0, room=0.05) is False
    assert same(Number(1.0, 0.1), 1.0, room=0.05) is None


def test_an_entry_is_made_of_its_checks() -> None:
    fine = check("ReLU, 5 layers", Number(0.5, 0.01), above=0.1)
    off = check(
        "GELU, 5 layers", [Number(0.5, 0.01), Number(0.9, 0.01)], near=Number(0.5, 0.01), room=0.1, than="one's"
    )
    vague = check("tanh", Number(0.0, 1.0), below=0.1)
    assert [fine.truth, off.truth, vague.truth] == [True, False, None]
    found = claimed("I1", "γ", [fine], within=[off, vague], limit="not all")
    assert (found.verdict, found.why) == ("holds with a limit", "not all: GELU, 5 layers")
    assert found.statement == (
        "γ: ReLU, 5 layers above 0.1; without a limit GELU, 5 layers within 0.1 of one's; tanh below 0.1"
    )
    assert found.measured == (
        "ReLU, 5 layers: 0.500 ± 0.010; GELU, 5 layers: 0.500 ± 0.010, 0.900 ± 0.010 against 0.500 ± 0.010; "
        "tanh: 0.0 ± 1.0"
    )
    assert claimed("I1", "γ", [fine, off]).verdict == "does not hold"
    assert claimed("I1", "γ", [fine, vague]).verdict == "not tested"


def test_verdicts_follow_from_checks() -> None:
    assert verdict([True], within=[None]) == "holds with a limit"
    fine, off, open_ = (Check("a", "above 0", truth, "1") for truth in (True, False, None))
    assert claimed("I1", "s", [fine], within=[open_], limit="here").why == f"{UNDECIDED}: a"
    assert claimed("I1", "s", [open_, fine]).why == f"{judging.NOISY}: a"
    assert verdict([np.bool_(True)], within=[np.bool_(False)]) == "holds with a limit"  # type: ignore[list-item]
    assert verdict([np.bool_(False)]) == "does not hold"  # type: ignore[list-item]
    assert verdict([None, True]) == "not tested"
    assert claimed("I1", "s", [fine], within=[off], limit="here").why == "here: a"
    assert claimed("I1", "s", [off], otherwise="there").why == "there: a"
    assert claimed("I1", "s", [Check("b", "above 0", np.bool_(False), "1")]).why == "not so: b"  # type: ignore[arg-type]
    assert claimed("I1", "s", [fine], limit="here").why == ""
    assert claimed("I1", "s", [fine], headline="γ = 2 ± 1").headline == "γ = 2 ± 1"


def test_a_right_claim_is_rarely_called_wrong() -> None:
    """4 standard errors: 6.3e-5 two-sided; of 20 000 checks 1.3 expected, over 12 with probability 1e-9."""
    z = np.random.default_rng(5).standard_normal(20_000)
    assert sum(same(Number(float(v), 1.0), 0.0, room=0.0) is False for v in z) <= 12
    assert judging.SIGMAS == 4.0


# -- Records and the ledger


def test_records_round_trip_and_the_page_lists_every_claim(tmp_path: Path) -> None:
    def function(run: Run) -> Outcome:
        from firstguess.show.charts import lines_chart
        from firstguess.show.charts.lines import Series

        chart = lines_chart([Series("a", [1, 2], [1, 2])], title="t", x_title="x", y_title="y")
        entries = [
            Entry("I4", "a | b", "1 ± 0.1", "holds"),
            Entry("I4", "again", "2", "holds with a limit", "only here"),
        ]
        return Outcome(entries, {"t": {"x": [1, 2]}}, {"chart": chart}, ["our size"])

    toy = make(function)
    record = run_item(toy, tmp_path)
    assert record.status == "done", record.reason
    found = records.read_all(tmp_path, False, ["beyond/toy", "igb/fig5"])
    assert found == [record]
    path = records.write_ledger(tmp_path, found, False)
    lines = json.loads(path.read_text(encoding="utf-8"))
    assert [line["verdict"] for line in lines] == ["holds", "holds with a limit"]
    assert path.with_suffix(".parquet").exists()
    page = tmp_path / "docs" / "claims.md"
    ledger.write(page, found, out=tmp_path, figures=tmp_path / "docs" / "claims", items={"beyond/toy": toy})
    text = "\n".join(
        one.read_text(encoding="utf-8") for one in (page, *sorted((tmp_path / "docs/claims").glob("*.md")))
    )
    for claim in claims.CLAIMS:
        assert f"\n| {claim} | " in text
    assert "| I4 | " in text
    assert "**✓ holds; ◐ holds with a limit**" in text
    assert "*Tested:* a | b." in text  # in a list a bar ends no cell
    assert "only here" in text
    assert "\n- our size" in text
    assert "](beyond_toy_chart.png)" in text
    assert (page.parent / "claims" / "beyond_toy_chart.png").stat().st_size > 1000
    assert text.count("| **open** | – | – |") == len(claims.CLAIMS) - 1


def test_the_page_of_nothing_says_so() -> None:
    assert "No item ran yet" in ledger.pages([])["claims.md"]


def test_a_strange_record_is_an_error(tmp_path: Path) -> None:
    folder = records.folder_of(tmp_path, True, "beyond/toy")
    folder.mkdir(parents=True)
    (folder / records.RECORD).write_text("{}", encoding="utf-8")
    with pytest.raises(Exception, match="remove"):
        records.read_all(tmp_path, True, ["beyond/toy"])


def test_missing_data_say_which_file_goes_where(tmp_path: Path) -> None:
    record = run_item(registry.items()["igb/fig1"], tmp_path / "out", quick=True, data_dir=tmp_path / "data")
    assert record.status == "skipped"
    assert str(tmp_path / "data" / "cifar10") in record.reason
    assert "put Hugging Face's test-00000-of-00001.parquet there" in record.reason


def test_an_unknown_item_gets_the_nearest_names() -> None:
    with pytest.raises(InvalidInput, match=r"Try: .*norm/fig-g10"):
        registry.choose(["norm/figg10"])


def test_items_that_are_data_know_the_file_they_are_written_in() -> None:
    """Which commit fixed an item's checks is asked of that file, not of the machinery."""
    assert Path(inspect.getsourcefile(registry.items()["igb/fig5"].charts) or "").name == "igb.py"


def test_of_many_numbers_the_worst_is_said_and_those_that_fail_are_named() -> None:
    numbers = [Number(k / 10, 1e-4) for k in range(8)]
    labels = [f"depth {k}" for k in range(8)]
    one = check("γ", numbers, near=0.0, room=0.55, at=labels)
    assert (one.truth, one.found, one.fails) == (False, "at worst 0.70000 ± 0.00010 (depth 7)", "depth 6, depth 7")
    grows = check("γ", numbers[:2], above=[0.05, 0.05], than="before", at=labels[:2])
    assert grows.found == "0.00000 ± 0.00010 against 0.05 (depth 0), 0.10000 ± 0.00010 against 0.05 (depth 1)"
    low = check("γ", numbers, above=0.05, at=labels)
    assert (low.found, low.fails) == ("at worst 0.00000 ± 0.00010 (depth 0)", "depth 0")
    found = claimed("I4", "all of them", [one, check("γ", numbers[0], below=1.0)])
    assert found.why == "not so: γ (depth 6, depth 7)"


def test_an_exact_number_needs_no_error() -> None:
    assert check("line", 1.2, above=1.0).found == "1.2"
    assert check("line", 1.2, near=1.0, room=0.1).truth is False


def test_a_claim_over_several_sets_of_sizes_names_the_set_that_fails(tmp_path: Path) -> None:
    toy = Item(
        "beyond/toy-claim", "A toy", "§4", about="{width} wide", quick=dict(width=2), full=dict(width=2),
        seconds=(1, 1), quantities=lambda c: {"g": Number(c.width / 10, 1e-4)},
        claims=["I4"],
        judge=lambda c: [
            claimed("I4", f"γ at {c.width}", c.over(lambda c: [check("ReLU", c.g, above=0.25)]), otherwise="too narrow")
        ],
    )  # fmt: skip
    run = Run(toy, quick=True, store=Store(tmp_path))
    (alone,) = toy.outcome(run).entries
    assert (alone.statement, alone.why) == ("γ at 2: ReLU above 0.25", "too narrow: ReLU")
    two = replace(toy, quick=(dict(width=2), dict(width=3)))
    (both,) = two.outcome(Run(two, quick=True, store=Store(tmp_path))).entries
    assert (both.why, both.verdict) == ("too narrow: ReLU, width 2", "does not hold")
    assert "ReLU, width 3: 0.30000 ± 0.00010" in both.measured


def test_many_checks_are_counted_and_a_number_that_decides_nothing_is_said() -> None:
    """13 names would be a statement that nobody reads; an accuracy that nobody has learnt is shown, not judged."""
    numbers = {f"network {k}": Number(1.0, 0.01) for k in range(13)}
    found = claimed("I4", "γ", each(numbers, above=0.5))
    assert found.statement == "γ: each of 13 above 0.5"
    assert found.verdict == "holds"
    idle = claimed("I4", "accuracy", [check("held out", Number(0.1, 0.01), above=0.5, decided=False)], undecided="idle")
    assert (idle.verdict, idle.measured, idle.why) == ("not tested", "held out: 0.100 ± 0.010", "idle")
    assert claimed("I4", "steps", each({"Adam": UNKNOWN}, above=1.0)).measured == "Adam: unknown"


def test_a_quantity_that_would_be_hidden_is_refused(tmp_path: Path) -> None:
    toy = Item(
        "beyond/toy-hidden", "A toy", "§4", about="{width} wide", quick=dict(width=2), full=dict(width=2),
        seconds=(1, 1), quantities=lambda _: {"known": 1},
    )  # fmt: skip
    with pytest.raises(InvalidInput, match="other names for quantities, but got known"):
        toy.outcome(Run(toy, quick=True, store=Store(tmp_path)))


def times(x: Any, factor: float) -> dict[str, Any]:
    """A piece for `Run.keep`."""
    return {"x": factor * np.asarray(getattr(x, "classes", None) or getattr(x, "x", x)).sum()}


def test_what_is_kept_has_all_that_it_is_given_in_its_key(tmp_path: Path) -> None:
    data = [fg.data.as_data(np.array([[value, 1.0]])) for value in (1.0, 2.0)]
    run = Run(make(done), quick=True, store=Store(tmp_path))
    nets = [fg.Network.parse("dense > relu > dense", classes=n) for n in (2, 5)]
    given = (*data, np.ones(3), *nets)
    found = [float(run.keep(times, label="t", x=x, factor=k)["x"]) for x in given for k in (1.0, 2.0)]
    # no two share a piece, though the data are called alike and the networks' texts are the same
    assert found == [2.0, 4.0, 3.0, 6.0, 3.0, 6.0, 2.0, 4.0, 5.0, 10.0]
    assert len(run.computed) == 10
    assert run.keep(times, label="again", x=data[1], factor=2.0)["x"] == 6.0
    assert run.reused == ["again"]
    for function, given in ((times, {"x": print}), (lambda x: x, {"x": 1.0})):
        with pytest.raises(InvalidInput, match="a function at the top level, given data"):
            run.keep(function, label="t", **given)


# -- Sampling continues where a verdict is open


def _sampled(mean: float, **asked: Any) -> Item:
    """Asks whether 0.5 ± 1 / √networks is above 0; parts of 25 networks."""

    def function(run: Run) -> Outcome:
        networks = 25 * run.sizes[0]["parts"]
        for part in range(run.sizes[0]["parts"]):
            run.piece({"part": part}, lambda: {"x": 1.0}, complete=True, label=f"part {part}")
        found = Number(mean, 1 / math.sqrt(networks))
        return Outcome([claimed("I4", "coins", [check("heads", found, above=0.0, **asked)])], notes=[*run.computed])

    sizes = {"inits": 25, "parts": 1}
    return make(function, about="{networks} coins", quick=sizes, full=sizes)


def test_sampling_can_go_on_wherever_the_ledger_is_open() -> None:
    known = registry.items()
    found = [r.id for r in records.kept(Path(__file__).parents[2] / "docs/claims/records")
             if any(entry.why.startswith(judging.NOISY) for entry in r.entries)]  # fmt: skip
    assert found
    for id in found:
        once, twice = (known[id].sizes(False, times=times)[0]["parts"] for times in (1, 2))
        assert twice == 2 * once, id


def test_sampling_goes_on_until_it_is_decided(tmp_path: Path) -> None:
    open_item = _sampled(0.5)
    once = run_item(open_item, tmp_path, quick=True)
    assert (once.entries[0].verdict, once.look) == ("not tested", 0)
    more = run_item(open_item, tmp_path, quick=True, until_decided=True)
    assert (more.entries[0].verdict, more.look, more.settings) == ("holds", 2, "100 coins")  # 0.5 / 0.1 > 4.25
    assert more.notes == ("part 2", "part 3")  # the others were there
    assert more.current(open_item)
    assert records.read(tmp_path, True, open_item.id) == more


def test_further_looks_share_the_chance_to_err(tmp_path: Path) -> None:
    """4.1 standard errors at the last look: enough for one look, not for one of three."""
    z = 4.1 / math.sqrt(8 * 25)
    found = run_item(_sampled(z), tmp_path, quick=True, until_decided=True)
    assert (found.entries[0].verdict, found.look) == ("not tested", 3)
    assert above(Number(4.1, 1.0), 0.0) is True
    with judging.later_looks(3) as sigmas:
        assert math.isclose(3 * math.erfc(sigmas / math.sqrt(2)), math.erfc(4 / math.sqrt(2)), rel_tol=1e-9)


def test_the_least_difference_worth_deciding_ends_it(tmp_path: Path) -> None:
    found = run_item(_sampled(0.01, least=0.25), tmp_path, quick=True, until_decided=True)
    assert (found.entries[0].verdict, found.look) == ("does not hold", 2)  # 0.01 + 2 · 0.1 < 0.25
    assert "less than 0.25 is no difference" in found.entries[0].statement
    with pytest.raises(InvalidInput, match="parts"):
        make(done).sizes(True, times=2)
