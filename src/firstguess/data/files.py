"""Data in files: images in IDX files and in Hugging Face's parquet layout, and labelled texts as token ids."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.checks import optional
from firstguess.base.errors import InvalidInput
from firstguess.base.files import no_pipe, reads_files
from firstguess.data.dataset import Classes, Data, IntArray, chosen, whole_number

# IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped.

PathLike: TypeAlias = str | os.PathLike[str]
Split: TypeAlias = Literal["train", "test"]
DATA_DIR_VARIABLE = "FIRSTGUESS_DATA"

_PREFIX = {"train": "train", "test": "t10k"}
_DEFLATE_MOST = 1032  # no deflate stream expands more than this: guards memory against a wrong header


def data_root(data_dir: PathLike | None, title: str, hint: str) -> Path:
    """The folder of all data sets: `data_dir`, or that of the environment."""
    given = data_dir if data_dir is not None else os.environ.get(DATA_DIR_VARIABLE)
    if not given:
        got = f"no data_dir, and the environment variable {DATA_DIR_VARIABLE} is not set"
        raise InvalidInput(f"a folder with {title}", got=got, hint=hint)
    return Path(given).expanduser()


@reads_files
def idx(
    source: PathLike | Sequence[PathLike],
    split: Split = "train",
    *,
    classes: Classes | None = None,
    points: int | None = None,
    seed: int = 0,
    class_names: tuple[str, ...] | None = None,
    name: str | None = None,
) -> Data:
    """Images from IDX files as (n, 1, height, width) in [0, 1].

    Args:
        source: A directory with MNIST's file names (`train-images-idx3-ubyte`, `.gz` or plain, or with a dot before
            `idx3`), or the files themselves: images, or (images, labels).
        split: "train" or "test" (`t10k-…`), when `source` is a directory.
        classes: Which classes to keep or join; see `Data.select`.
        points: How many points to draw, by `seed`, after choosing classes.

    >>> idx("no/such/folder")
    Traceback (most recent call last):
    firstguess.InvalidInput: Expected an existing file or directory, but got no/such/folder...
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.exists():
            raise InvalidInput("an existing file or directory", got=str(path), hint=needed(split))
        files = find_idx(path, split) if path.is_dir() else (path, None)
        if files is None:
            raise InvalidInput("a pair of IDX files", got="none", where=str(path), hint=needed(split))
    elif len(source) == 2:
        files = (Path(source[0]), Path(source[1]))
    else:
        raise InvalidInput("two files, (images, labels)", got=f"{len(source)} files")

    images = _read(files[0], axes=3)
    labels = None if files[1] is None else _read(files[1], axes=1).astype(np.int64)
    if labels is not None and len(labels) != len(images):
        expected = f"a label for each of the {len(images)} images in {files[0]}"
        hint = "get both files again, from one source"
        raise InvalidInput(expected, got=f"{len(labels)} labels", where=str(files[1]), hint=hint)
    name = name or f"{files[0].parent.name} {split}"
    missing = InvalidInput("a label file, to choose classes by", got="images only", where=str(files[0]))
    rows, labels, class_names, name = chosen(
        labels, len(images), class_names, classes, points, seed=seed, name=name, missing=missing
    )
    x = images[rows, None].astype(np.float32)
    x /= np.float32(255)
    x.flags.writeable = False
    return Data(x, labels, name=name, class_names=class_names)


def find_idx(directory: Path, split: str) -> tuple[Path, Path] | None:
    """The image and label file of a split in a directory, or None when one of the two is not there."""
    checks.choice(split, _PREFIX, "find_idx", "split")
    found: list[Path] = []
    for kind, axes in (("images", 3), ("labels", 1)):
        stems = [f"{_PREFIX[split]}-{kind}{mark}idx{axes}-ubyte" for mark in "-."]
        files = [directory / (stem + suffix) for stem in stems for suffix in ("", ".gz")]
        found += [file for file in files if file.is_file()][:1]
    return (found[0], found[1]) if len(found) == 2 else None


