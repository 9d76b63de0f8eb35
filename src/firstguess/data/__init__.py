"""Data: blobs, embedded digits, IDX, Hugging Face image parquet, `.npz`, and whatever a user hands in.

Two nouns. `Data` is an array of points with optional labels, for the readings that need numbers (closed form, kernel,
ensembles of described networks). `Batch` is one step of a stream, for the ensemble reading of any `nn.Module`.

Nothing here imports torch, pyarrow, Pillow or scikit-learn before it is needed, and nothing draws from a global random
generator.

>>> blob(500, 20).inputs().mean_square < 0.01
True
"""

from firstguess.data.dataset import Classes, Data, InputMoments, Standardization
from firstguess.data.files import Vocabulary, ag_news, idx, parquet, sequences
from firstguess.data.items import Batch
from firstguess.data.sources import (
    blob,
    cifar10,
    cifar100,
    digits,
    fashion_mnist,
    load,
    mnist,
    npz,
    tiny_imagenet,
    two_blobs,
)
from firstguess.data.streams import as_data, batches, collect

__all__ = [
    "Batch", "Classes", "Data", "InputMoments", "Standardization", "Vocabulary", "ag_news", "as_data", "batches",
    "blob", "cifar10", "cifar100", "collect", "digits", "fashion_mnist", "idx", "load", "mnist", "npz", "parquet",
    "sequences", "tiny_imagenet", "two_blobs",
]  # fmt: skip
