"""Image data sets that have a name: where their files are looked for, their splits and classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Known:
    """`class_names` None: those that the files themselves name."""

    title: str
    folders: tuple[str, ...]
    class_names: tuple[str, ...] | None
    files: Literal["idx", "parquet"]
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
    "mnist": Known("MNIST", ("mnist", "MNIST/raw"), tuple("0123456789"), "idx"),
    "fashion_mnist": Known(
        "Fashion-MNIST",
        ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw"),
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        "idx",
    ),
    "cifar10": Known(
        "CIFAR-10",
        ("cifar10", "cifar-10"),
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        "parquet",
    ),
    "cifar100": Known("CIFAR-100", ("cifar100", "cifar-100"), tuple(_CIFAR100.split()), "parquet"),
    # Its test split has no labels anywhere: "valid" is what results are reported on.
    "tiny_imagenet": Known(
        "Tiny ImageNet",
        ("tiny-imagenet", "tiny_imagenet", "tiny-imagenet-200"),
        None,
        "parquet",
        ("train", "valid"),
    ),
}