def needed(split: str) -> str:
    """How to provide the files of a split."""
    prefix = _PREFIX.get(split, "train")
    return f"put {prefix}-images-idx3-ubyte and {prefix}-labels-idx1-ubyte there, plain or as .gz"


def _read(path: Path, *, axes: int) -> npt.NDArray[np.uint8]:
    again = "the file is incomplete or not what its name says: get it again"
    try:
        with no_pipe(path).open("rb") as raw:
            gzipped = raw.read(2) == b"\x1f\x8b"  # by content: downloads often lose or keep ".gz" wrongly
        limit = path.stat().st_size * (_DEFLATE_MOST if gzipped else 1)
        with gzip.open(path, "rb") if gzipped else path.open("rb") as file:
            header = file.read(4 + 4 * axes)
            magic = bytes((0, 0, 8, axes))
            if header[:4] != magic:
                expected = f"an IDX file of bytes with {axes} axes (first bytes {magic.hex()})"
                got = f"first bytes {header[:4].hex() or 'none: the file is empty'}"
                raise InvalidInput(expected, got=got, where=str(path), hint=again)
            shape = tuple(int(size) for size in np.frombuffer(header[4:].ljust(4 * axes, b"\0"), dtype=">u4"))
            size = int(np.prod(shape, dtype=object))
            content = file.read(size + 1) if size <= limit else b""
    except (EOFError, zlib.error, OSError) as error:
        missing = isinstance(error, FileNotFoundError)
        expected = "an existing IDX file" if missing else "a readable IDX file"
        got = "no such file" if missing else f"{type(error).__name__}: {error}"
        raise InvalidInput(expected, got=got, where=str(path), hint="check the path" if missing else again) from error
    if len(content) != size or size == 0:
        got = "more" if len(content) > size else f"{len(content)}" if size <= limit else "a file too small for that"
        expected = f"{size} bytes of content, as the header's shape {shape} says"
        raise InvalidInput(expected, got=got, where=str(path), hint=again)
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then with (images decoded, images in all)."""

_IMAGE_COLUMNS = ("img", "image")
_LABEL_COLUMNS = ("label", "labels", "fine_label", "coarse_label")
_AGAIN = "the file is incomplete or damaged: get it again"


@reads_files
def parquet(
    path: PathLike,
    split: str = "train",
    *,
    classes: Classes | None = None,
    points: int | None = None,
    seed: int = 0,
    label: str | None = None,
    class_names: tuple[str, ...] | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> Data:
    """Images as (n, channels, height, width) in [0, 1]; only the rows that are kept are decoded.

    The image column is `img` or `image`, a struct with `bytes`; the label column `label`, `labels`, `fine_label` or
    `coarse_label`. Grey images have one channel, unless some are in colour: then all have three.

    Args:
        path: A parquet file, or a directory with `train-*.parquet` or `train/*.parquet` (every shard must be there).
        split: Which files of a directory to read.
        classes: Which classes to keep or join; see `Data.select`.
        points: How many points to draw, by `seed`, after choosing classes and before decoding.
        label: The label column, where there are several (CIFAR-100: "fine_label", "coarse_label").
        class_names: Instead of the names in the file's `huggingface` metadata.
        progress: Called with (decoded, in all); 50 000 images of CIFAR take some seconds.
    """
    for package in ("pyarrow", "PIL"):
        optional(package, "images", "a data set of images")
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = find_parquet(Path(path), split)
    if not files:
        present = [str(file.relative_to(path)) for file in _below(Path(path))[:10]]
        got = f"only {', '.join(present)}" if present else "no parquet file"
        hint = f"put {split}-00000-of-00001.parquet there, or name the file itself"
        raise InvalidInput(f"parquet files of the split {split!r}", got=got, where=str(path), hint=hint)
    try:
        image, label, names = _columns(pq.read_schema(files[0]), label, where=str(files[0]))
        labels = None if label is None else np.concatenate([_read_labels(file, label) for file in files])
        counts = [pq.read_metadata(file).num_rows for file in files]
    except (pa.ArrowException, OSError) as error:
        raise _damaged(error, files) from error

    total = sum(counts)
    if total == 0:
        raise InvalidInput("at least one image", got="no rows", where=", ".join(str(file) for file in files))
    if labels is not None and bool((labels == -1).all()):
        labels = None  # Hugging Face's mark for a test split whose labels are secret
    names = class_names or names
    name = name or f"{Path(path).stem} {split}".removesuffix(f" {split}" if Path(path).is_file() else "")
    missing = InvalidInput("a label column, to choose classes by", got="no labels", where=str(path))
    rows, labels, names, name = chosen(labels, total, names, classes, points, seed=seed, name=name, missing=missing)

    images: list[npt.NDArray[np.uint8]] = []
    try:
        for row, content in _image_bytes(files, counts, image, rows):
            images.append(_decode(content, row))
            first, new = (f"{one.shape[0]} × {one.shape[1]}" for one in (images[0], images[-1]))
            if new != first:
                hint = "resize them first, or give a DataLoader that does"
                raise InvalidInput(f"images of one size ({first}, as the first)", got=new, where=row, hint=hint)
            if progress is not None and (len(images) % 1000 == 0 or len(images) == len(rows)):
                progress(len(images), len(rows))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(error, files) from error
    x = _stack(images)
    return Data(x, labels, name=name, class_names=names)


def find_parquet(path: Path, split: str) -> list[Path]:
    """The parquet files of a split, in order of their names; empty when a directory has none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        expected = "an existing parquet file, or a directory of them"
        raise InvalidInput(expected, got="no such path", where=str(path), hint="check it")
    files: list[Path] = []
    for file in _below(path):
        folders = file.relative_to(path).parts[:-1]
        if re.fullmatch(rf"{re.escape(split)}([-_.].*)?", file.stem) or split in folders:
            files.append(file)
    folders = sorted({str(file.parent) for file in files})
    if len(folders) > 1:
        got = f"files in {len(folders)} directories: {', '.join(folders[:5])}"
        hint = "name one of these directories"
        raise InvalidInput(f"the split {split!r} of one data set", got=got, where=str(path), hint=hint)
    shards = {int(match[1]) for file in files if (match := re.search(r"-of-0*(\d+)(-[0-9a-f]{16})?$", file.stem))}
    if shards and shards != {len(files)}:
        got = f"{len(files)}: {', '.join(file.name for file in files[:5])}"
        hint = "get the missing files, or name one file to read it alone"
        raise InvalidInput(f"all {max(shards)} shards of the split {split!r}", got=got, where=str(path), hint=hint)
    return files


