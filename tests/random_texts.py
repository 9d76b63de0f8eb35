"""Random descriptions and command lines, most of which mean something: for tests that nothing ends in a traceback."""

from __future__ import annotations

from random import Random

from firstguess.network.activations import registry

NAMES = tuple(registry.names())  # at import: other tests may register their own
GARBAGE = ("", "x", "-1", "1e400", "nan", "inf", "0", "9" * 21, "é", "a" * 300, "1,2", "--json")


def number(r: Random, *, signed: bool = True) -> str:
    """Small whole numbers, ordinary ones, and those at the ends of float64."""
    kind = r.random()
    if kind < 0.4:
        return r.choice(["1", "2", "0.5", "1/3", "0", "3", "1.7", "10", "100"])
    sign = r.choice(["", "-"]) if signed else ""
    if kind < 0.7:
        return f"{sign}{r.uniform(0, 3):.3g}"
    return f"{sign}{r.uniform(1, 9):.2g}e{r.randint(-320, 308)}"


def count(r: Random) -> str:
    return r.choice(["1", "7", "100", "1000", "0", "-1", "1e9", "9" * 11]) if r.random() < 0.3 else str(r.randint(1, 5))


def _dense(r: Random) -> str:
    chances = {
        f"weight_var={number(r, signed=False)}": 0.7,
        f"bias_var={number(r, signed=False)}": 0.3,
        f"width={count(r)}": 0.1,
        f"init={r.choice(['orthogonal', 'uniform', 'normal'])}": 0.1,
    }
    chosen = [argument for argument, chance in chances.items() if r.random() < chance]
    return f"dense({', '.join(chosen)})" if chosen else "dense"


def _layer(r: Random, depth: int) -> str:
    kind = r.random()
    if kind < 0.3:
        return _dense(r)
    if kind < 0.6:
        name = r.choice(NAMES)
        forms = [name] * 13 + [f"leaky_relu({number(r)})", f"elu({number(r)})", f"prelu({number(r)})"]
        return r.choice([*forms, f"centered({name})", f"centered({name})"])
    if kind < 0.68:
        batch = f"batchnorm(batch={count(r)}, mode=leave_one_out)"
        return r.choice(
            ["layernorm", "rmsnorm", "batchnorm", f"batchnorm({count(r)})", batch, f"groupnorm({count(r)})"]
        )
    if kind < 0.75:
        return f"{r.choice(['maxpool', 'avgpool'])}({count(r)})"
    if kind < 0.85:
        return f"{r.choice(['scale', 'shift'])}({number(r)})"
    if kind < 0.87:
        return f"conv(weight_var={number(r, signed=False)}, kernel={count(r)})"
    if kind < 0.95 and depth < 2:
        scale = f"(scale={number(r)})" if r.random() < 0.3 else ""
        shortcut = f" | {_sequence(r, depth + 1)}" if r.random() < 0.3 else ""
        return f"residual{scale}[{_sequence(r, depth + 1)}{shortcut}]"
    return f"{r.randint(1, 9)} x [{_sequence(r, depth + 1)}]" if depth < 3 else "relu"


def _sequence(r: Random, depth: int = 0) -> str:
    return " > ".join(_layer(r, depth) for _ in range(r.randint(1, 4)))


def description(r: Random) -> str:
    """A network at any scale; one in ten has a wrong character."""
    text = _sequence(r) + (" > dense" if r.random() < 0.9 else "")
    if r.random() < 0.1:
        at = r.randrange(len(text))
        text = text[:at] + r.choice(["(", ")", "[", "]", ">", "=", ",", "'", '"', "\0", "é", "1e999"]) + text[at + 1 :]
    return text


DATA = ("digits", "blob:n=20,d=6", "x.npy", "xy.npz", "bad.npy", "bad.npz", "nan.npy", "text.npy", "zero.npy", "t.txt",
        ".", "/none", "mnist", "blob:n=0", "blob:n=1,d=1", "blob:n=99999999999,d=99999999", "digits:even-odd",
        "digits:zz", "two_blobs:n=10,d=3", "a" * 300, "", "blob:q=1", "digits:0,1")  # fmt: skip
_ON_DATA = "--data --data-dir --points --seed --standardize --width --inits --json"
_OPTIONS = {
    "predict": f"{_ON_DATA} --activation --bias-var --classes --compare --depth --draws --figure --layers "
    "--mean-square --norm --placement --pool --shift --variance --weight-var",
    "measure": f"{_ON_DATA} --batch-size --classes --figure --init --precision --shift",
    "diagnose": f"{_ON_DATA} --no-advice --batch-size --init --report",
    "check": f"{_ON_DATA} --batch-size --init --max-gamma",
    "phases": "--bias-range --bias-var --figure --json --weight-range --weight-var",
    "data": "--data-dir --json --points --seed",
    "activations": "--json --q",
}
_FLAGS = ("--json", "--compare", "--layers", "--no-advice")
_FILES = ("f.html", "f.svg", "f.png", "f.gif", "no/f.png", "a" * 300 + ".png", ".")
_RANGES = ("0,1", "1,0", "a,b", "0.1,4", "0:1", "1,1", "-1,1")
_VALUES: dict[str, tuple[str, ...]] = {
    "--data": DATA,
    "--data-dir": (".", "/none", "a" * 300),
    "--figure": _FILES,
    "--report": _FILES,
    "--activation": ("relu", "tanh", "gelu", "nope", "leaky_relu(0.1)", "centered(relu)"),
    "--norm": ("layernorm", "batchnorm", "rmsnorm", "zz"),
    "--placement": ("before", "after", "zz"),
    "--pool": ("2", "3", "max", "0"),
    "--standardize": ("global", "pixel", "channel", "centre", "none", "zz"),
    "--precision": ("float32", "float64", "zz"),
    "--init": ("2,0", "he", "orthogonal", "a,b", "1,2,3", "default"),
    "--bias-range": _RANGES,
    "--weight-range": _RANGES,
}
_NUMBERS = ("--weight-var", "--bias-var", "--q", "--shift", "--mean-square", "--variance", "--max-gamma")


def _value(r: Random, option: str) -> str:
    if r.random() < 0.04:
        return r.choice(GARBAGE)
    if option in _NUMBERS:
        return number(r)
    return r.choice(_VALUES.get(option, ("2", "3", "8", "10", "0", "1")))


def command(r: Random) -> list[str]:
    """A command line of any command but `reproduce`, small enough to run."""
    name = r.choice(list(_OPTIONS))
    options = _OPTIONS[name].split()
    given = r.sample(options, min(len(options), r.randint(0, 4)))
    line = [name]
    if name in ("predict", "measure", "diagnose", "check"):
        usual = ["mlp", "cnn", "dense > relu > dense", "dense > tanh > dense", description(r)]
        line.append(r.choice([*usual, *usual, "torch.nn:Linear", "none:x", "os:path", "json:loads", ""]))
    elif name == "phases":
        line.append(r.choice(["relu", "tanh", "gelu", "zz", "centered(relu)", "leaky_relu(0.2)", "erf"]))
    elif name == "data":
        line.append(r.choice(DATA))
    if name in ("measure", "diagnose", "check"):
        small = {"--inits": "4", "--width": "8", "--points": "12", "--data": r.choice(DATA)}
        line += [text for option, value in small.items() if option not in given for text in (option, value)]
    if name == "diagnose":
        line += ["--seconds", r.choice(["0.2", "0.2", "0", "-1", "nan"])]
    for option in given:
        line += [option] if option in _FLAGS else [option, _value(r, option)]
    return line
