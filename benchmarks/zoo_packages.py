"""Models of PyPI packages that run without torchvision: each a function that gives a model and its inputs, made small.

`python -m venv`, `pip install --no-deps` what is listed in PACKAGES next to our own environment, and run zoo.py there;
a package that is not installed is left out.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from firstguess.studies.zoo import ZooModel

PACKAGES = (
    "x-transformers vit-pytorch tab-transformer-pytorch rtdl-revisiting-models pytorch-tabnet ncps snntorch mambapy "
    "pytorch-tcn g-mlp-pytorch mlp-mixer-pytorch conformer linformer performer-pytorch torch-geometric "
    "linear-attention-transformer timm einops monai segmentation-models-pytorch deepctr-torch "
    "loguru local-attention x-mlps-pytorch xxhash beartype hyper-connections axial-positional-embedding einx "
    "frozendict product-key-memory colt5-attention torch-einops-utils"
)


class _Named(type):
    def __getattr__(cls, name: str) -> str:
        return name if name[:2] != "__" else str(_missing(name))


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An empty torchvision, for packages that import it for weights and pictures only."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: Any) -> None:
        module.__version__ = "0"
        module.__getattr__ = lambda name: _Named(name, (nn.Module,), {}) if name[:2] != "__" else _missing(name)


def _words(names: str) -> list[str]:
    return names.split()


def _missing(name: str) -> None:
    raise AttributeError(name)


if importlib.util.find_spec("torchvision") is None:
    sys.meta_path.append(_Absent())
_STREAM = torch.Generator().manual_seed(32)
X, SERIES = torch.randn(48, 12, generator=_STREAM), torch.randn(48, 10, 12, generator=_STREAM)
IMAGES = torch.randn(24, 3, 32, 32, generator=_STREAM)
IDS, CATEGORIES = torch.randint(0, 100, (48, 8), generator=_STREAM), torch.randint(0, 5, (48, 3), generator=_STREAM)
EDGES = torch.stack([torch.arange(48), torch.arange(48).roll(1)])
VIT: dict[str, Any] = dict(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=4, mlp_dim=64)


class First(nn.Module):
    """The first of what a model returns, at its last step where it returns all of them; `more` inputs are the same."""

    def __init__(self, inner: nn.Module, *more: Any, last: bool = False) -> None:
        super().__init__()
        self.inner, self._more, self._last = inner, more, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.inner(x, *self._more)
        found = found[0] if isinstance(found, tuple) else found
        return found[:, -1] if self._last else found


def _vit(module: str, name: str = "ViT", **more: Any) -> Callable[[], ZooModel]:
    def made() -> ZooModel:
        cls = getattr(importlib.import_module(f"vit_pytorch.{module}"), name)
        options = {key: value for key, value in (VIT | more).items() if value is not None}
        return ZooModel(lambda: cls(**options), IMAGES, f"vit_pytorch.{name}")

    return made


def _timm(name: str, **more: Any) -> Callable[[], ZooModel]:
    def made() -> ZooModel:
        timm: Any = importlib.import_module("timm")
        side = more.get("img_size", 32)
        x = IMAGES if side == 32 else torch.randn(12, 3, side, side, generator=torch.Generator().manual_seed(32))
        return ZooModel(lambda: timm.create_model(name, pretrained=False, num_classes=5, **more), x, f"timm {name}")

    return made


def _of(path: str, x: Any, build: Callable[[Any], nn.Module]) -> Callable[[], ZooModel]:
    def made() -> ZooModel:
        module = importlib.import_module(path)
        return ZooModel(lambda: build(module), x, path)

    return made


class Middle(nn.Module):
    """What a segmentation model says of the pixel in the middle: (points, classes)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.inner(x)
        found = found[0] if isinstance(found, list | tuple) else found
        return found[:, :, found.shape[2] // 2, found.shape[3] // 2]


def _segmented(name: str) -> Callable[[], ZooModel]:
    """Of segmentation_models_pytorch, on top of a small ResNet of timm."""

    def made() -> ZooModel:
        cls = getattr(importlib.import_module("segmentation_models_pytorch"), name)
        return ZooModel(
            lambda: Middle(cls(encoder_name="tu-resnet10t", encoder_weights=None, classes=5)),
            torch.randn(12, 3, 64, 64, generator=torch.Generator().manual_seed(32)),
            f"segmentation_models_pytorch {name}",
        )

    return made


def _clicks(name: str) -> Callable[[], ZooModel]:
    """Of deepctr_torch: three categories and four numbers in, the probability of a click out."""

    def made() -> ZooModel:
        inputs: Any = importlib.import_module("deepctr_torch.inputs")
        cls = getattr(importlib.import_module("deepctr_torch.models"), name)
        columns = [inputs.SparseFeat(f"c{i}", vocabulary_size=5, embedding_dim=8) for i in range(3)]
        columns += [inputs.DenseFeat(f"x{i}", 1) for i in range(4)]
        x = torch.cat([CATEGORIES.float(), X[:, :4]], dim=1)
        given = (columns,) if name == "PNN" else (columns, columns)

        def make() -> nn.Module:  # they set torch's seed themselves, from an argument: one that is drawn
            return cls(*given, task="binary", seed=int(torch.randint(2**31, (1,))))

        return ZooModel(make, x, f"deepctr_torch {name}")

    return made


def _graph(name: str, **more: Any) -> Callable[[], ZooModel]:
    class Net(nn.Module):
        def __init__(self, conv: Any) -> None:
            super().__init__()
            self.one, self.two = conv(12, 32, **more), conv(32, 5, **more)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(torch.relu(self.one(x, EDGES)), EDGES)

    def made() -> ZooModel:
        conv = getattr(importlib.import_module("torch_geometric.nn"), name)
        return ZooModel(lambda: Net(conv), X, f"torch_geometric {name}")

    return made


def _tower(m: Any, **more: Any) -> nn.Module:
    return m.TransformerWrapper(num_tokens=100, max_seq_len=16, attn_layers=m.Decoder(dim=32, depth=2, heads=4, **more))


CASES: dict[str, Callable[[], ZooModel]] = {
    **{
        f"x-transformers/{n}": _of("x_transformers", IDS, lambda m, o=o: _tower(m, **o))
        for n, o in {
            "decoder": {},
            "rotary": {"rotary_pos_emb": True},
            "rmsnorm": {"use_rmsnorm": True},
            "glu": {"ff_glu": True},
            "alibi": {"alibi_pos_bias": True},
            "sandwich": {"sandwich_norm": True},
            "macaron": {"macaron": True},
            "qk norm": {"attn_qk_norm": True},
            "post-norm": {"pre_norm": False},
            "relu²": {"ff_relu_squared": True},
        }.items()
    },
    "vit-pytorch/vit": _vit("vit"),
    "vit-pytorch/simple": _vit("simple_vit", "SimpleViT"),
    "vit-pytorch/deepvit": _vit("deepvit", "DeepViT"),
    "vit-pytorch/cait": _vit("cait", "CaiT", cls_depth=1),
    "vit-pytorch/parallel": _vit("parallel_vit"),
    "vit-pytorch/small data": _vit("vit_for_small_dataset"),
    "vit-pytorch/registers": _vit("simple_vit_with_register_tokens", "SimpleViT"),
    "vit-pytorch/patch dropout": _vit("vit_with_patch_dropout"),
    **{
        f"vit-pytorch/{n}": _vit(f"simple_vit_with_{n.replace(' ', '_')}", "SimpleViT")
        for n in ("value residual", "relative proj pos bias")
    },
    "vit-pytorch/patch merger": _vit("vit_with_patch_merger", patch_merge_layer=1, patch_merge_num_tokens=4),
    "vit-pytorch/normalized": _vit("normalized_vit", "nViT"),
    "vit-pytorch/keel": _vit("vit_with_keel_post_ln"),
    "mlp-mixer/mixer": _of(
        "mlp_mixer_pytorch",
        IMAGES,
        lambda m: m.MLPMixer(image_size=32, channels=3, patch_size=8, dim=32, depth=2, num_classes=5),
    ),
    "g-mlp/vision": _of(
        "g_mlp_pytorch", IMAGES, lambda m: m.gMLPVision(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2)
    ),
    "g-mlp/language": _of("g_mlp_pytorch", IDS, lambda m: m.gMLP(num_tokens=100, dim=32, depth=2, seq_len=8)),
    "linear-attention/lm": _of(
        "linear_attention_transformer",
        IDS,
        lambda m: m.LinearAttentionTransformerLM(num_tokens=100, dim=32, heads=4, depth=2, max_seq_len=8),
    ),
    "performer/lm": _of(
        "performer_pytorch", IDS, lambda m: m.PerformerLM(num_tokens=100, max_seq_len=8, dim=32, depth=2, heads=4)
    ),
    "linformer/lm": _of(
        "linformer", IDS, lambda m: m.LinformerLM(num_tokens=100, dim=32, seq_len=8, depth=2, heads=4, k=4)
    ),
    "tab-transformer/ft": _of(
        "tab_transformer_pytorch",
        X,
        lambda m: First(
            _Continuous(m.FTTransformer(categories=(5, 5, 5), num_continuous=12, dim=16, dim_out=4, depth=2, heads=2))
        ),
    ),
    "rtdl/mlp": _of(
        "rtdl_revisiting_models", X, lambda m: m.MLP(d_in=12, d_out=5, n_blocks=3, d_block=32, dropout=0.1)
    ),
    "rtdl/resnet": _of(
        "rtdl_revisiting_models",
        X,
        lambda m: m.ResNet(
            d_in=12, d_out=5, n_blocks=2, d_block=32, d_hidden=None, d_hidden_multiplier=2.0, dropout1=0.1, dropout2=0.0
        ),
    ),
    "rtdl/ft": _of(
        "rtdl_revisiting_models",
        X,
        lambda m: First(
            m.FTTransformer(
                n_cont_features=12,
                cat_cardinalities=[],
                d_out=5,
                n_blocks=2,
                d_block=32,
                attention_n_heads=4,
                attention_dropout=0.1,
                ffn_d_hidden=None,
                ffn_d_hidden_multiplier=4 / 3,
                ffn_dropout=0.1,
                residual_dropout=0.0,
            ),
            None,
        ),
    ),
    "tabnet/tabnet": _of(
        "pytorch_tabnet.tab_network", X, lambda m: First(m.TabNet(12, 5, group_attention_matrix=torch.eye(12)))
    ),
    "ncps/cfc": _of("ncps.torch", SERIES, lambda m: First(m.CfC(12, 20, proj_size=5), last=True)),
    "ncps/ltc": _of(
        "ncps.torch",
        SERIES,
        lambda m: First(m.LTC(12, importlib.import_module("ncps.wirings").AutoNCP(24, 5)), last=True),
    ),
    "snntorch/leaky": _of(
        "snntorch", X, lambda m: nn.Sequential(nn.Linear(12, 32), m.Leaky(beta=0.9, init_hidden=True), nn.Linear(32, 5))
    ),
    "mambapy/mamba": _of(
        "mambapy.mamba",
        SERIES,
        lambda m: nn.Sequential(
            nn.Linear(12, 32), First(m.Mamba(m.MambaConfig(d_model=32, n_layers=2)), last=True), nn.Linear(32, 5)
        ),
    ),
    "pytorch-tcn/tcn": _of(
        "pytorch_tcn",
        SERIES.transpose(1, 2).contiguous(),
        lambda m: nn.Sequential(m.TCN(12, [16, 16]), nn.Flatten(), nn.Linear(160, 5)),
    ),
    "conformer/block": _of(
        "conformer",
        SERIES,
        lambda m: nn.Sequential(
            nn.Linear(12, 32), First(m.ConformerBlock(dim=32, dim_head=8, heads=4), last=True), nn.Linear(32, 5)
        ),
    ),
    **{
        f"torch-geometric/{n}": _graph(n)
        for n in _words(
            "GCNConv SAGEConv GATConv TAGConv GraphConv TransformerConv GATv2Conv ARMAConv SGConv LEConv "
            "ClusterGCNConv ResGatedGraphConv FeaStConv MFConv GENConv FiLMConv SuperGATConv GeneralConv"
        )
    },
    "torch-geometric/ChebConv": _graph("ChebConv", K=3),
    "torch-geometric/SSGConv": _graph("SSGConv", alpha=0.1),
    **{
        f"segmentation-models/{n}": _segmented(n)
        for n in _words("Unet UnetPlusPlus MAnet Linknet FPN PSPNet DeepLabV3 DeepLabV3Plus UPerNet Segformer")
    },
    **{f"deepctr/{n}": _clicks(n) for n in _words("WDL DeepFM DCN DCNMix NFM AutoInt PNN FiBiNET IFM DIFM AFN ONN")},
    **{
        f"monai/{n}": _of("monai.networks.nets", x, build)
        for n, (x, build) in {
            "densenet": (IMAGES, lambda m: m.DenseNet(2, 3, 5, init_features=16, growth_rate=8, block_config=(2, 2))),
            "efficientnet-b0": (
                IMAGES,
                lambda m: m.EfficientNetBN("efficientnet-b0", False, spatial_dims=2, num_classes=5),
            ),
            "resnet": (
                IMAGES,
                lambda m: m.ResNet(
                    "basic", [1, 1, 1, 1], [8, 16, 32, 64], spatial_dims=2, n_input_channels=3, num_classes=5
                ),
            ),
            "vit": (
                IMAGES,
                lambda m: First(
                    m.ViT(3, (32, 32), (8, 8), 32, 64, 2, 4, classification=True, num_classes=5, spatial_dims=2)
                ),
            ),
            "senet": (
                IMAGES,
                lambda m: m.SENet(
                    2,
                    3,
                    "se_resnet_bottleneck",
                    [1, 1, 1, 1],
                    1,
                    16,
                    inplanes=64,
                    downsample_kernel_size=1,
                    input_3x3=False,
                    num_classes=5,
                ),
            ),
            "fully connected": (X, lambda m: m.FullyConnectedNet(12, 5, [32, 32])),
            "unet": (IMAGES, lambda m: Middle(m.UNet(2, 3, 5, (8, 16, 32), (2, 2), num_res_units=1))),
            "basic unet": (IMAGES, lambda m: Middle(m.BasicUNet(2, 3, 5, (8, 8, 16, 32, 64, 8)))),
            "attention unet": (IMAGES, lambda m: Middle(m.AttentionUnet(2, 3, 5, (8, 16, 32), (2, 2)))),
            "segresnet": (IMAGES, lambda m: Middle(m.SegResNet(2, 8, 3, 5))),
            "vnet": (IMAGES[:, :1], lambda m: Middle(m.VNet(2, 1, 5))),
            "highresnet": (IMAGES, lambda m: Middle(m.HighResNet(2, 3, 5))),
            "unetr": (
                IMAGES,
                lambda m: Middle(m.UNETR(3, 5, (32, 32), 16, 48, 96, 4, spatial_dims=2)),
            ),
        }.items()
    },
    **{
        f"timm/{n}": _timm(n, **o)
        for n, o in {
            "resnet10t": {},
            "mobilenetv3_small_050": {},
            "efficientnet_lite0": {},
            "regnetx_002": {},
            "convnext_atto": {},
            "ghostnet_050": {},
            "tinynet_e": {},
            "lcnet_035": {},
            "semnasnet_050": {},
            "mnasnet_small": {},
            "resnet18": {},
            "vit_tiny_patch16_224": {"img_size": 64, "depth": 2},
            "deit_tiny_patch16_224": {"img_size": 64, "depth": 2},
            "beit_base_patch16_224": {"img_size": 64, "depth": 2},
            "eva02_tiny_patch14_224": {"img_size": 56, "depth": 2},
            "mixer_s32_224": {"img_size": 64},
            "resmlp_12_224": {"img_size": 64},
            "xcit_nano_12_p16_224": {"img_size": 64},
            "cait_xxs24_224": {"img_size": 64, "depth": 2},
            "crossvit_tiny_240": {"img_size": 240},
            "repvgg_a0": {},
            "rexnet_100": {},
            "hardcorenas_a": {},
            "fbnetc_100": {},
            "spnasnet_100": {},
            "resnext26ts": {},
            "seresnext26t_32x4d": {},
            "ecaresnet26t": {},
            "skresnet18": {},
            "dla34": {},
            "densenet121": {},
            "vgg11": {},
            "nf_regnet_b0": {},
            "dm_nfnet_f0": {},
            "mobilevit_xxs": {},
            "edgenext_xx_small": {},
            "pvt_v2_b0": {},
            "poolformer_s12": {},
            "convmixer_768_32": {},
            "gmlp_ti16_224": {"img_size": 64},
            "swin_tiny_patch4_window7_224": {"img_size": 56},
            "levit_128s": {"img_size": 224},
            "mobileone_s0": {},
            "fastvit_t8": {},
            "coat_tiny": {"img_size": 64},
            "tnt_s_legacy_patch16_224": {"img_size": 64},
            "inception_next_atto": {},
            "starnet_s1": {},
        }.items()
    },
}


class _Continuous(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(CATEGORIES[: len(x)], x)


def names() -> list[str]:
    """Those whose package is installed."""
    found: list[str] = []
    for name in sorted(CASES):
        try:
            case(name)
        except ImportError:
            continue
        except Exception:  # it is installed: what is wrong is a row of its own
            pass
        found.append(name)
    return found


def case(name: str) -> ZooModel:
    return CASES[name]()