def _below(path: Path) -> list[Path]:
    # Three levels hold every layout (configuration/split/0000.parquet) and keep a wrong path from searching a disk.
    return sorted(file for depth in ("", "*/", "*/*/") for file in path.glob(f"{depth}*.parquet"))


def _columns(schema: Any, label: str | None, *, where: str) -> tuple[str, str | None, tuple[str, ...] | None]:
    """The path of the image bytes, the label column and the class names."""
    import pyarrow as pa

    columns: list[str] = list(schema.names)
    if twice := sorted({column for column in columns if columns.count(column) > 1}):
        raise InvalidInput("columns with different names", got=f"{', '.join(twice)} more than once", where=where)
    image = next((column for column in _IMAGE_COLUMNS if column in columns), None)
    if image is None:
        expected = f"an image column, {' or '.join(_IMAGE_COLUMNS)}"
        raise InvalidInput(expected, got=f"columns {', '.join(columns)}", where=where)
    kind = schema.field(image).type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        image = f"{image}.bytes"
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise InvalidInput("encoded images: a struct with bytes", got=f"{image}: {kind}", where=where)
    if label is None:
        label = next((column for column in _LABEL_COLUMNS if column in columns), None)
    elif label not in columns:
        hint = f"one of {', '.join(columns)}"
        raise InvalidInput("the name of a label column", got=repr(label), where=where, hint=hint)
    if label is not None and not pa.types.is_integer(schema.field(label).type):
        raise InvalidInput("whole numbers as labels", got=f"{label}: {schema.field(label).type}", where=where)
    return image, label, _class_names(schema, label)


