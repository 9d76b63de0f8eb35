"""Texts as token ids: vocabularies, lengths, and AG News."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import firstguess as fg
from firstguess.data import Vocabulary, ag_news, load, sequences

ROWS = (
    '"3","Oil up","Oil is up, again."\n'
    '"2","The match","The ""big"" match\\is on; the end."\n'
    '"1","Talks","Talks go on and on and on and on."\n'
    '"2","No","No."\n'
)
SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ag-news").mkdir()
    (tmp_path / "ag-news" / "test.csv").write_text(ROWS)
    return tmp_path


def test_ids_are_words_by_frequency(folder: Path) -> None:
    data = load("ag-news:length=6", data_dir=folder)
    assert data.class_names == ("World", "Sports", "Business", "Sci/Tech")
    assert data.y is not None
    assert data.y.tolist() == [2, 1, 0]  # the last text is too short
    words = "oil up oil is up , again .", 'the match the " big " match is on ; the end .', "talks talks go on and on"
    counts = {w: " ".join([*words[:2], "talks talks go on and on and on and on .", "no no ."]).split().count(w)
              for text in words for w in text.split()}  # fmt: skip
    for row, text in zip(data.x.astype(int), words, strict=True):
        assert len(row) == 6
        ids = dict(zip(text.split()[:6], row.tolist(), strict=True))
        for one, other in ((a, b) for a in ids for b in ids if counts[a] > counts[b]):
            assert ids[one] < ids[other]  # the most frequent come first


def test_lengths_and_first_tokens(folder: Path) -> None:
    padded = ag_news(folder, length=14, first=True, short="pad")
    assert padded.x.shape == (4, 14)
    assert (padded.x[:, 0] == 2).all()
    assert padded.x[3, 4:].tolist() == [0.0] * 10
    assert ag_news(folder, length=13, short="drop").n == 1
    some = ag_news(folder, words=5, length=3)
    assert set(np.unique(some.x)) <= {1.0, 3.0, 4.0}
    raw = load("ag-news:words=0,length=4", data_dir=folder)
    assert bytes((raw.x[0] - 3).astype(np.uint8)) == b"Oil "


def test_predict_and_measure_take_them(folder: Path) -> None:
    data = ag_news(folder, length=5, short="pad")
    net = fg.transformer("gpt2", depth=1, width=16, heads=2, classes=4)
    assert fg.predict(net, data=data, draws=50).guesses.points == 4
    assert fg.measure(net, data, inits=2, width=16).points == 4


def test_bad_input_is_one_clear_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRSTGUESS_DATA", raising=False)
    (folder / "ag-news" / "train.csv").write_text('"9","a"\n')
    for call, words in (
        (lambda: load("ag-news"), "a folder with AG News"),
        (lambda: load("ag-news:valid", data_dir=folder), "no such file"),
        (lambda: load("ag-news:train", data_dir=folder), "rows of a class"),
        (lambda: load("ag-news", data_dir=folder), "texts of at least 32 tokens"),
        (lambda: load("ag-news", data_dir=folder, standardize="global"), "token ids as they are"),
        (lambda: ag_news(folder, length=1, first=True), "a length of at least 2"),
        (lambda: ag_news(folder, words=3), "more than 3 ids"),
        (lambda: ag_news(folder, short="fill"), "'drop' or 'pad'"),  # type: ignore[arg-type]
        (lambda: sequences(["a"], vocabulary=Vocabulary(), length=4), "texts of at least 4 tokens"),
    ):
        with pytest.raises(fg.InvalidInput, match=words) as caught:
            call()
        assert caught.value.hint
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(not (SHARED / "ag-news").is_dir() and "FIRSTGUESS_DATA" not in os.environ, reason="no AG News here")
def test_the_real_one() -> None:
    data = ag_news(SHARED if (SHARED / "ag-news").is_dir() else None, length=16, short="pad")
    assert data.n == 7600
    assert data.y is not None
    assert np.bincount(data.y).tolist() == [1900] * 4
    assert data.x.max() < 20_000
