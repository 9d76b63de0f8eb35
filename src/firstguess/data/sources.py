"""Data by name: blobs, digits, MNIST, Fashion-MNIST, CIFAR, Tiny ImageNet; `.npz` files; and `load`, by their text."""

from __future__ import annotations

import contextlib
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.base.files import no_pipe, reads_files
from firstguess.base.text import in_bytes
from firstguess.data.dataset import Classes, Data, Standardization, whole_number
from firstguess.data.files import (
    DATA_DIR_VARIABLE,
    PathLike,
    Progress,
    Split,
    ag_news,
    data_root,
    find_idx,
    find_parquet,
    idx,
    needed,
    parquet,
)


@dataclass(frozen=True)
class KnownSet:
    """`class_names` None: those that the files themselves name."""

    title: str
    folders: tuple[str, ...]
    class_names: tuple[str, ...] | None
    files: Literal["idx", "parquet"]
    prepared: Standardization  # wherever it is asked for by name: in [0, 1], then standardized as in the papers
    splits: tuple[str, str] = ("train", "test")


_CIFAR100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
    lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
    pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
    shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
    television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""  # the 100 fine labels, in their order
KNOWN = {
    "mnist": KnownSet("MNIST", ("mnist", "MNIST/raw"), tuple("0123456789"), "idx", "global"),
    "fashion_mnist": KnownSet(
        "Fashion-MNIST", ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw"),
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        "idx", "global",
    ),
    "cifar10": KnownSet(
        "CIFAR-10", ("cifar10", "cifar-10"),
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        "parquet", "channel",
    ),
    "cifar100": KnownSet("CIFAR-100", ("cifar100", "cifar-100"), tuple(_CIFAR100.split()), "parquet", "channel"),
    "tiny_imagenet": KnownSet(  # its test split has no labels anywhere: "valid" is what results are reported on
        "Tiny ImageNet", ("tiny-imagenet", "tiny_imagenet", "tiny-imagenet-200"), None, "parquet", "channel",
        ("train", "valid"),
    ),
}  # fmt: skip
PREPARED: dict[str, Standardization] = {"digits": "global", **{name: known.prepared for name, known in KNOWN.items()}}


class SetOptions(TypedDict, total=False):
    """Options of the data sets that have a name: which classes are kept or joined (`Data.select`), how many points are
    drawn by `seed`, how they are standardized, and a function that is told (images decoded, images in all)."""

    classes: Classes | None
    points: int | None
    standardize: Standardization | None
    seed: int
    progress: Progress | None


INPUT_KEYS = ("x", "X", "inputs", "pixel_values", "input_values", "input_features", "images", "image", "img", "data")
LABEL_KEYS = ("y", "labels", "label", "targets", "target")


def blob(n: int, d: int, *, seed: int = 0) -> Data:
    """`n` points with `d` independent N(0, 1) coordinates, no labels: the input of the theory, (0, 0, 1) in (2).

    Row i depends on (seed, d, i) only. From IGB and NORM (claims.md, GB).

    >>> data = blob(1000, 100)
    >>> data
    Data('blob(n=1000, d=100)', 1000 points of shape (100,), no labels)
    >>> print("mean {:.3f}, mean square {:.3f}, variance {:.3f}".format(*data.inputs()))
    mean 0.004, mean square 0.001, variance 0.992
    """
    n, d = whole_number(n, "n", 1), whole_number(d, "d", 1)
    x = _normal(n, d, seed)
    x.flags.writeable = False
    return Data(x, name=f"blob(n={n}, d={d}{_seed_text(seed)})")


def two_blobs(n_per_class: int, d: int, *, seed: int = 0) -> Data:
    """Two Gaussian blobs of unit variance, centred at −1/√d (class 0) and +1/√d (class 1) in every coordinate.

    The classes alternate, so every segment of the data is balanced. NORM App. G.1, with 10 000 points per class.

    >>> data = two_blobs(500, 25)
    >>> data.y[:4].tolist(), data.class_names
    ([0, 1, 0, 1], ('minus', 'plus'))
    """
    n, d = whole_number(n_per_class, "n_per_class", 1), whole_number(d, "d", 1)
    x = _normal(2 * n, d, seed)  # first: it refuses what does not fit, and a billion labels are gigabytes too
    y = np.tile(np.array([0, 1], dtype=np.int64), n)
    x += ((2 * y[:, None] - 1) / np.sqrt(d)).astype(np.float32)
    x.flags.writeable = False
    return Data(x, y, name=f"two_blobs(n={n}, d={d}{_seed_text(seed)})", class_names=("minus", "plus"))


