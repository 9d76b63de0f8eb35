"""The text form of data, as the shell takes it: `mnist:even-odd`, `blob:n=2000,d=3072`, `folder/file.parquet`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from firstguess.base.errors import InvalidInput
from firstguess.base.files import reads_files
from firstguess.data import files
from firstguess.data.dataset import Data, Standardization
from firstguess.data.files import PathLike, Progress, idx, parquet
from firstguess.data.sources import (
    PREPARED,
    blob,
    cifar10,
    cifar100,
    digits,
    fashion_mnist,
    mnist,
    npz,
    tiny_imagenet,
    two_blobs,
)
from firstguess.data.texts import ag_news

# name -> (numbers it takes, whether it has files with a split)
_NAMES: dict[str, tuple[dict[str, int], bool]] = {
    "blob": ({"n": 2000, "d": 1000, "seed": 0}, False),
    "two_blobs": ({"n": 1000, "d": 1000, "seed": 0}, False),
    "digits": ({}, False),
    "mnist": ({}, True),
    "fashion_mnist": ({}, True),
    "cifar10": ({}, True),
    "cifar100": ({}, True),
    "tiny-imagenet": ({}, True),
    "ag-news": ({"length": 32, "words": 20_000}, True),
}
_FILES = "a .npz or .npy file of NumPy, a .parquet file of images, a folder of IDX or parquet files"
_PARQUET: dict[str, Callable[..., Data]] = {"cifar10": cifar10, "cifar100": cifar100, "tiny-imagenet": tiny_imagenet}
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
    name, _, rest = spec.partition(":")
    name = "tiny-imagenet" if name == "tiny_imagenet" else name  # as its function is called
    if name in _NAMES:
        numbers, has_files = _NAMES[name]
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
        elif name in _PARQUET:
            data = _PARQUET[name](
                data_dir,
                split or "train",
                classes=classes,
                points=points,
                standardize=how,
                seed=seed,
                progress=progress,
            )
        else:
            make_images = mnist if name == "mnist" else fashion_mnist
            data = make_images(data_dir, _two(split), classes=classes, points=points, standardize=how, seed=seed)
    else:
        data = _from_path(spec, points, standardize, seed, progress)
    return data.shift(shift)


def _from_path(
    spec: str, points: int | None, standardize: Standardization | None, seed: int, progress: Progress | None
) -> Data:
    # The last colon ends the path, unless the whole is a path (Windows drives, odd names).
    text, _, rest = (spec, "", "") if Path(spec).exists() or ":" not in spec else spec.rpartition(":")
    path = Path(text).expanduser()
    if text and path.exists() and not (path.is_file() or path.is_dir()):  # a pipe, which may never say anything
        raise InvalidInput(
            "a file or a folder", got=f"{text!r}, a pipe or a device", where="data", hint="save it as .npz"
        )
    if not text or (not path.exists() and path.suffix not in (".npz", ".npy", ".parquet")):
        raise InvalidInput(
            "the name of data, or a path", got=repr(spec), hint=f"one of {', '.join(_NAMES)}; or {_FILES}"
        )
    if path.is_file() and path.suffix not in (".npz", ".npy", ".parquet") and not _is_parquet(path):
        raise InvalidInput(
            "a file of a kind that is known", got=f"a {path.suffix or 'nameless'} file", where=text, hint=_FILES
        )
    if path.suffix in (".npz", ".npy"):
        split, classes, _ = _options(spec, rest, (), splits=True)
        return _choose(npz(path, split), classes, standardize or "none", points, seed)
    split, classes, given = _options(spec, rest, ("label",), splits=True)
    split, how = split or "train", standardize or "channel"
    some = points if how == "none" else None  # else the statistics are those of all
    if path.is_dir() and not given and split in ("train", "test") and files.find_idx(path, split):
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


def _two(split: str | None) -> files.Split:
    if split not in (None, "train", "test"):
        raise InvalidInput('the split "train" or "test"', got=repr(split))
    return "test" if split == "test" else "train"
