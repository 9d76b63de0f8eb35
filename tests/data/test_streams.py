"""What users hand in, as Data or as batches: streams leave no trace in random generators."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from data_files import numbers
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from firstguess.base.errors import InvalidInput
from firstguess.data import Data, as_data, batches, collect


def test_as_data() -> None:
    x, y = numbers(6, 3), np.arange(6) % 2
    tensor, labels = torch.from_numpy(x), torch.from_numpy(y)
    reference, labelled = Data(x).hash, Data(x, y).hash
    for given_x in (x, x.astype(np.float64), tensor, tensor.double().requires_grad_(), x.tolist(), {"x": x}, (x, None)):
        assert as_data(given_x).hash == reference
    loader = DataLoader(TensorDataset(tensor, labels), batch_size=4)
    for pair in (
        (x, y),
        [x, y],
        (tensor, labels),
        {"pixel_values": tensor, "labels": labels},
        (x.tolist(), y.tolist()),
    ):
        assert as_data(pair).hash == labelled
    for stream in (loader, loader.dataset, iter(loader), [(tensor[:2], labels[:2]), (tensor[2:], labels[2:])]):
        assert as_data(stream).hash == labelled
    data = Data(x, y)
    assert as_data(data) is data
    assert as_data(data, points=2).n == 2
    assert as_data(loader, points=5).n == 5
    assert as_data([{"pixel_values": tensor, "label": labels}]).hash == labelled
    half = as_data(tensor.bfloat16())
    np.testing.assert_array_equal(half.x, tensor.bfloat16().float().numpy())


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ("mnist", "load"),
        (3, "DataLoader"),
        (None, "DataLoader"),
        ({"a": 1}, "keys a"),
        ((np.eye(3), np.arange(2)), "3 labels"),
        ([], "at least one point"),
        ([[1, 2], [3]], "points of one length, but got lengths 1, 2"),
        (torch.zeros(3, 3, device="meta"), "meta"),
        ([torch.zeros(2, 3), torch.zeros(2, 4)], "points of one length, but got lengths 3, 4"),
        (torch.full((2, 2), torch.nan), "4 of 4"),
        ([(torch.zeros(2, 3), torch.zeros(2, 3), None)], "one input"),
    ],
)
def test_bad_as_data(obj: object, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        as_data(obj)


def test_as_data_states_how_many_there_are() -> None:
    for obj in (np.eye(4), DataLoader(TensorDataset(torch.eye(4)), batch_size=3)):
        with pytest.raises(InvalidInput, match="there are 4"):
            as_data(obj, points=9)


def joined(found: list) -> torch.Tensor:
    return torch.cat([batch.inputs for batch in found])


def test_collect_arrays() -> None:
    x, y = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10)
    for obj in (x, x.numpy(), (x, y), [x, y], {"x": x, "y": y}, Data(x.numpy(), y.numpy()), TensorDataset(x, y)):
        found = collect(obj, batch_size=4)
        assert [batch.size for batch in found] == [4, 4, 2]
        assert torch.equal(joined(found), x)
        capped = collect(obj, 7, batch_size=4)
        assert [batch.size for batch in capped] == [4, 3]
    labelled = collect((x, y), 7, batch_size=4)
    chosen = torch.cat([batch.labels for batch in labelled])
    assert torch.equal(joined(labelled), x[chosen])
    assert not torch.equal(chosen, y[:7])  # sorted data must not give its first classes only; fixed seed 0
    assert len(collect(x, 99)) == 1
    assert collect(x.numpy().astype(np.float64))[0].inputs.dtype == torch.float32
    assert collect(x.double())[0].inputs.dtype == torch.float64
    assert collect(x.bfloat16())[0].inputs.dtype == torch.bfloat16
    assert collect([[1, 2], [3, 4]])[0].inputs.tolist() == [[1, 2], [3, 4]]


def test_labels_that_are_texts() -> None:
    """Numbered where all of them are there; of a stream nobody knows which number a text has in the next batch."""
    x, y = np.zeros((3, 2)), np.array(["dog", "ant", "dog"])
    assert as_data((x, y)).class_names == ("ant", "dog")
    assert as_data(([[0, 1], [1, 0]], ["b", "a"])).y.tolist() == [1, 0]
    for whole in ((x, y), {"x": x, "y": y}, {"x": x, "y": y.tolist()}):
        assert collect(whole)[0].labels.tolist() == [1, 0, 1]
    stream = collect([(x, y), {"x": x, "label": y.tolist()}])
    assert [batch.labels for batch in stream] == [None, None]
    assert [batch.aside for batch in stream] == [("item 1",), ("key 'label'",)]
    assert stream[1].item()["label"] == ["dog", "ant", "dog"]


def test_collect_streams() -> None:
    x, y = torch.arange(20.0).reshape(10, 2), torch.arange(10)
    pairs = [(x[:6], y[:6]), (x[6:], y[6:])]
    for obj in (pairs, (pair for pair in pairs), tuple(pairs), DataLoader(TensorDataset(x, y), batch_size=6)):
        found = collect(obj, 8)
        assert [batch.size for batch in found] == [6, 2]
        assert torch.equal(joined(found), x[:8])
        assert torch.equal(torch.cat([batch.labels for batch in found]), y[:8])
    assert [batch.labels for batch in collect([x, x])] == [None, None]
    assert collect([(x,)])[0].inputs is not None
    endless = (x for _ in iter(int, 1))
    assert sum(batch.size for batch in collect(endless, 25)) == 25


class Squares(Dataset):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> dict[str, object]:
        noise = torch.rand(()) + random.random() + np.random.rand()  # noqa: NPY002 - as users' transforms do
        return {"image": index + noise.repeat(2), "label": index}


class Counting(IterableDataset):
    def __iter__(self):
        return ((torch.tensor([float(i)]), i) for i in range(5))


class Pictures(Squares):
    def __getitem__(self, index: int) -> object:
        return Image.new("L", (2, 2))


class Ragged(Squares):
    def __getitem__(self, index: int) -> object:
        return torch.zeros(index + 1)


class Duck:
    """Indexable, as Hugging Face's Dataset is, without being torch's."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, object]:
        if index >= 4:
            raise IndexError
        return {"pixel_values": np.full(3, index, dtype=np.float32), "labels": index}


