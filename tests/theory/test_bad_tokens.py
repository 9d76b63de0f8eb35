"""Bad sequences, and networks that do not fit them: one clear line each, before any long work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import firstguess as fg

NET = "embed(1) > attention(4) > pool_tokens(mean) > dense"
PADDED = NET.replace("embed(1)", "embed(1, padding=0)")
IDS = np.array([[1, 2, 3], [4, 5, 6]])
SHORTER = np.array([[1, 2, 0], [4, 5, 6]])
MASK = {"input_ids": torch.tensor(SHORTER), "attention_mask": torch.tensor(SHORTER != 0)}
READINGS: list[Callable[[str, Any], object]] = [
    lambda net, x: fg.predict(net, data=x),
    lambda net, x: fg.measure(net, x, inits=2, width=8),
]
ONE_LENGTH = r"points of one length, but got lengths 2, 3, at data. Try: .*padding"
CASES: list[tuple[str, Any, str]] = [
    (NET, [[1, 2, 3], [4, 5]], ONE_LENGTH),
    (NET, [np.array([1, 2, 3]), np.array([4, 5])], ONE_LENGTH),
    (NET, [torch.tensor([1, 2, 3]), torch.tensor([4, 5])], ONE_LENGTH),
    (NET, [torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])], ONE_LENGTH),
    (NET, np.array([[1, 2, 3], [4, 5]], dtype=object), ONE_LENGTH),
    (NET, MASK, r"ids without an attention_mask, .* got a mask with zeros, at data. Try: .*embed\(…, padding=0\)"),
    (NET, [MASK, MASK], r"ids without an attention_mask"),
    (
        NET.replace("embed(1)", "embed(1, width=10)"),
        IDS,
        r"divide the width, 10, but got 4, at layer 2 .*attention\(2\)",
    ),
    (NET.replace("embed(1)", "embed(1, vocabulary=6)"), IDS, r"ids below the vocabulary's size, 6, but got 6, at data"),
    (NET, -IDS, r"token ids: whole numbers from 0 on, but got others, at data"),
    (NET, 0.5 * IDS, r"token ids: whole numbers from 0 on"),
    (PADDED, np.array([[1, 2, 0], [0, 0, 0]]), r"at least one token that is no padding, but got 1 of 2 .*, at data"),
    (PADDED.replace("mean", "cls"), np.array([[1, 2, 0], [0, 5, 6]]), r"begin with a token, but got some that begin"),
    (PADDED.replace("attention", "tokenmix"), SHORTER, r"without padding before tokenmix.* but got padding"),
]


@pytest.mark.parametrize(("net", "x", "said"), CASES)
@pytest.mark.parametrize("reading", READINGS, ids=["predict", "measure"])
def test_one_clear_line(reading: Callable[[str, Any], object], net: str, x: Any, said: str) -> None:
    with pytest.raises(fg.FirstguessError, match=said) as caught:
        reading(net, x)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_layers_that_cannot_be() -> None:
    for text, said in (
        (
            "attention(4, groups=3)",
            r"groups that divide the heads, 4, but got 3, at attention. Try: attention\(4, grou",
        ),
        ("attention(4, groups=0)", "a whole groups of at least 1"),
        ("attention(4, window=0)", "a whole window of at least 1"),
        ("embed(1, padding=-1)", "a whole padding of at least 0"),
        ("embed(1, padding=5, vocabulary=5)", "an id of padding below the vocabulary's size, 5, but got 5"),
    ):
        with pytest.raises(fg.InvalidInput, match=said):
            fg.Network.parse(f"{text} > dense")
    with pytest.raises(fg.InvalidInput, match=r"heads that divide the width, 100, but got 12, .* heads=10"):
        fg.transformer("gpt2", width=100)
    with pytest.raises(fg.InvalidInput, match="reads tokens, for padding, but got vit"):
        fg.transformer("vit", padding=0)


def test_sequences_that_do_not_fit_in_memory_say_how_much_they_need() -> None:
    long = np.random.default_rng(0).integers(0, 9, (3, 10_000))
    with pytest.raises(fg.NotCovered, match=r"at most 5976 tokens in all.* 2 GB, but got 3 sequences .*: 50.4 GB"):
        fg.predict(NET, data=long)
    with pytest.raises(fg.NotCovered, match=r"2 GB, but got 50 sequences of 1000 .* Try: points=5"):
        fg.predict(NET, data=long.reshape(-1, 1000)[:50].repeat(2, axis=0)[:50])
    with pytest.raises(fg.NotCovered, match=r"2 sequences of 20000 tokens: 89.6 GB"):
        fg.predict(NET, inputs=fg.Tokens(length=20_000))
    windows = NET.replace("attention(4)", "attention(4, window=5)")
    with pytest.raises(fg.NotCovered, match=r"one takes at most 2 GB, but got 5.41 GB"):
        fg.measure(windows, long.reshape(1, -1).repeat(2, axis=0), inits=2, width=8)


def test_the_closed_form_has_sequences_of_one_length() -> None:
    """Padding in a description changes nothing there, and is said to be left out."""
    plain, padded = (fg.predict(net, inputs=fg.Tokens(length=6, coincidence=0.1)) for net in (NET, PADDED))
    assert plain.gamma[-1] == padded.gamma[-1]
    assert "sequences of one length, without padding" in padded.assumptions
    assert "sequences of one length, without padding" not in plain.assumptions
