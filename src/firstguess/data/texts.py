"""Labelled texts as sequences of token ids: AG News, and any texts, with a vocabulary of their own words or bytes."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.files import reads_files
from firstguess.data.dataset import Data, whole_number
from firstguess.data.files import DATA_DIR_VARIABLE, PathLike, data_root

PAD, UNKNOWN, FIRST = 0, 1, 2  # ids that are no words: padding, a word that is not in the vocabulary, CLS or BOS
_SPECIAL = 3
_WORD = re.compile(r"\w+|[^\w\s]")
_FOLDERS = ("ag-news", "ag_news")
_CLASSES = ("World", "Sports", "Business", "Sci/Tech")
Short = Literal["drop", "pad"]


@dataclass(frozen=True)
class Vocabulary:
    """Words, the most frequent first; none: bytes. Ids 0, 1 and 2 are padding, unknown words, and a first token.

    >>> v = Vocabulary.of(["a rose is a rose", "A flower."], size=5)
    >>> v.words, v.encode("A rose, is").tolist(), v.size
    (('a', 'rose'), [3, 4, 1, 1], 5)
    >>> Vocabulary().encode("hé").tolist(), Vocabulary().size
    ([107, 198, 172], 259)
    """

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> Vocabulary:
        """The words that come most often in these texts, until there are `size` ids; ties alphabetically."""
        if whole_number(size, "size") <= _SPECIAL:
            raise InvalidInput(f"a vocabulary of more than {_SPECIAL} ids", got=size, where="Vocabulary", hint="20_000")
        counts = Counter(word for text in texts for word in _WORD.findall(text.lower()))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(tuple(ranked[: size - _SPECIAL]))

    @property
    def size(self) -> int:
        """How many ids there are: for embed(0.02, vocabulary=…)."""
        return _SPECIAL + (len(self.words) or 256)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: _SPECIAL + i for i, word in enumerate(self.words)}

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of a text."""
        if not self.words:
            return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64) + _SPECIAL
        return np.array([self._ids.get(word, UNKNOWN) for word in _WORD.findall(text.lower())], dtype=np.int64)


def sequences(
    texts: Sequence[str],
    labels: Sequence[int] | None = None,
    *,
    vocabulary: Vocabulary,
    length: int = 32,
    first: bool = False,
    short: Short = "drop",
    name: str = "texts",
    class_names: tuple[str, ...] | None = None,
) -> Data:
    """Texts as ids (n, length): longer ones are cut, shorter ones left out ("drop") or filled up with id 0 ("pad").

    `first` puts one token that all share before (CLS or BOS). There are no masks: padding is a token like others.

    >>> v = Vocabulary.of(["a rose is a rose"], size=10)
    >>> sequences(["a rose", "is"], vocabulary=v, length=3, first=True, short="pad").x.astype(int).tolist()
    [[2, 3, 4], [2, 5, 0]]
    """
    length = whole_number(length, "length")
    if length < 1 + first:
        raise InvalidInput(f"a length of at least {1 + first}", got=length, where="length", hint="length=32")
    checks.choice(short, ("drop", "pad"), "short", "short", hint="short='pad'")
    room = length - first
    rows, kept = list[NDArray[np.int64]](), list[int]()
    for index, text in enumerate(texts):
        ids = vocabulary.encode(text)[:room]
        if len(ids) < room and short == "drop":
            continue
        rows.append(np.concatenate([[FIRST] * first, ids, [PAD] * (room - len(ids))]))
        kept.append(index)
    if not rows:
        raise InvalidInput(
            f"texts of at least {room} tokens", got="none", where=name, hint="a smaller length, or short='pad'"
        )
    y = None if labels is None else np.array([labels[i] for i in kept], dtype=np.int64)
    of = f"{length} {'words' if vocabulary.words else 'bytes'}"
    return Data(np.array(rows, dtype=np.float32), y, name=f"{name}, {of} each", class_names=class_names)


@reads_files
def ag_news(
    data_dir: PathLike | None = None,
    split: str = "test",
    *,
    length: int = 32,
    words: int = 20_000,
    first: bool = False,
    short: Short = "drop",
    classes: str | None = None,
    points: int | None = None,
    seed: int = 0,
) -> Data:
    """AG News as ids (n, length) with its four classes, from `test.csv` (class, title, description) in `ag-news`.

    The vocabulary is its own: the `words` ids of the words that come most often in this split, `words=0` for bytes.
    Texts are title and description; how they become `length` tokens says `sequences`.
    """
    path = _found(data_dir, split)
    labels, texts = list[int](), list[str]()
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            if len(row) != 3 or row[0] not in ("1", "2", "3", "4"):
                raise InvalidInput(
                    "rows of a class from 1 to 4, a title and a description",
                    got=f"a row of {len(row)} fields",
                    where=str(path),
                    hint="the CSV files of AG's News Topic Classification",
                )
            labels.append(int(row[0]) - 1)
            texts.append(f"{row[1]} {row[2]}".replace("\\", " "))
    vocabulary = Vocabulary.of(texts, words) if words else Vocabulary()
    found = sequences(
        texts,
        labels,
        vocabulary=vocabulary,
        length=length,
        first=first,
        short=short,
        name=f"ag-news {split}",
        class_names=_CLASSES,
    )
    found = found if classes is None else found.select(classes)
    return found if points is None else found.subset(points, seed)


def _found(data_dir: PathLike | None, split: str) -> Path:
    hint = f"make a folder {_FOLDERS[0]} with {split}.csv, and give its parent as data_dir= or {DATA_DIR_VARIABLE}"
    root = data_root(data_dir, "AG News", hint)
    looked = [root / folder / f"{split}.csv" for folder in _FOLDERS]
    for path in looked:
        if path.is_file():
            return path
    raise InvalidInput(
        f"AG News ({split}.csv)", got="no such file", where=", ".join(str(path) for path in looked), hint=hint
    )