def _class_names(schema: Any, label: str | None) -> tuple[str, ...] | None:
    # Optional and written by other programs: anything unexpected in it means "no names", never an error.
    try:
        names = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
        return tuple(str(name) for name in names)
    except (KeyError, TypeError, ValueError):
        return None


def _read_labels(file: Path, label: str) -> IntArray:
    import pyarrow.parquet as pq

    column = pq.ParquetFile(file).read(columns=[label]).column(0)
    if column.null_count:
        raise InvalidInput("a label in every row", got=f"{column.null_count} rows without", where=f"{file}, {label}")
    return column.to_numpy().astype(np.int64)


def _image_bytes(files: list[Path], counts: list[int], image: str, rows: IntArray) -> Iterator[tuple[str, Any]]:
    """The encoded image of each row (ascending, counted through all files), with its place for an error."""
    import pyarrow.parquet as pq

    offset = 0
    for file, count in zip(files, counts, strict=True):
        with pq.ParquetFile(file) as parquet_file:
            start = offset
            for group in range(parquet_file.num_row_groups):
                stop = start + parquet_file.metadata.row_group(group).num_rows
                wanted = rows[(rows >= start) & (rows < stop)] - start
                if wanted.size:
                    column = parquet_file.read_row_group(group, columns=[image]).column(0)
                    for index in wanted.tolist():
                        value = column[index].as_py()
                        place = f"{file}, row {start - offset + index}"
                        yield place, value.get("bytes") if isinstance(value, dict) else value
                start = stop
        offset += count


def _decode(content: Any, where: str) -> npt.NDArray[np.uint8]:
    """One image: (height, width) if it is grey, else (height, width, 3)."""
    from PIL import Image

    if content is None:
        raise InvalidInput("an image in every row", got="none", where=where, hint="embed the images in the file")
    try:
        with Image.open(io.BytesIO(content)) as picture:
            if picture.mode.startswith(("I", "F")):
                raise InvalidInput("8-bit images", got=f"mode {picture.mode}", where=where)
            return np.asarray(picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, InvalidInput):
            raise
        expected = "an image that can be decoded"
        raise InvalidInput(expected, got=f"{type(error).__name__}: {error}", where=where, hint=_AGAIN) from error


def _stack(images: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
    channels = 3 if any(image.ndim == 3 for image in images) else 1
    x = np.empty((len(images), channels, *images[0].shape[:2]), dtype=np.float32)
    for row, image in zip(x, images, strict=True):
        row[...] = image if image.ndim == 2 else image.transpose(2, 0, 1)
    x /= np.float32(255)
    x.flags.writeable = False
    return x


def _damaged(error: Exception, files: list[Path]) -> InvalidInput:
    where = ", ".join(str(file) for file in files)
    message = str(error).strip().splitlines()
    got = f"{type(error).__name__}: {message[0] if message else ''}"
    return InvalidInput("a readable parquet file", got=got, where=where, hint=_AGAIN)


# Labelled texts as sequences of token ids: AG News, and any texts, with a vocabulary of their own words or bytes.


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
        hint = "a smaller length, or short='pad'"
        raise InvalidInput(f"texts of at least {room} tokens", got="none", where=name, hint=hint)
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
    hint = f"make a folder {_FOLDERS[0]} with {split}.csv, and give its parent as data_dir= or {DATA_DIR_VARIABLE}"
    root = data_root(data_dir, "AG News", hint)
    looked = [root / folder / f"{split}.csv" for folder in _FOLDERS]
    path = next((path for path in looked if path.is_file()), None)
    if path is None:
        where = ", ".join(str(path) for path in looked)
        raise InvalidInput(f"AG News ({split}.csv)", got="no such file", where=where, hint=hint)
    labels, texts = list[int](), list[str]()
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            if len(row) != 3 or row[0] not in ("1", "2", "3", "4"):
                expected = "rows of a class from 1 to 4, a title and a description"
                hint = "the CSV files of AG's News Topic Classification"
                raise InvalidInput(expected, got=f"a row of {len(row)} fields", where=str(path), hint=hint)
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
