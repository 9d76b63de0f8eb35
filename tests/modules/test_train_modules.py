"""Real training of a user's modules: against loops written by hand, one by one and by vmap, and what comes back."""

import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import firstguess as fg
from firstguess.data import Data, collect
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.seeds import member_seeds, orders
from firstguess.modules.engine import ModuleEngine

N, D, BATCH, STEPS = 50, 6, 16, 11
RNG = np.random.default_rng(8)
X, Y = RNG.normal(size=(N, D)).astype(np.float32), RNG.integers(0, 3, N)
XT, YT = RNG.normal(size=(20, D)).astype(np.float32), RNG.integers(0, 3, 20)


class Net(nn.Module):
    """Three classes; with a norm over the batch, and dropout, if asked for."""

    def __init__(self, norm=False, dropout=0.0):
        super().__init__()
        self.a, self.c = nn.Linear(D, 16), nn.Linear(16, 3)
        self.norm = nn.BatchNorm1d(16) if norm else nn.Identity()
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x):
        return self.c(self.drop(torch.tanh(self.norm(self.a(x)))))


def by_hand(make, member, make_optimizer, make_scheduler=None, *, seed=0, loss=F.cross_entropy, batch=BATCH):
    """A member's losses and shares on the training points, accuracy on held-out ones and norms of gradients."""
    with IsolatedRandomness(int(member_seeds(seed, member, member + 1)[0])):
        model = make()
    optimizer = make_optimizer(model.parameters())
    scheduler = None if make_scheduler is None else make_scheduler(optimizer)
    x, y, xt = torch.from_numpy(X), torch.from_numpy(Y), torch.from_numpy(XT)
    order = orders(seed, member, N, batch)
    rows = []
    for _ in range(STEPS + 1):
        twin = Net(norm=isinstance(model.norm, nn.BatchNorm1d))
        twin.load_state_dict(model.state_dict())
        with torch.no_grad():
            logits = twin.train()(x)  # without dropout
            held = model.eval()(xt)
        model.train()
        own = torch.from_numpy(next(order))
        optimizer.zero_grad()
        loss(model(x[own]), y[own]).backward()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
        shares = np.bincount(logits.argmax(1).numpy(), minlength=3) / N
        right = float((held.argmax(1).numpy() == YT).mean())
        rows.append((float(loss(logits, y)), *shares, right, norm))
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return np.array(rows)


def shown(r, index):
    """The same of a result."""
    columns = (r.loss.draws[index], *r.shares[index].T, r.test.accuracy.draws[index], r.gradients.draws[index])
    return np.stack(columns, axis=1)


OPTIMIZERS = {
    "momentum": (partial(torch.optim.SGD, lr=0.1, momentum=0.9), None),
    "adamw": (partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1), None),
    "one cycle": (
        partial(torch.optim.Adam, lr=0.01),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.05, total_steps=STEPS + 1),
    ),
}


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_members_are_those_of_a_loop_by_hand(name, strategy):
    make, schedule = OPTIMIZERS[name]
    r = fg.train(
        Net,
        data=(X, Y),
        test=(XT, YT),
        inits=5,
        optimizer=lambda params: make(params),
        scheduler=schedule,
        batch=BATCH,
        steps=range(STEPS + 1),
        strategy=strategy,
    )
    assert r.steps.tolist() == list(range(STEPS + 1))
    for member in (0, 3, 4):
        np.testing.assert_allclose(shown(r, member), by_hand(Net, member, make, schedule), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize(
    "optimizer", ["sgd", "adam", torch.optim.RMSprop, partial(torch.optim.SGD, nesterov=True, momentum=0.5)]
)
def test_names_classes_and_partials(optimizer):
    made = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}.get(optimizer, optimizer)
    r = fg.train(Net, data=(X, Y), test=(XT, YT), inits=2, optimizer=optimizer, lr=0.02, batch=BATCH, steps=STEPS)
    plain = by_hand(Net, 1, lambda params: made(params, lr=0.02))
    np.testing.assert_allclose(shown(r, 1), plain[r.steps], rtol=2e-4, atol=1e-6)


