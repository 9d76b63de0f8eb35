"""Hugging Face's transformers at their own sizes: read, predicted, and measured on fresh draws (theory.md §9).

    python benchmarks/read_transformers.py                 those of width 256, one process
    python benchmarks/read_transformers.py --large         those of width 768, too
    python benchmarks/read_transformers.py --print         the table of what is there, for docs/transformers.md

A model is built from its configuration, `fg.read` makes a description of it, `fg.predict` follows that on 24 sequences
of 32 Zipf tokens (or random images), and `fg.measure` draws `--inits` models and looks at γ of their output: it has 256
labels, so that it says what the read-out is. A model is a task of a study, kept in `--out`: a stopped run continues.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from as_studies import line_options, lines
from torch import nn

import firstguess as fg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers as hf

SEQUENCES, LENGTH, WORDS, LABELS = 24, 32, 5000, 256
ENDS: dict[str, Any] = {"num_labels": LABELS, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": WORDS + 1}


class Pooled(nn.Module):
    """A body of Hugging Face, one vector of its last states, and a head without biases."""

    def __init__(self, body: nn.Module, width: int, *, mean: bool) -> None:
        super().__init__()
        self.body, self.mean, self.head = body, mean, nn.Linear(width, LABELS, bias=False)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = self.body(x).last_hidden_state
        return self.head(states.mean(1) if self.mean else states[:, 0])


def zipf(first: bool = False) -> torch.Tensor:
    """Ids; `first`: every sequence starts with token 0."""
    p = 1.0 / np.arange(1, WORDS + 1)
    ids = np.random.default_rng(20261117).choice(WORDS, (SEQUENCES, LENGTH), p=p / p.sum()) + 1
    if first:
        ids[:, 0] = 0
    return torch.from_numpy(ids)


def images() -> torch.Tensor:
    return torch.randn(SEQUENCES, 3, 32, 32, generator=torch.Generator().manual_seed(20261117))


def gpt2(depth: int, width: int) -> nn.Module:
    config = hf.GPT2Config(vocab_size=WORDS + 2, n_embd=width, n_layer=depth, n_head=width // 64, **ENDS)
    return hf.GPT2ForSequenceClassification(config)


def llama(depth: int, width: int) -> nn.Module:
    config = hf.LlamaConfig(
        vocab_size=WORDS + 2, hidden_size=width, num_hidden_layers=depth, num_attention_heads=width // 64,
        intermediate_size=8 * width // 3, **ENDS,
    )  # fmt: skip
    return hf.LlamaForSequenceClassification(config)


def bert(depth: int, width: int) -> nn.Module:
    config = hf.BertConfig(
        vocab_size=WORDS + 2, hidden_size=width, num_hidden_layers=depth, num_attention_heads=width // 64,
        intermediate_size=4 * width, pad_token_id=WORDS + 1,
    )  # fmt: skip
    return Pooled(hf.BertModel(config, add_pooling_layer=False), width, mean=False)


def vit(depth: int, width: int, mean: bool) -> nn.Module:
    config = hf.ViTConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=width // 64, intermediate_size=4 * width,
        image_size=32, patch_size=8,
    )  # fmt: skip
    return Pooled(hf.ViTModel(config, add_pooling_layer=False), width, mean=mean)


@dataclass(frozen=True)
class Case:
    """A model, its data, and what theory.md §9 has for its like on sequences of its own."""

    name: str
    make: Callable[[], nn.Module]
    data: Callable[[], torch.Tensor]
    there: str
    large: bool = False


CASES = (
    Case("GPT-2 L12 D256", lambda: gpt2(12, 256), zipf, "1.186; 1.124 ± 0.047"),
    Case("BERT L12 D256, CLS", lambda: bert(12, 256), lambda: zipf(first=True), "763; 757 ± 14"),
    Case("LLaMA L12 D256", lambda: llama(12, 256), zipf, "0.041; 0.048 ± 0.004"),
    Case("LLaMA L4 D256, BOS", lambda: llama(4, 256), lambda: zipf(first=True), "0.305; 0.305 ± 0.017"),
    Case("ViT L6 D256, CLS", lambda: vit(6, 256, False), images, "2.18; 2.21 ± 0.09"),
    Case("ViT L6 D256, mean", lambda: vit(6, 256, True), images, "1.56; 1.48 ± 0.04"),
    Case("GPT-2 L12 D768", lambda: gpt2(12, 768), zipf, "1.528; 1.463 ± 0.055", large=True),
    Case("BERT L12 D768, CLS", lambda: bert(12, 768), lambda: zipf(first=True), "79.0; 81.8 ± 3.8", large=True),
)


def run(p: dict[str, Any]) -> Iterator[dict[str, Any]]:
    case = next(one for one in CASES if one.name == p["case"])
    x, inits = case.data(), p["inits"]
    read = fg.read(case.make, x)
    if read.network is None:
        yield {"case": case.name, "unread": [str(one) for one in read.unread]}
        return
    predicted = fg.predict(read.network, data=x.numpy(), draws=4000)
    m = fg.measure(case.make, x, inits=inits, probe="output")
    yield {
        "case": case.name,
        "there": case.there,
        "inits": inits,
        "predicted": float(predicted.gamma[-1]),
        "measured": float(m.gamma[-1]),
        "error": float(m.gamma_se[-1]),
        "network": str(read.network),
    }


def table(lines: list[dict[str, Any]]) -> str:
    out = ["| model | γ predicted | measured | z | theory.md, its own sequences: predicted; measured |"]
    out.append("|---|---|---|---|---|")
    for line in lines:
        if "unread" in line:
            out.append(f"| {line['case']} | not read: {line['unread']} | | | |")
            continue
        z = (line["measured"] - line["predicted"]) / line["error"]
        out.append(
            f"| {line['case']} | {line['predicted']:.4g} | {line['measured']:.4g} ± {line['error']:.2g} | {z:+.1f} | "
            f"{line['there']} |"
        )
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line_options(parser, "out/read-transformers")
    parser.add_argument("--inits", type=int, default=40)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", default="", help="models whose name has this in it")
    parser.add_argument("--print", action="store_true", help="compute nothing")
    given = parser.parse_args()
    chosen = [case for case in CASES if given.only in case.name and (given.large or not case.large)]
    made_of = [{"case": case.name, "inits": given.inits} for case in chosen]
    print(table(lines("read transformers", made_of, run, given, compute=not given.print)))


if __name__ == "__main__":
    main()
