"""Charts become files that need no network; titles, colours and what importing them loads."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import check_path, guesses_chart, save, theme
from firstguess.theory.shares.gaussian import Guesses


@pytest.mark.parametrize(
    ("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<svg"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")]
)
def test_save_by_ending(tmp_path: Path, ending: str, start: bytes) -> None:
    target = save(guesses_chart(Guesses(1.0)), tmp_path / f"law{ending}")
    assert target == tmp_path / f"law{ending}"
    assert target.read_bytes().startswith(start)


def test_html_needs_no_network(tmp_path: Path) -> None:
    page = save(guesses_chart(Guesses(1.0), labels=["</script> & γ"]), str(tmp_path / "law.html")).read_text("utf-8")
    assert not re.search(r"<script[^>]*\ssrc\s*=", page)
    assert not re.search(r"<link\b[^>]*href\s*=", page)
    assert not re.search(
        r"\bimport\s*\(?\s*[\"']https?://|\bfrom\s*[\"']https?://|@import|url\(\s*[\"']?https?://", page
    )
    assert "cdn.jsdelivr" not in page
    assert "unpkg" not in page
    assert len(page) > 300_000  # the libraries are inside
    assert page.count("</script>") == page.count("<script")  # the label's does not end the page's
    assert "\\u003c/script> & γ, γ = 1" in page


def test_bad_paths_say_what_to_do(tmp_path: Path) -> None:
    chart = guesses_chart(Guesses(1.0))
    with pytest.raises(InvalidInput, match=r"ends in \.html, \.pdf, \.png or \.svg.*Try: law\.png"):
        save(chart, tmp_path / "law.gif")
    with pytest.raises(InvalidInput, match=r"Try: law\.png"):
        save(chart, tmp_path / "law")
    with pytest.raises(InvalidInput, match="a folder that exists"):
        save(chart, tmp_path / "nowhere" / "law.png")
    (tmp_path / "law.svg").mkdir()
    with pytest.raises(InvalidInput, match="a folder"):
        check_path(tmp_path / "law.svg")
    with pytest.raises(InvalidInput, match="a chart, but got str"):
        save("chart", tmp_path / "law.png")  # type: ignore[arg-type]
    assert not (tmp_path / "law.png").exists()


# -- The look ----------------------------------------------------------------------------------------------------


def test_titles_are_wrapped_and_the_user_may_choose_one() -> None:
    spec = guesses_chart(Guesses(1.0), title="A long title " * 20).to_dict()
    assert len(spec["title"]["text"]) == 2
    assert all(len(line) <= 78 for line in spec["title"]["text"])
    assert theme.shortened("a" * 50, 20).count("…") == 1


def test_colours_are_told_apart() -> None:
    assert len({(theme.colour(i), tuple(theme.dash(i))) for i in range(28)}) == 28


def test_importing_firstguess_and_figures_loads_no_altair() -> None:
    code = (
        "import sys, firstguess, firstguess.show.charts as f; "
        "assert not {'altair', 'vl_convert', 'torch'} & set(sys.modules); f.guesses_chart; "
        "import firstguess.show.charts.phases, firstguess.show.charts.class_shares; "
        "assert 'altair' in sys.modules and 'torch' not in sys.modules; "
        "assert firstguess.phase_diagram('relu', weight_vars=[1.0], bias_vars=[0.0]).block == 'relu'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