def test_full_batches_and_a_learning_rate_by_step():
    def rate(step):
        return 0.3 * 0.8**step

    r = fg.train(Net, data=(X, Y), test=(XT, YT), inits=2, optimizer="gd", lr=rate, steps=STEPS, strategy="vmap")
    plain = by_hand(
        Net,
        1,
        lambda params: torch.optim.SGD(params, lr=0.3),
        lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.8),
        batch=None,
    )
    np.testing.assert_allclose(shown(r, 1), plain[r.steps], rtol=2e-4, atol=1e-6)


def test_batchnorm_sees_all_training_points_and_keeps_its_running_statistics():
    make = partial(Net, norm=True)
    r = fg.train(make, data=(X, Y), test=(XT, YT), inits=4, optimizer="adam", lr=0.01, batch=BATCH, steps=STEPS)
    plain = by_hand(make, 1, lambda params: torch.optim.Adam(params, lr=0.01))
    np.testing.assert_allclose(shown(r, 1), plain[r.steps], rtol=2e-4, atol=1e-6)
    assert any("BatchNorm" in note for note in r.notes)


def test_dropout_is_on_in_training_and_a_member_s_own():
    """A member's numbers are the same whoever is trained next to it; the loss without dropout is another one."""
    make = partial(Net, dropout=0.5)
    options = {"data": (X, Y), "optimizer": "adam", "lr": 0.05, "batch": BATCH, "steps": STEPS}
    many, few = fg.train(make, inits=4, **options), fg.train(make, inits=2, **options)
    np.testing.assert_array_equal(many.loss.draws[:2], few.loss.draws)
    plain = by_hand(Net, 1, lambda params: torch.optim.Adam(params, lr=0.05))
    assert many.loss.draws[1, 0] == pytest.approx(plain[0, 0], rel=1e-5)
    assert abs(many.loss.draws[1, -1] - plain[-1, 0]) > 1e-3
    assert any("random" in note for note in many.notes)


def test_starts_are_those_of_measure():
    """Weights of member i are the ensemble's; so are the guesses."""
    model = Net()
    engine = ModuleEngine(model, collect((X, Y)), seed=4)
    r = fg.train(model, data=(X, Y), inits=6, optimizer="adam", batch=BATCH, steps=1, seed=4)
    np.testing.assert_allclose(r.shares[:, 0], engine.run(0, 6).fractions, atol=1e-12)


def test_starts_are_filtered_by_their_guesses():
    make = partial(nn.Linear, D, 2, bias=False)
    x = np.abs(X)
    y = (Y > 0).astype(int)
    r = fg.train(make, data=(x, y), inits=6, start="biased", optimizer="sgd", batch=BATCH, steps=1)
    every = fg.train(make, data=(x, y), inits=r.drawn, optimizer="sgd", batch=BATCH, steps=1)
    assert list(r.members) == [i for i in range(r.drawn) if every.largest.draws[i, 0] >= 0.9]
    np.testing.assert_array_equal(r.shares[:, 0], every.shares[list(r.members), 0])