def test_datasets() -> None:
    found = collect(Squares(), 5, batch_size=3)
    assert [batch.size for batch in found] == [3, 2]
    assert found[0].inputs.shape == (3, 2)
    assert [batch.size for batch in collect(Counting(), batch_size=2)] == [2, 2, 1]
    duck = collect(Duck())[0]
    assert duck.inputs["pixel_values"].shape == (4, 3)
    assert duck.labels.tolist() == [0, 1, 2, 3]
    for dataset in (Pictures(), Ragged()):
        with pytest.raises(InvalidInput, match="collate_fn"):
            collect(dataset)
    foreign = np.arange(6.0).reshape(3, 2).astype(">f8")[::-1]
    assert collect(foreign)[0].inputs[:, 0].tolist() == [4, 2, 0]
    assert collect(np.eye(2, dtype=np.longdouble))[0].inputs.dtype == torch.float32


def test_several_inputs_and_keywords() -> None:
    a, b, y = torch.zeros(5, 2), torch.ones(5, 3), torch.arange(5)
    for obj in ((a, b, y), ((a, b), y), [((a, b), y)], [(a, b, y)]):
        (batch,) = collect(obj)
        assert isinstance(batch.inputs, tuple)
        assert [part.shape for part in batch.inputs] == [(5, 2), (5, 3)]
        assert batch.labels.tolist() == [0, 1, 2, 3, 4]
    assert len(collect((a, b, b))[0].inputs) == 3
    tokens = {"input_ids": torch.ones(5, 4, dtype=torch.long), "attention_mask": torch.full((5, 4), -torch.inf)}
    for obj in ({**tokens, "labels": y, "return_dict": True}, [({**tokens, "return_dict": True}, y)]):
        batch = collect(obj, 3)[0]
        assert list(batch.inputs) == ["input_ids", "attention_mask", "return_dict"]
        assert (batch.size, batch.inputs["input_ids"].shape, batch.inputs["return_dict"]) == (3, (3, 4), True)
        assert len(batch.labels) == 3