def digits(*, standardize: Standardization | None = None) -> Data:
    """The 1797 hand-written digits inside scikit-learn, as (1, 8, 8): real data without a download.

    As wherever "digits" is a name: in [0, 1], then standardized, all entries together ("none": left in [0, 1]).

    >>> digits()
    Data('digits, standardized (global)', 1797 points of shape (1, 8, 8), 10 classes)
    >>> print("mean {:.4f}, mean square {:.4f}, variance {:.4f}".format(*digits(standardize="none").inputs()))
    mean 0.3053, mean square 0.1613, variance 0.0733
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        hint = "pip install 'firstguess[digits]'"
        raise InvalidInput("scikit-learn, which holds the digits", got="no such module", hint=hint) from error
    bunch: Any = load_digits()
    class_names = tuple(str(digit) for digit in range(10))
    raw = Data(
        bunch.images[:, None].astype(np.float32) / np.float32(16), bunch.target, name="digits", class_names=class_names
    )
    return raw.standardize(standardize or PREPARED["digits"])


@reads_files
def mnist(data_dir: PathLike | None = None, split: Split = "train", **options: Unpack[SetOptions]) -> Data:
    """MNIST as (n, 1, 28, 28), from its IDX files or a Hugging Face parquet.

    Looks in `data_dir` (default: the environment variable FIRSTGUESS_DATA) and its folders `mnist` and `MNIST/raw`.
    `classes="even-odd"` is the papers' E&O. As wherever "mnist" is a name: in [0, 1], then standardized by all points
    of the split and classes ("none": left in [0, 1]), before `points` of them are drawn.
    """
    return prepared("mnist", data_dir, split, **options)


@reads_files
def fashion_mnist(data_dir: PathLike | None = None, split: Split = "train", **options: Unpack[SetOptions]) -> Data:
    """Fashion-MNIST as (n, 1, 28, 28); looks in `fashion-mnist`, `fashion_mnist` and `FashionMNIST/raw`.

    `classes="parity"` joins even and odd labels: the papers' BF. Prepared as `mnist` is.
    """
    return prepared("fashion_mnist", data_dir, split, **options)


@reads_files
def cifar10(data_dir: PathLike | None = None, split: Split = "train", **options: Unpack[SetOptions]) -> Data:
    """CIFAR-10 as (n, 3, 32, 32), from a Hugging Face parquet in the folder `cifar10`.

    `classes="cat-dog"` is NORM's C2-A, `classes="vehicles-animals"` its C2-B. Prepared as `mnist` is, but by channel;
    with "none" only the rows kept are decoded.
    """
    return prepared("cifar10", data_dir, split, **options)


@reads_files
def cifar100(data_dir: PathLike | None = None, split: Split = "train", **options: Unpack[SetOptions]) -> Data:
    """CIFAR-100 as (n, 3, 32, 32) with its 100 fine labels, from a Hugging Face parquet in the folder `cifar100`.

    Prepared as `cifar10` is. For the 20 coarse labels read the file itself: `parquet(path, label="coarse_label")`.
    """
    return prepared("cifar100", data_dir, split, **options)


@reads_files
def tiny_imagenet(
    data_dir: PathLike | None = None, split: Literal["train", "valid"] = "train", **options: Unpack[SetOptions]
) -> Data:
    """Tiny ImageNet as (n, 3, 64, 64), 200 classes, from a Hugging Face parquet in the folder `tiny-imagenet`.

    Prepared as `cifar10` is: standardizing reads all images of the split, 0.5 GB of numbers for the 10 000 of "valid",
    ten times that for "train"; `standardize="none"` with `points` decodes those alone.
    """
    return prepared("tiny_imagenet", data_dir, split, **options)


def npz(path: PathLike, split: str | None = None, *, x: str | None = None, y: str | None = None) -> Data:
    """Points and labels from a NumPy `.npz` file, or points alone from an `.npy` file, taken as they are.

    Bytes are not scaled to [0, 1]. Labels that are texts name their classes.

    Args:
        path: The file. Pickled objects in it are refused.
        split: "train" reads `x_train` and `y_train`.
        x: The key of the points; default `x`, `inputs`, `images` or `data`.
        y: The key of the labels; default `y`, `labels` or `targets`, none if there is no such key. An array
            `class_names` gives the names.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", x=np.eye(3), y=["cat", "dog", "dog"])
    ...     print(npz(f"{folder}/mine.npz"))
    Data('mine', 3 points of shape (3,), 2 classes)
    """
    path = Path(path)
    suffix = f"_{split}" if split else ""
    labels, names = None, None
    try:
        with no_pipe(path).open("rb") as raw:  # opened here: np.load leaves a broken file open
            start = raw.read(6)
            raw.seek(0)
            if not start.startswith((b"PK", b"\x93NUMPY")):  # np.load takes all else for a pickle
                raise ValueError("not a NumPy file")
            file: Any = np.load(raw, allow_pickle=False)
            if isinstance(file, np.lib.npyio.NpzFile):
                keys = list(file.files)
                x = _key(keys, x, tuple(key + suffix for key in INPUT_KEYS), path, required=True)
                y = _key(keys, y, tuple(key + suffix for key in LABEL_KEYS), path, required=False)
                points, labels = file[str(x)], None if y is None else file[y]
                names = tuple(str(name) for name in file["class_names"]) if "class_names" in keys else None
            elif split or x or y:
                expected = "an .npz archive, which has keys"
                raise InvalidInput(expected, got="a single array (.npy)", where=str(path), hint="np.savez")
            else:
                points = file
    except FileNotFoundError:
        expected = f"an existing {path.suffix or '.npz'} file"
        raise InvalidInput(expected, got="no such file", where=str(path), hint="check the path") from None
    except InvalidInput:
        raise
    except Exception as error:  # NumPy's reader of headers raises whatever Python's own parser does
        objects = "allow_pickle" in str(error)  # NumPy's own advice, which runs whatever code the file holds
        expected = f"a readable {path.suffix or '.npz'} file of plain arrays"
        got = "arrays of Python objects, which are not read" if objects else f"{type(error).__name__}: {error}"
        hint = "np.savez(path, x=x.astype(np.float32), y=y.astype(str))" if objects else "np.savez(path, x=..., y=...)"
        raise InvalidInput(expected, got=got, where=str(path), hint=hint) from error
    return Data(points, labels, name=path.stem + (f" {split}" if split else ""), class_names=names)


def prepared(key: str, data_dir: PathLike | None, split: str, **options: Unpack[SetOptions]) -> Data:
    """Data in [0, 1], standardized by all points, of which `points` are then drawn: the same ones for everybody."""
    how = options.pop("standardize", None) or PREPARED[key]
    if how == "none":
        return _known(key, data_dir, split, **options)
    points = options.pop("points", None)
    data = _known(key, data_dir, split, **options).standardize(how)
    return data if points is None else data.subset(points, options.get("seed", 0))


def _known(key: str, data_dir: PathLike | None, split: str, *, progress: Progress | None = None, **rest: Any) -> Data:
    known = KNOWN[key]
    settings: dict[str, Any] = {
        **rest,
        "class_names": known.class_names,
        "name": f"{key.replace('tiny_', 'tiny-')} {split}",
    }
    if split not in known.splits:
        raise InvalidInput(f'the split "{known.splits[0]}" or "{known.splits[1]}"', got=repr(split), where=known.title)
    files = f"{split}-*.parquet" if known.files == "parquet" else "the IDX files"
    hint = needed(split) if known.files == "idx" else f"put Hugging Face's {split}-00000-of-00001.parquet there"
    ask = f"make a folder {known.folders[0]}, {hint}, and give its parent as data_dir= or {DATA_DIR_VARIABLE}"
    root = data_root(data_dir, known.title, ask)
    looked = [root / folder for folder in known.folders]
    # The root itself counts too, unless it is another data set's folder: MNIST and Fashion-MNIST share file names.
    foreign = (folder for other in KNOWN.values() if other is not known for folder in other.folders)
    others = {name for folder in foreign for name in (folder, folder.split("/")[0])}
    if not {root.name, f"{root.parent.name}/{root.name}"} & others:
        looked.append(root)
    for folder in looked:
        if not folder.is_dir():
            continue
        if known.files == "idx" and split in ("train", "test") and find_idx(folder, split) is not None:
            return idx(folder, split, **settings)
        # In the root a parquet file may be anything's; in a folder of the right name it is this data set's.
        if (folder is not root or root.name in known.folders) and find_parquet(folder, split):
            return parquet(folder, split, progress=progress, **settings)
    raise InvalidInput(
        f"{known.title} ({files} of the split {split!r})",
        got="no such files",
        where=", ".join(str(folder) for folder in looked),
        hint=f"{hint}, or give the folder's parent as data_dir= or {DATA_DIR_VARIABLE}",
    )


def _key(keys: list[str], asked: str | None, usual: tuple[str, ...], path: Path, *, required: bool) -> str | None:
    found = asked if asked is not None else next((key for key in usual if key in keys), None)
    if (asked is not None or required) and found not in keys:
        expected = f"an array {asked!r}" if asked is not None else f"an array named {', '.join(usual)}"
        got = f"arrays {', '.join(keys)}" if keys else "an empty archive"
        raise InvalidInput(expected, got=got, where=str(path), hint='npz(path, x="name", y="name")')
    return found


def _normal(n: int, d: int, seed: int) -> Any:
    """Refuse what would not fit in memory twice: as the data, and as what a network is fed with."""
    whole_number(seed, "seed", 0, "a seed that is not negative")
    needs, free = 2 * 4.0 * n * d, math.inf
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not every system tells
        free = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if needs > 0.9 * free:
        expected = f"data that fit in memory ({in_bytes(free)})"
        hint = f"n={max(1, int(0.5 * free / (8.0 * d)))}"
        raise InvalidInput(expected, got=f"{n} points of {d} numbers: {in_bytes(needs)}", where="blob", hint=hint)
    return np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)


def _seed_text(seed: int) -> str:
    return "" if seed == 0 else f", seed={seed}"


# The text form of data, as the shell takes it: `mnist:even-odd`, `blob:n=2000,d=3072`, `folder/file.parquet`.

_NAMES: dict[str, dict[str, int]] = {  # the numbers that each takes
    "blob": {"n": 2000, "d": 1000, "seed": 0},
    "two_blobs": {"n": 1000, "d": 1000, "seed": 0},
    "digits": {},
    **{name.replace("tiny_", "tiny-"): {} for name in KNOWN},
    "ag-news": {"length": 32, "words": 20_000},
}
_FILES = "a .npz or .npy file of NumPy, a .parquet file of images, a folder of IDX or parquet files"
_SPLITS = ("train", "test", "validation", "valid")


def names() -> list[str]:
    """Data that have a name."""
    return list(_NAMES)


@reads_files
def load(
    spec: str,
    *,
    data_dir: PathLike | None = None,
    points: int | None = None,
    standardize: Standardization | None = None,
    shift: float = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Data:
    """Data from its text form: `name` or `name:option,option`.

    | text | data |
    |---|---|
    | `blob:n=2000,d=3072`, `two_blobs:n=1000,d=100` | Gaussian blobs (`n` a class for two blobs; `seed=` too) |
    | `digits`, `digits:even-odd` | scikit-learn's digits |
    | `mnist`, `mnist:test`, `mnist:test,even-odd` | a split and a choice of classes, see `Data.select` |
    | `fashion_mnist:parity`, `cifar10:cat-dog`, `cifar10:vehicles-animals`, `cifar100:test` | |
    | `tiny-imagenet:valid` | its splits are `train` and `valid` |
    | `ag-news`, `ag-news:length=64,words=0` | token ids of its test split; `words=0`: bytes |
    | `file.npz`, `file.npy`, `file.parquet`, `folder`, `folder:test,cat-dog` | files; `label=` for parquet |

    A name gives what the function of that name gives, `load("digits")` what `fg.data.digits()`. Steps in order:
    classes, `standardize`, `points` drawn by `seed`, `shift`. The default standardization: "channel" for CIFAR (as in
    the papers), Tiny ImageNet and image files; "global" for digits, MNIST and Fashion-MNIST, which is the same with one
    channel; "none" for blobs, `.npz` and `.npy`. Its statistics are those of all points, whichever are then drawn.

    >>> load("blob:n=50,d=4")
    Data('blob(n=50, d=4)', 50 points of shape (4,), no labels)
    >>> load("digits:even-odd", points=100)
    Data('digits, even vs odd, standardized (global), 100 points', 100 points of shape (1, 8, 8), 2 classes)
    """
    if not isinstance(spec, str | os.PathLike):
        raise InvalidInput("data as text, or a path", got=spec, where="load", hint='fg.data.load("digits")')
    spec = os.fspath(spec)
    name, _, rest = spec.partition(":")
    name = "tiny-imagenet" if name == "tiny_imagenet" else name  # as its function is called
    if name in _NAMES:
        numbers, has_files = _NAMES[name], name not in ("blob", "two_blobs", "digits")
        how = standardize or PREPARED.get(name.replace("-", "_"), "none")
        split, classes, given = _options(spec, rest, tuple(numbers), splits=has_files)
        if name in ("blob", "two_blobs"):
            values = {key: _number(spec, key, given.get(key), number) for key, number in numbers.items()}
            make = blob if name == "blob" else two_blobs
            data = _choose(make(values["n"], values["d"], seed=values["seed"]), classes, how, points, seed)
        elif name == "digits":
            data = _choose(digits(standardize="none"), classes, how, points, seed)
        elif name == "ag-news":
            if standardize not in (None, "none"):
                raise InvalidInput("token ids as they are", got=f"standardize={standardize!r}", where=name, hint="none")
            length, words = (_number(spec, key, given.get(key), number) for key, number in numbers.items())
            data = ag_news(
                data_dir, split or "test", length=length, words=words, classes=classes, points=points, seed=seed
            )
        else:
            options: SetOptions = {"classes": classes, "points": points, "standardize": how, "seed": seed}
            options["progress"] = progress
            data = prepared(name.replace("-", "_"), data_dir, split or "train", **options)
    else:
        data = _from_path(spec, points, standardize, seed, progress)
    return data.shift(shift)


def _from_path(
    spec: str, points: int | None, standardize: Standardization | None, seed: int, progress: Progress | None
) -> Data:
    # The last colon ends the path, unless the whole is a path (Windows drives, odd names).
    text, _, rest = (spec, "", "") if Path(spec).exists() or ":" not in spec else spec.rpartition(":")
    path = no_pipe(Path(text).expanduser())
    if not text or (not path.exists() and path.suffix not in (".npz", ".npy", ".parquet")):
        hint = f"one of {', '.join(_NAMES)}; or {_FILES}"
        raise InvalidInput("the name of data, or a path", got=repr(spec), hint=hint)
    if path.is_file() and path.suffix not in (".npz", ".npy", ".parquet") and not _is_parquet(path):
        expected = "a file of a kind that is known"
        raise InvalidInput(expected, got=f"a {path.suffix or 'nameless'} file", where=text, hint=_FILES)
    if path.suffix in (".npz", ".npy"):
        split, classes, _ = _options(spec, rest, (), splits=True)
        return _choose(npz(path, split), classes, standardize or "none", points, seed)
    split, classes, given = _options(spec, rest, ("label",), splits=True)
    split, how = split or "train", standardize or "channel"
    some = points if how == "none" else None  # else the statistics are those of all
    if path.is_dir() and not given and split in ("train", "test") and find_idx(path, split):
        data = idx(path, split, classes=classes, points=some, seed=seed)
    else:
        label = given.get("label")
        data = parquet(path, split, classes=classes, points=some, seed=seed, label=label, progress=progress)
    return data if how == "none" else _choose(data, None, how, points, seed)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _options(
    spec: str, text: str, keys: tuple[str, ...], *, splits: bool
) -> tuple[str | None, str | None, dict[str, str]]:
    split, classes = None, None
    given: dict[str, str] = {}
    for option in (part.strip() for part in text.split(",") if part.strip()):
        key, equals, value = option.partition("=")
        if equals and key.strip() in keys:
            given[key.strip()] = value.strip()
        elif equals:
            allowed = ", ".join(f"{key}=" for key in keys) or "a split or classes, such as test,even-odd"
            raise InvalidInput("an option of this data", got=repr(option), where=repr(spec), hint=allowed)
        elif splits and split is None and option in _SPLITS:
            split = option
        elif classes is None:
            classes = option
        else:
            raise InvalidInput("one choice of classes", got=f"{classes!r} and {option!r}", where=repr(spec))
    return split, classes, given


def _choose(data: Data, classes: str | None, how: Standardization, points: int | None, seed: int) -> Data:
    data = (data if classes is None else data.select(classes)).standardize(how)
    return data if points is None else data.subset(points, seed)


def _number(spec: str, key: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InvalidInput(f"a whole number for {key}", got=repr(text), where=repr(spec))
    return int(text)