def test_model_and_generators_come_back_untouched():
    model = Net(norm=True, dropout=0.3)
    model.c.weight.grad = torch.ones_like(model.c.weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    threads = torch.get_num_threads()
    fg.train(model, data=(X, Y), test=(XT, YT), inits=3, optimizer="adam", batch=BATCH, steps=STEPS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert bool((model.c.weight.grad == 1).all())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert random.getstate() == states[2]
    assert torch.get_num_threads() == threads


class NoCopy(Net):
    def __deepcopy__(self, memo):
        raise TypeError("holds a lock")


@pytest.mark.parametrize("given", [NoCopy, NoCopy()], ids=["class", "instance"])
def test_a_model_that_cannot_be_copied_is_lent(given):
    options = {"data": (X, Y), "test": (XT, YT), "inits": 3, "optimizer": "adam", "lr": 0.01, "batch": BATCH}
    before = None if isinstance(given, type) else {n: v.clone() for n, v in given.state_dict().items()}
    r = fg.train(given, steps=STEPS, **options)
    if before is None:
        plain = by_hand(Net, 2, lambda params: torch.optim.Adam(params, lr=0.01))
        np.testing.assert_allclose(shown(r, 2), plain[r.steps], rtol=2e-4, atol=1e-6)
    else:
        assert all(torch.equal(v, before[n]) for n, v in given.state_dict().items())
        assert all(p.grad is None for p in given.parameters())
    assert any("copied" in note for note in r.notes)


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_divergence_is_a_result(strategy):
    class Wild(Net):
        """Some members have a huge output layer."""

        def __init__(self):
            super().__init__()
            with torch.no_grad():
                self.c.weight *= 1e30 if torch.rand(()) < 0.5 else 1.0

    options = {"inits": 8, "optimizer": "sgd", "lr": 1.0, "batch": BATCH, "steps": STEPS, "seed": 3}
    r = fg.train(Wild, data=(X, Y), loss="squared", strategy=strategy, **options)
    lost = {member for member, _ in r.diverged}
    sizes = []
    for member in range(8):
        with IsolatedRandomness(int(member_seeds(3, member, member + 1)[0])):
            sizes.append(float(Wild().c.weight.detach().abs().max()))
    assert lost == {member for member, size in enumerate(sizes) if size > 1e10}
    fine = [i for i in range(8) if i not in lost]
    assert np.isfinite(r.loss.draws[fine]).all()


def test_a_model_that_refuses_nan_has_diverged():
    class Strict(Net):
        def forward(self, x):
            out = super().forward(x)
            if not out.isfinite().all():
                raise ValueError("not finite")
            return out

    r = fg.train(Strict, data=(X, Y), inits=2, loss="squared", optimizer="sgd", lr=1e20, batch=BATCH, steps=STEPS)
    assert {member for member, _ in r.diverged} == {0, 1}


def test_a_loss_of_the_user_s_and_one_logit():
    class One(Net):
        def __init__(self):
            super().__init__()
            self.c = nn.Linear(16, 1)

    y = (Y > 0).astype(int)

    def bce(out, labels):
        return F.binary_cross_entropy_with_logits(out[:, 0], labels.float())

    options = {"data": (X, y), "inits": 2, "optimizer": "adam", "lr": 0.01, "batch": BATCH, "steps": STEPS}
    mine, ours = fg.train(One, loss=bce, **options), fg.train(One, **options)
    np.testing.assert_allclose(mine.loss.draws, ours.loss.draws, rtol=1e-4)
    np.testing.assert_allclose(mine.shares, ours.shares)


def test_forward_and_dicts_are_called_as_measure_calls_them():
    class Named(Net):
        def forward(self, image):
            return super().forward(image)

    options = {"inits": 2, "optimizer": "adam", "lr": 0.01, "batch": BATCH, "steps": STEPS}
    plain = fg.train(Net, data=(X, Y), **options)
    named = fg.train(Named, data={"image": X, "label": Y}, **options)
    by_forward = fg.train(Net, data=(X, Y), forward=lambda model, batch: model(batch[0]), **options)
    pairs = [(torch.from_numpy(X[i : i + 20]), torch.from_numpy(Y[i : i + 20])) for i in range(0, N, 20)]
    for other in (named, by_forward, fg.train(Net, data=pairs, **options)):
        np.testing.assert_allclose(other.loss.draws, plain.loss.draws, rtol=1e-4)


def test_groups_of_parameters_are_kept_by_vmap():
    def make(params):
        matrices, vectors = [p for p in params if p.ndim > 1], [p for p in params if p.ndim < 2]
        return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.5}, {"params": vectors, "lr": 0.0}], lr=0.02)

    options = {"data": (X, Y), "inits": 4, "optimizer": make, "batch": BATCH, "steps": STEPS}
    one, several = (fg.train(Net, strategy=strategy, **options) for strategy in ("loop", "vmap"))
    np.testing.assert_allclose(several.loss.draws, one.loss.draws, rtol=1e-4)


