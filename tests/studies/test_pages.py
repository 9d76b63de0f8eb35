"""A study's chart, its page and its command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from in_process import InProcess
from typer.testing import CliRunner

import firstguess as fg
from firstguess.cli.app import app
from firstguess.studies import study as sweeping
from firstguess.studies.plans import planned


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "LocalPool", InProcess)


def function(p: dict[str, Any]) -> Any:
    if p["depth"] == 7:
        raise ValueError("<b>seven</b>")
    return fg.predict(fg.mlp(**p))


@pytest.fixture
def study(tmp_path: Path) -> fg.Study:
    grid = fg.grid(depth=[1, 5, 7, 20], norm=[None, "layernorm"], placement=["before", "after"])
    return fg.study("norms", grid, function, store=tmp_path / "runs").run()


def test_a_chart_has_every_row_once(study: fg.Study) -> None:
    spec = study.plot(x="depth", y="gamma", color="norm").to_dict()
    drawn = [row for rows in spec["datasets"].values() for row in rows if "y" in row and "x" in row]
    table = study.table()
    for row in table.to_pylist():
        assert any(point["x"] == row["depth"] and point["y"] == row["gamma"] for point in drawn)
    text = json.dumps(spec, ensure_ascii=False)
    assert "placement before" in text  # a setting that is neither axis nor colour has panels
    words = " ".join(spec["title"]["text"])
    top = max(table["gamma"].to_pylist())  # no norm, and LayerNorm before the activation: the same γ
    alike = sum(abs(value / top - 1) < 1e-9 for value in table["gamma"].to_pylist())
    assert alike > 1
    assert f"highest {top:.3g} ({alike} configurations)" in words


def test_a_chart_of_words_has_rows(study: fg.Study) -> None:
    spec = study.plot(x="norm", y="expected_max", color="depth").to_dict()
    assert "layernorm" in json.dumps(spec)
    for bad in (
        {"x": "dept", "y": "gamma"},
        {"x": "depth", "y": "network"},
        {"x": "depth", "y": "gamma", "color": "c"},
    ):
        with pytest.raises(fg.InvalidInput, match="a column"):
            study.plot(**bad)


def test_the_page_is_complete(study: fg.Study, tmp_path: Path) -> None:
    text = study.save(tmp_path / "study.html").read_text("utf-8")
    assert "12 with a result, 4 failed" in text
    assert "&lt;b&gt;seven&lt;/b&gt;" in text
    assert "<b>seven" not in text
    assert "return fg.predict(fg.mlp(**p))" in text  # provenance: the function as it was written
    assert fg.__version__ in text
    assert text.count("<tr>") >= 12
    with pytest.raises(fg.InvalidInput, match="ends in"):
        study.save(tmp_path / "study.txt")


def test_the_page_sorts_and_filters(study: fg.Study, tmp_path: Path, browser: Any) -> None:
    file = study.save(tmp_path / "study.html")
    seen = browser.open(file)
    page = browser.page
    assert (seen.errors, seen.requests) == ([], [file.as_uri()])
    table = study.table()
    page.click("#results th:has-text('gamma') button")

    def column(name: str) -> list[str]:
        return page.eval_on_selector_all(
            f"#results tr:not([hidden]) td[data-column='{name}']",
            "cells => cells.map(c => c.dataset.value ?? c.textContent)",
        )

    assert [float(v) for v in column("gamma")] == sorted(table["gamma"].to_pylist())
    page.click("#results th:has-text('gamma') button")
    assert [float(v) for v in column("gamma")] == sorted(table["gamma"].to_pylist(), reverse=True)
    page.fill("#filter", "depth:5 layernorm")
    assert column("depth") == ["5.0", "5.0"]
    assert page.inner_text("#shown") == "2 of 12 rows"
    page.fill("#filter", "")
    assert len(column("depth")) == 12


# -- The command ------------------------------------------------------------------------------------------------------

PLAN = """
name = "norms"
reading = "predict"
network = "mlp"
[grid]
depth = [1, 20]
norm = ["none", "layernorm"]
[options]
points = 1000
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["sweep", *arguments])


def test_a_plan_runs_and_is_shown(tmp_path: Path) -> None:
    plan, store = tmp_path / "study.toml", str(tmp_path / "runs")
    plan.write_text(PLAN)
    first = run(str(plan), "--store", store, "--json", "--page", str(tmp_path / "study.html"))
    assert first.exit_code == 0, first.output
    rows = json.loads(run("table", store, "--json").stdout)
    assert [(row["depth"], row["norm"]) for row in rows] == [(1, None), (1, "layernorm"), (20, None), (20, "layernorm")]
    for row in rows:
        p = fg.predict(fg.mlp(depth=row["depth"], norm=row["norm"]), points=1000)
        assert row["gamma"] == p.gamma[-1]
        assert row["expected_max"] == p.guesses.expected_max()
    assert json.loads(run("status", store, "--json").stdout) == [
        {"study": "norms", "tasks": 4, "done": 4, "failed": 0, "missing": 0}
    ]
    assert "norms" in run("status", store).stdout
    assert "4 were there" in run(str(plan), "--store", store).stderr