def test_dict_like_batches() -> None:
    from collections import UserDict  # what a tokenizer's BatchEncoding is

    class Encoding(UserDict): ...

    batch = collect(Encoding(input_ids=[[1, 2], [3, 4]], label=[0, 1]))[0]
    assert batch.inputs["input_ids"].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InvalidInput, match="padding=True"):
        collect(Encoding(input_ids=[[1, 2], [3]]))


def states() -> list[bytes]:
    legacy = np.random.get_state()  # noqa: NPY002
    return [
        torch.get_rng_state().numpy().tobytes(),
        repr(random.getstate()).encode(),
        repr(legacy[1].tolist()).encode(),
    ]


@pytest.mark.parametrize("own", [False, True])
def test_random_generators_are_untouched(own: bool) -> None:
    generator = torch.Generator().manual_seed(5) if own else None
    loader = DataLoader(Squares(), batch_size=2, shuffle=True, generator=generator)
    before, mine = states(), generator.get_state() if generator else None
    first = collect(loader)
    assert states() == before
    torch.rand(3)  # a user's draw in between must not change what is seen
    second = collect(loader)
    assert torch.equal(joined(first), joined(second))
    collect(loader, 3)
    collect(Squares(), 3)
    as_data(loader)
    if generator is not None and mine is not None:
        assert torch.equal(generator.get_state(), mine)
    order = torch.cat([batch.labels for batch in first]).tolist()
    assert sorted(order) == list(range(9))


def test_random_generators_between_batches() -> None:
    """The consumer's own draws between two batches count, and are not undone at the end."""
    expected = torch.Generator()
    expected.set_state(torch.get_rng_state())
    for _ in batches(DataLoader(Squares(), batch_size=2, shuffle=True)):
        assert torch.rand(()) == torch.rand((), generator=expected)
    assert torch.equal(torch.get_rng_state(), expected.get_state())


def test_random_generators_after_an_error() -> None:
    def failing():
        yield torch.rand(2, 2)
        torch.rand(1)
        raise RuntimeError("disk on fire")

    before = states()
    with pytest.raises(RuntimeError, match="disk on fire"):
        collect(failing())
    assert states() == before


def test_users_tensors_are_untouched() -> None:
    x = torch.zeros(4, 2, requires_grad=True)
    array = np.zeros((4, 2), dtype=np.float32)
    collect(x)
    as_data(x)
    as_data(array)
    assert x.requires_grad
    assert x.grad is None
    assert array.flags.writeable
    data = Data(array)
    collect(data)[0].inputs.fill_(7)  # a model that works in place
    assert data.x.max() == 0


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (torch.zeros(0, 3), "empty data"),
        ([], "empty stream"),
        (iter([]), "read only once"),
        (TensorDataset(torch.zeros(0, 2)), "empty Dataset"),
        ("digits", "load"),
        (3, "builtins.int"),
        (torch.zeros(()), "no tensor"),
        (np.array([["a"]]), "dtype"),
        ({"text": ["a", "b"]}, "key 'text'"),
        ({"labels": torch.zeros(3)}, "no tensor"),
        ({"a": torch.zeros(3, 2), "b": torch.zeros(4, 2)}, r"\[3, 4\]"),
        ((torch.zeros(3, 2), torch.zeros(4)), "3 labels"),
        (torch.tensor([[1.0, 2.0], [torch.inf, 0.0]]), r"1 of 4 entries, first in point 1, entry \(0,\)"),
        ([torch.zeros(3, 2), torch.full((2, 2), torch.nan)], "first in point 3.*batch 1"),
        ({"inputs_embeds": torch.full((2, 2), torch.nan)}, "inputs_embeds"),
    ],
)
def test_bad_streams(obj: object, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        collect(obj)


def test_bad_sizes_are_found_before_anything_is_read() -> None:
    def explode():
        raise AssertionError("was read")
        yield

    for keywords in ({"points": 0}, {"points": 1.5}, {"batch_size": 0}):
        with pytest.raises(InvalidInput):
            batches(explode(), **keywords)


def test_a_loader_with_workers() -> None:
    before = states()
    loader = DataLoader(TensorDataset(torch.arange(6.0)[:, None]), batch_size=2, num_workers=1)
    assert joined(collect(loader, 3))[:, 0].tolist() == [0, 1, 2]
    assert states() == before
