"""Causes in words that people recognise: what a step does, its path and type, never an operator's own name."""

import re
from typing import Any

import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.data import collect
from firstguess.diagnosis import Cause
from firstguess.diagnosis.causes import candidates, lines_of
from firstguess.modules.call_model import fed
from firstguess.modules.flow import Flow, trace_flow
from firstguess.studies import zoo

pytest.importorskip("transformers")

# Operators of autograd whose names are words of the page, too.
ENGLISH = {
    "sum",
    "mean",
    "softmax",
    "sigmoid",
    "tanh",
    "norm",
    "convolution",
    "embedding",
    "max",
    "index",
    "slice",
    "split",
    "where",
}
HANDFUL = ["sequence/bert", "image/vit", "language/gpt2"]
MANY = [
    f"{task}/{kind}"
    for task, kinds in {
        "sequence": "albert bart big_bird canine deberta-v2 distilbert electra ernie esm funnel gpt_neo layoutlm led "
        "longformer mamba mpnet mra nystromformer roberta xlm xlnet",
        "language": "bloom codegen gemma gptj llama mistral opt phi qwen2 rwkv xglm",
        "image": "beit convnext deit dinov2 hiera levit mobilenet_v2 mobilevit poolformer resnet swin",
    }.items()
    for kind in kinds.split()
]


class TorchEncoder(nn.Module):
    """torch's own transformer, read at the last token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
        self.head = nn.Linear(16, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(ids))[:, -1])


class TorchRecurrent(nn.Module):
    """A recurrent network and plain code of every sort: gates, powers, a permutation, a maximum over time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(50, 16), nn.LSTM(16, 16, batch_first=True)
        self.gate, self.head = nn.Linear(16, 16), nn.Linear(32, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.lstm(self.embed(ids))[0]
        found = (found * torch.sigmoid(self.gate(found)) + found.pow(2)).permute(0, 2, 1)
        return self.head(torch.cat([found.amax(2), torch.relu(found).mean(2)], 1))


class TorchImage(nn.Module):
    """Convolutions and functions of torch.nn.functional, on what the tokens look like as a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.first, self.second = nn.Embedding(50, 16), nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        image = nn.functional.gelu(self.first(self.embed(ids)[:, None]))
        image = nn.functional.max_pool2d(nn.functional.silu(self.second(image)) + image, 2)
        return self.head(nn.functional.adaptive_avg_pool2d(image, 1).flatten(1))


TORCH: dict[str, type[nn.Module]] = {
    "torch/encoder": TorchEncoder,
    "torch/recurrent": TorchRecurrent,
    "torch/image": TorchImage,
}


def flow_of(model: Any, inputs: Any) -> Flow:
    with zoo.quiet():
        return trace_flow(model, fed(model, collect(inputs, 16), None), inits=2)


def raw_names(flow: Flow, text: str) -> set[str]:
    """Operators of this model's code that the text names as autograd does."""
    code = {step.kind.removeprefix("code: ").removesuffix(", …") for step in flow.steps if "code: " in step.kind}
    operators = {name for kind in code for name in kind.split(" > ")} - ENGLISH
    words = set(re.findall(r"[a-z0-9_]+", re.sub("`[^`]*`", "", text)))
    return (operators & words) | set(re.findall(r"code before|select before|Backward|aten::", text))


@pytest.mark.parametrize("name", [*HANDFUL, *(pytest.param(one, marks=pytest.mark.slow) for one in MANY)])
def test_no_operator_is_called_by_its_own_name(name: str) -> None:
    try:
        case = zoo.shrunk(name)
    except (fg.FirstguessError, KeyError):
        pytest.skip("not in this transformers, or too large")
    torch.manual_seed(0)
    flow = flow_of(case.make(), case.inputs)
    words = [cause.words for cause in candidates(flow)]
    assert words
    assert not raw_names(flow, "\n".join(words))
    assert not any("plain code" in word for word in words)


@pytest.mark.parametrize("name", [*HANDFUL, *TORCH, *(pytest.param(one, marks=pytest.mark.slow) for one in MANY)])
def test_pages_have_no_operator_either(name: str) -> None:
    torch.manual_seed(0)
    if name in TORCH:
        model, inputs = TORCH[name](), torch.randint(0, 50, (16, 6))
    else:
        try:
            case = zoo.shrunk(name)
        except (fg.FirstguessError, KeyError):
            pytest.skip("not in this transformers, or too large")
        model, inputs = case.make(), case.inputs
    with zoo.quiet():
        d = fg.diagnose(model, inputs, inits=4, seconds=20, progress=False)
    assert not raw_names(flow_of(model, inputs), str(d))


def test_causes_of_bert_have_the_words_of_its_users() -> None:
    case = zoo.shrunk("sequence/bert")
    torch.manual_seed(0)
    words = {cause.words for cause in candidates(flow_of(case.make(), case.inputs), least=0.0)}
    assert "attention (`bert.encoder.layer.0.attention`)" in words
    assert "taking the CLS token (`bert.pooler`)" in words
    assert any("position embeddings" in word for word in words)


def test_embeddings_are_named_in_the_room_of_a_chart() -> None:
    names = ("bert.embeddings.token_type_embeddings", "bert.embeddings.position_embeddings")
    cause = Cause("a … b", "constant", 0.0, 0.7, 0.7, 0.01, names)
    assert cause.words == "token type and position embeddings, the same for all inputs"
    assert cause.short(34) == "token type and position embeddings"


def test_torch_has_words_too() -> None:
    torch.manual_seed(0)
    words = {cause.words for cause in candidates(flow_of(TorchEncoder(), torch.randint(0, 50, (16, 6))), least=0.0)}
    assert "taking the last token (before `head`)" in words
    assert "attention (`encoder.layers.0.self_attn`)" in words


def test_linear_layers_bring_bias_by_their_bias_parameters() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(30, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 200), nn.Linear(200, 2)]
    flow = flow_of(nn.Sequential(*layers), torch.randn(60, 30))
    words = {cause.words for cause in candidates(flow, least=0.0)}
    assert "bias parameters of the 4 Linear layers" in words
    without = nn.Sequential(nn.Linear(30, 200, bias=False), nn.ReLU(), nn.Linear(200, 2, bias=False))
    assert not any("bias" in c.words for c in candidates(flow_of(without, torch.randn(60, 30)), least=0.0))


def test_a_step_that_raises_the_share_when_it_is_gone_is_no_cause() -> None:
    """And what holds the bias down lowers c: neither list has a step of the other direction."""
    numbers: dict[str, Any] = {"error": 0.01, "gamma_before": 2.0, "gamma_after": 1.0, "inits": 9, "points": 99}

    def cause(name: str, added: float, after: float) -> Cause:
        return Cause(
            name, "ReLU", 0.2, 0.2 + added, added, 0.01, (name,), largest_before=0.7, largest_after=after, **numbers
        )

    raised, lowered = cause("a", 0.2, 0.8), cause("b", -0.2, 0.5)
    assert not raised.brings
    assert not raised.holds_down
    assert not lowered.brings
    assert not lowered.holds_down
    assert cause("c", 0.2, 0.6).brings


def test_no_correlation_is_minus_0() -> None:
    """An estimate of 0 that came out at −0.001 is printed as 0.00."""
    small = Cause("a", "ReLU", -0.001, 0.449, 0.45, 0.01, ("a",))
    assert "c 0.00 → 0.45" in "\n".join(lines_of([small], [small], 100))