def test_a_description_has_holes_and_data_may_vary(tmp_path: Path) -> None:
    plan = tmp_path / "study.toml"
    plan.write_text(
        'reading = "measure"\nnetwork = "{depth} x [dense(weight_var={var}) > relu] > dense"\npoints = 30\n'
        '[grid]\ndepth = [1, 2]\nvar = [2.0]\nseed = [3]\ndata = ["blob:n=40,d=5", "two_blobs:n=40,d=5"]\n'
        "[options]\ninits = 4\nwidth = 6\n"
    )
    rows = planned(plan, store=tmp_path / "runs").run().table().to_pylist()
    assert len(rows) == 4
    one = fg.measure("2 x [dense(weight_var=2.0) > relu] > dense", fg.data.load("two_blobs:n=40,d=5", points=30),
                     inits=4, width=6, seed=3)  # fmt: skip
    assert rows[3]["gamma_by_layer"] == one.gamma.tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[grid]", "[grid"), "TOML"),
        (('reading = "predict"', 'reading = "guess"'), "reading = predict"),
        (('reading = "predict"', 'reading = "measure"'), "data for measure"),
        (('network = "mlp"', 'network = "dense >"'), "xpected"),
        (("depth =", "dept ="), "depth"),
        (("points = 1000", "pionts = 1000"), "points"),
        (("depth = [1, 20]", "depth = 3"), "a list of values"),
        (('name = "norms"', 'nmae = "norms"'), "one of the keys"),
        (('network = "mlp"', ""), "network = a text"),
        (("[grid]", "[girds]"), "one of the keys"),
        (('network = "mlp"', 'network = "{k} x [dense > relu] > dense"'), "{k}"),
    ],
)
def test_a_bad_plan_is_one_line(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    plan = tmp_path / "study.toml"
    assert change[0] in PLAN
    plan.write_text(PLAN.replace(*change))
    with pytest.raises(fg.InvalidInput) as caught:
        planned(plan, store=tmp_path / "runs")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_stores_and_files_that_are_not_there_are_one_line(tmp_path: Path) -> None:
    for arguments in (["none.toml"], ["status", str(tmp_path / "none")], ["table", str(tmp_path)], ["x.toml", "runs"]):
        found = run(*arguments)
        assert isinstance(found.exception, fg.InvalidInput), (arguments, found.output)


def test_a_lambda_is_shown_without_its_surroundings(tmp_path: Path) -> None:
    s = fg.study("a", fg.grid(k=[1, 2]), lambda p: {"v": (p["k"], 2)[0], "inits": 7}, store=tmp_path,
                 version="(1)").run()  # fmt: skip
    text = s.save(tmp_path / "a.html").read_text()
    assert "lambda p: {&#34;v&#34;: (p[&#34;k&#34;], 2)[0], &#34;inits&#34;: 7}</code>" in text
    assert "The same in all rows: inits 7." in text


def test_a_plans_page_has_its_text_and_a_table_fits_a_terminal(tmp_path: Path) -> None:
    plan = tmp_path / "study.toml"
    plan.write_text('reading = "predict"\nnetwork = "mlp"\n[grid]\ndepth = [1, 2]\nnorm = ["none", "rmsnorm"]\n')
    found = CliRunner().invoke(
        app, ["sweep", str(plan), "--store", str(tmp_path / "runs"), "--page", str(tmp_path / "a.html")]
    )
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "none" in next(line for line in lines if line.strip().startswith("1"))
    assert "the same in all rows: " in found.stderr
    assert "classes 2" in found.stderr
    assert "reading = &#34;predict&#34;" in (tmp_path / "a.html").read_text()


def test_ctrl_c_says_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(ran: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fg.study("a", fg.grid(k=range(9)), lambda p: {"v": p["k"]}, store=tmp_path).run(progress=stop)
    assert "stopped, 1 of 9 done, kept in" in capsys.readouterr().err


def test_ctrl_c_in_a_script_ends_in_one_line(tmp_path: Path) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(
        "import firstguess as fg\n"
        "def value(p):\n    return {'v': p['k']}\n"
        "def stop(ran):\n    raise KeyboardInterrupt\n"
        "if __name__ == '__main__':\n"
        f"    study = fg.study('a', fg.grid(k=range(6)), value, store={str(tmp_path / 'runs')!r})\n"
        "    study.run(workers=1, progress=stop)\n"
    )
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode != 0
    assert "Traceback" not in found.stderr
    assert found.stderr.strip().splitlines()[-1].startswith("firstguess: stopped, 1 of 6 done, kept in")
    assert found.stderr.strip().endswith("run it again for the rest")
