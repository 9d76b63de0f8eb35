"""Small data sets as the files that data come in: IDX, PNG and parquet; and where real ones may be."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

# Real data sets, where they are: else tests of them are skipped.
REAL = Path(os.environ.get("FIRSTGUESS_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
ANIMALS = ("ant", "bee", "cow", "dog")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def idx_bytes(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim)) + np.array(array.shape, dtype=">u4").tobytes() + array.astype(np.uint8).tobytes()
    )


def write_idx(folder: Path, *, prefix: str = "train", n: int = 20, zipped: bool = False, mark: str = "-") -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(1).integers(0, 256, (n, 5, 4))
    for kind, array in (("images", images), ("labels", np.arange(n) % 10)):
        content = idx_bytes(array)
        name = f"{prefix}-{kind}{mark}idx{array.ndim}-ubyte"
        path = folder / (name + (".gz" if zipped else ""))
        path.write_bytes(gzip.compress(content) if zipped else content)
    return images


def png(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array.astype(np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


def write_parquet(
    path: Path,
    images: list[bytes | None],
    labels: list[int] | None,
    *,
    image: str = "img",
    label: str = "label",
    names: tuple[str, ...] | None = ANIMALS,
    row_group_size: int = 3,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {image: pa.array([{"bytes": content, "path": None} for content in images], type=kind)}
    if labels is not None:
        columns[label] = pa.array(labels, type=pa.int64())
    table = pa.table(columns)
    if names is not None:
        features = {label: {"names": list(names), "_type": "ClassLabel"}, image: {"_type": "Image"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=row_group_size)


def colours(n: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 4, 6, 3)).astype(np.uint8)


def small_parquet(folder: Path) -> tuple[Path, np.ndarray]:
    """Twelve images of four classes in `folder`/set, and what is in them."""
    images = colours(12)
    path = folder / "set" / "train-00000-of-00001.parquet"
    write_parquet(path, [png(image) for image in images], [i % 4 for i in range(12)])
    return path, images