def test_frozen_parameters_stay():
    class Frozen(Net):
        def __init__(self):
            super().__init__()
            self.a.requires_grad_(False)

    options = {"data": (X, Y), "inits": 4, "optimizer": "adam", "lr": 0.05, "batch": BATCH, "steps": STEPS}
    one, several = (fg.train(Frozen, strategy=strategy, **options) for strategy in ("loop", "vmap"))
    np.testing.assert_allclose(several.loss.draws, one.loss.draws, rtol=1e-4)
    assert not np.allclose(one.loss.draws[:, -1], fg.train(Net, **options).loss.draws[:, -1], rtol=1e-3)


def test_lbfgs_takes_its_own_gradients():
    r = fg.train(Net, data=(X, Y), inits=4, optimizer=torch.optim.LBFGS, lr=0.5, steps=3)
    assert bool((r.loss.draws[:, -1] < r.loss.draws[:, 0]).all())
    assert any("by itself" in note for note in r.notes)


def test_a_store_goes_on_with_the_same_numbers(tmp_path):
    options = {"data": (X, Y), "optimizer": torch.optim.AdamW, "batch": BATCH, "steps": STEPS, "store": tmp_path}
    first = fg.train(Net, inits=2, **options)
    files = sorted(path.name for path in tmp_path.glob("*.npz"))
    assert len(files) == 2
    more = fg.train(Net, inits=4, **options)
    np.testing.assert_array_equal(more.loss.draws[:2], first.loss.draws)
    assert len(list(tmp_path.glob("*.npz"))) == 4
    other = fg.train(Net, inits=2, **options, scheduler=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5))
    assert not np.array_equal(other.loss.draws, first.loss.draws)
    assert len(list(tmp_path.glob("*.npz"))) == 6
    fg.train(partial(Net), inits=2, **options, loss=F.cross_entropy)
    assert len(list(tmp_path.glob("*.npz"))) == 8


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_an_interruption_keeps_curves_and_generators(dropout):
    def stop(done, total):
        if done > 0.3 * total:
            raise KeyboardInterrupt

    state = torch.get_rng_state()
    make = partial(Net, dropout=dropout)
    r = fg.train(make, data=(X, Y), inits=2, optimizer="adam", batch=BATCH, steps=20_000, progress=stop)
    assert r.interrupted
    assert np.isfinite(r.loss.draws[0, :5]).all()
    assert np.isnan(r.loss.draws[:, -1]).all()
    assert torch.equal(torch.get_rng_state(), state)
    plain = fg.train(make, data=(X, Y), inits=1, optimizer="adam", batch=BATCH, steps=STEPS, strategy="loop")
    np.testing.assert_allclose(r.loss.draws[0, :8], plain.loss.draws[0, :8], rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"optimizer": "lion"}, "torch.optim"),
        ({"optimizer": lambda params: params}, "an optimizer"),
        ({"optimizer": lambda params: torch.optim.SGD(params), "lr": 0.5}, "within the function"),
        ({"scheduler": torch.optim.lr_scheduler.StepLR}, "scheduler"),
        ({"scheduler": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o)}, "score"),
        ({"scheduler": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=3)}, "as many steps"),
        ({"data": X}, "labelled"),
        ({"data": (X, Y + 1)}, "labels 0…2"),
        ({"data": (X, np.zeros_like(Y))}, "two classes"),
        ({"width": 30}, "width"),
        ({"classes": 5}, "3 classes"),
        ({"loss": "hinge"}, "loss"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(options, word):
    with pytest.raises(fg.InvalidInput, match=word):
        fg.train(Net, **{"data": (X, Y), "inits": 2, "batch": BATCH, "steps": STEPS} | options)


def test_probabilities_and_small_batches_are_refused():
    options = {"data": (X, Y), "inits": 2, "steps": 2}
    with pytest.raises(fg.InvalidInput, match="probabilities"):
        fg.train(lambda: nn.Sequential(Net(), nn.Softmax(1)), **options)
    with pytest.raises(fg.InvalidInput, match="two points or more"):
        fg.train(partial(Net, norm=True), batch=7, **options)
    with pytest.raises(fg.InvalidInput, match="vmap"):
        fg.train(partial(Net, norm=True), batch=25, strategy="vmap", **options)
    with pytest.raises(fg.InvalidInput, match="a factory"):
        fg.train(Data(X, Y), **options)
