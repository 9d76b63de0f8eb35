"""Language models: seconds and memory of a prediction, and its counts against networks, on words or on text.

    python benchmarks/language.py                      32 768 positions, V = 32 000, D = 768, both ways to predict
    python benchmarks/language.py --quick              a smoke run
    python benchmarks/language.py --networks 8         and that many networks of each, counted in batches
    python benchmarks/language.py --ids tokens.npy     positions of a text: (sequences, tokens) ids

Each case runs in a process of its own, which says its largest memory. `python benchmarks/language.py --text FILE --out
tokens.npy` makes such ids of a file's lines with Mistral's tokenizer (pip install 'mistral-common[sentencepiece]').
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import firstguess as fg

LAYERS = {"depth": 12, "width": 768, "heads": 12, "hidden": 2048, "vocabulary": 32000}
LABORATORY = {"depth": 2, "width": 128, "heads": 4, "groups": 2, "hidden": 384, "vocabulary": 31997}
QUICK = {"depth": 1, "width": 64, "heads": 4, "hidden": 128, "vocabulary": 500}


def zipf(vocabulary: int, shape: tuple[int, int], seed: int = 0) -> NDArray[np.int64]:
    """Words as frequent as in a text."""
    p = 1.0 / (np.arange(1, vocabulary + 1) + 2.7)
    return np.random.default_rng(seed).choice(vocabulary, shape, p=p / p.sum())


def mistral(path: Path, tokens: int) -> NDArray[np.int64]:
    """Ids of a file's text, cut into sequences."""
    from mistral_common.tokens.tokenizers.mistral import (  # pyright: ignore[reportMissingImports]
        MistralTokenizer,
    )

    tokenizer: Any = MistralTokenizer.v1().instruct_tokenizer.tokenizer
    ids = np.array(tokenizer.encode(path.read_text(errors="replace"), bos=False, eos=False), np.int64)
    return ids[: len(ids) // tokens * tokens].reshape(-1, tokens)


def predicted(size: dict[str, int], init: str, ids: NDArray[np.int64], out: Any) -> None:
    """One prediction, with the memory of its process."""
    started, used = time.perf_counter(), time.process_time()
    net = fg.transformer("llama", head="language", init=init, **size)  # type: ignore[arg-type]
    found = fg.predict(net, data=ids, width=size["width"])
    way = "(52)" if any("(52)" in line for line in found.assumptions) else "features drawn"
    seconds = (time.perf_counter() - started, time.process_time() - used)
    out.put((found.guesses.effective_support(), found.guesses.never(), way, seconds, peak()))


def peak() -> float:
    """Largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def counted(size: dict[str, int], init: str, ids: NDArray[np.int64], networks: int) -> NDArray[np.float64]:
    """exp(H) and tokens never guessed of Hugging Face's LLaMA: batches of sequences, counts only, no logits kept."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=size["vocabulary"], hidden_size=size["width"], num_hidden_layers=size["depth"],
        num_attention_heads=size["heads"], num_key_value_heads=size.get("groups", size["heads"]),
        intermediate_size=size["hidden"], tie_word_embeddings=False,
    )  # fmt: skip
    rows = []
    for seed in range(networks):
        torch.manual_seed(seed)
        model: Any = transformers.LlamaForCausalLM(config).eval()
        if init == "torch":
            for module in model.modules():
                if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
                    module.reset_parameters()
        counts = torch.zeros(size["vocabulary"], dtype=torch.int64)
        with torch.inference_mode():
            for some in torch.from_numpy(ids).split(8):
                guess = model(some).logits.flatten(0, 1).argmax(1)
                counts += torch.bincount(guess, minlength=size["vocabulary"])
        q = counts.double() / counts.sum()
        rows.append((float(torch.special.entr(q).sum().exp()), float((q == 0).sum())))
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--networks", type=int, default=0)
    parser.add_argument("--ids", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--out", type=Path, default=Path("tokens.npy"))
    parser.add_argument("--sequences", type=int, default=512)
    given = parser.parse_args()
    if given.text is not None:
        np.save(given.out, mistral(given.text, 64))
        return
    cases = [("12 x 768", LAYERS), ("the laboratory's 2 x 128", LABORATORY)] if not given.quick else [("quick", QUICK)]
    for name, size in cases:
        shape = (given.sequences if not given.quick else 32, 64)
        ids = np.load(given.ids)[: shape[0]] if given.ids is not None else zipf(size["vocabulary"], shape)
        ids = np.minimum(ids, size["vocabulary"] - 1)
        for init in ("torch", "llama"):
            context = multiprocessing.get_context("spawn")
            out = context.Queue()
            process = context.Process(target=predicted, args=(size, init, ids, out))
            process.start()
            support, never, way, seconds, memory = out.get()
            process.join()
            print(
                f"{name}, init={init}, {ids.size} positions: {support.mean:.0f} ± {support.error:.0f}, never "
                f"{never.mean:.0f} ± {never.error:.0f}; {way}, {seconds[0]:.1f} s "
                f"({seconds[1]:.1f} of processors), {memory:.2f} GB",
                flush=True,
            )
            if given.networks:
                rows = counted(size, init, ids, given.networks)
                error = rows.std(axis=0, ddof=1) / math.sqrt(len(rows)) if len(rows) > 1 else np.full(2, math.nan)
                print(f"    {len(rows)} networks: {rows.mean(0).round()} ± {error.round(1)}", flush=True)


if __name__ == "__main__":
    main()
