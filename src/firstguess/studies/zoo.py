"""Published architectures before training: made small, drawn by their own code, and what their first values are.

An architecture of Hugging Face is a class of `transformers` with a configuration made small by the names of its fields;
any other is a function without arguments that gives a model and its inputs.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.modules.measure import measure
from firstguess.modules.outputs import find_logits

TASKS = {
    "sequence": "SEQUENCE_CLASSIFICATION",
    "language": "CAUSAL_LM",
    "masked": "MASKED_LM",
    "choice": "MULTIPLE_CHOICE",
    "image": "IMAGE_CLASSIFICATION",
    "audio": "AUDIO_CLASSIFICATION",
    "token": "TOKEN_CLASSIFICATION",
}
_POINTS, _LENGTH, _VOCABULARY, _LABELS, _SIDE = 48, 8, 120, 5, 32
_MOST = 30_000_000  # parameters of an architecture that was shrunk
_SMALL: dict[int, str] = {
    32: "hidden_size d_model n_embd embed_dim dim emb_dim embedding_size model_dim d_embed decoder_hidden_size "
    "encoder_hidden_size word_embed_proj_dim moe_intermediate_size shared_expert_intermediate_size conv_dim hidden_dim "
    "pooler_output_size true_hidden_size input_embedding_size output_embedding_size d_latents output_hidden_size "
    "linear_key_head_dim linear_value_head_dim image_size",
    48: "intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff d_inner ffn_dim ffn_hidden_size dff "
    "shared_intermediate_size dense_intermediate_size",
    4: "num_attention_heads n_head n_heads encoder_attention_heads decoder_attention_heads num_heads num_experts "
    "num_local_experts n_routed_experts moe_num_experts index_n_heads linear_num_value_heads linear_num_key_heads "
    "num_groups",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
    "num_key_value_heads num_kv_heads num_experts_per_tok num_experts_per_token num_query_groups "
    "num_encoder_layers num_blocks moe_k",
    8: "head_dim d_kv d_head attention_head_size qk_nope_head_dim qk_rope_head_dim v_head_dim rotary_dim mamba_d_state "
    "state_size index_head_dim patch_size kv_channels attention_head_dim mamba_n_heads mamba_d_head n_mamba_heads "
    "mamba_headdim mamba_chunk_size chunk_size attention_window",
    16: "kv_lora_rank q_lora_rank qk_head_dim num_latents",
    1: "n_group topk_group n_groups",
    64: "max_position_embeddings n_positions max_source_positions max_target_positions max_seq_len block_size",
    _VOCABULARY: "vocab_size entity_vocab_size",
}
_FIELDS = {name: value for value, names in _SMALL.items() for name in names.split()}
_LAYERS = {name for name in _FIELDS if "layer" in name} | {"vocab_size"}
# More layers, for those that mix several kinds; as many key heads as heads; heads of a size where none is set.
_DEEPER = (
    _FIELDS | dict.fromkeys((n for n in _FIELDS if "layer" in n), 8) | {"num_key_value_heads": 4, "num_kv_heads": 4}
)
_DEPTHS = ("depths", "layer_depths", "num_blocks_per_stage")
_SIZES = ("hidden_sizes", "embed_dims", "dims", "channels", "neck_hidden_sizes", "conv_dim", "tdnn_dim")
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}


@dataclass(frozen=True)
class ZooModel:
    """A model that can be drawn again and again, and what it is called with."""

    make: Callable[[], nn.Module]
    inputs: Any
    note: str = ""


# -- Hugging Face ------------------------------------------------------------------------------------------------------


def architectures() -> list[str]:
    """All that transformers has for these tasks, as "task/model type"."""
    auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    found = {task: list(getattr(auto, f"MODEL_FOR_{name}_MAPPING_NAMES")) for task, name in TASKS.items()}
    return [f"{task}/{kind}" for task, kinds in found.items() for kind in kinds]


def shrunk(name: str) -> ZooModel:
    """One of `architectures`, as small as its configuration's fields allow; raises InvalidInput with every reason."""
    task, kind = name.split("/")
    auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    transformers: Any = importlib.import_module("transformers")
    found = getattr(auto, f"MODEL_FOR_{TASKS[task]}_MAPPING_NAMES")[kind]
    with quiet():  # the file of a model is loaded here, and may warn of itself
        cls = getattr(transformers, found if isinstance(found, str) else found[0])
    config = transformers.models.auto.configuration_auto.CONFIG_MAPPING[kind]
    reasons: list[str] = []
    headless = {name: value for name, value in _FIELDS.items() if "head" not in name}
    for fields, cut in (
        (_FIELDS, False), (_DEEPER, False), (_FIELDS, True), (_DEEPER, True), (headless, False), (_only(_LAYERS), False)
    ):  # fmt: skip
        try:
            with quiet():
                made = _config(config, fields, cut=cut)
                with torch.device("meta"):
                    size = sum(p.numel() for p in cls(made).parameters())
                if size > _MOST:
                    raise ValueError(f"{size / 1e6:.0f} million parameters")
                case = ZooModel(lambda made=made: cls(made), {})
                for inputs in _inputs(task, cls, made):
                    try:
                        with torch.no_grad():
                            find_logits(case.make().eval()(**inputs), None)
                    except Exception as error:
                        reasons.append(brief(error))
                        continue
                    return ZooModel(case.make, inputs, cls.__name__)
        except Exception as error:
            reasons.append(brief(error))
    raise InvalidInput("an architecture that can be shrunk", got="; ".join(dict.fromkeys(reasons)), where=name)


def _only(names: set[str]) -> dict[str, int]:
    return {name: _FIELDS[name] for name in names}


def _config(config: Any, fields: Mapping[str, int], *, cut: bool) -> Any:
    """A configuration with every field that has a small value, sub-configurations and lists alike.

    `cut`: lists of one entry per layer end where the layers do.
    """
    default = vars(config())
    layers = {default[name]: fields[name] for name in fields if "layer" in name and name in default}
    given: dict[str, Any] = {}
    for name, value in default.items():
        several = cast("list[Any]", list(value)) if isinstance(value, list | tuple) else []
        if name in fields and (isinstance(value, int) or (value is None and fields is _DEEPER)):
            given[name] = fields[name]
        elif name in _DEPTHS and several:
            given[name] = [1] * len(several)
        elif name in _SIZES and several:
            given[name] = [max(8, size // 64 * 8) for size in several]
        elif name == "attention_window" and several:
            given[name] = [fields.get(name, several[0])] * layers.get(len(several), len(several))
        elif name == "attention_types":
            given[name] = [[several[0][0], 1]]
        elif cut and several and len(several) in layers:
            given[name] = several[: layers[len(several)]]
        elif name in ("width_coefficient", "depth_coefficient"):
            given[name] = 0.025
        elif name == "default_language":
            given[name] = default["languages"][0]
        elif hasattr(value, "to_dict"):
            given[name] = _config(type(value), fields, cut=cut).to_dict()
        elif name == "use_cache":
            given[name] = False
        elif name in _TOKENS and (value is None or isinstance(value, int)):
            given[name] = _TOKENS[name]
    if default.get("is_encoder_decoder"):
        given["decoder_start_token_id"] = _TOKENS["decoder_start_token_id"]
    return config(**given, num_labels=_LABELS)


def _inputs(task: str, cls: Any, config: Any) -> Iterator[dict[str, torch.Tensor]]:
    """What it may take, the likeliest first."""
    stream = torch.Generator().manual_seed(32)
    if task in ("image", "audio"):
        name = cls.main_input_name
        side = getattr(config, "image_size", _SIDE)
        side = side if isinstance(side, int) else side[0]
        images, sounds = ((3, side, side), (3, 224, 224)), ((4000,), (80, 200), (80, 128), (60, 160), (1024, 128))
        for shape in images if task == "image" else sounds:
            yield {name: torch.randn(_POINTS // (2 if len(shape) > 1 else 3), *shape, generator=stream)}
        yield {name: torch.randint(0, _VOCABULARY, (_POINTS, _LENGTH), generator=stream)}  # pixels as tokens
        return
    text = getattr(config, "text_config", config)
    most = min(int(getattr(text, "vocab_size", _VOCABULARY) or _VOCABULARY), 1000)
    shape = (_POINTS, 4, _LENGTH) if task == "choice" else (_POINTS, _LENGTH)
    ids = torch.randint(5, most, shape, generator=stream)
    yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    yield {"input_ids": ids}
    ended = ids.clone()
    ended[..., -1] = _TOKENS["eos_token_id"]
    yield {"input_ids": ended}
    yield {"input_ids": ids, "decoder_input_ids": ids}
    ended[..., -3:] = _TOKENS["eos_token_id"]
    yield {"input_ids": ended}
    yield {"input_ids": ids, "bbox": torch.rand(*shape, 8, generator=stream)}
    long = torch.randint(5, most, (*shape[:-1], 64), generator=stream)
    yield {"input_ids": long, "attention_mask": torch.ones_like(long)}


# -- First values -----------------------------------------------------------------------------------------------------


_STRANGE = (FindingKind.OTHER_VALUES, FindingKind.RANDOM_VALUES, FindingKind.NOT_REDRAWN, FindingKind.NOT_FINITE)


def audit(case: ZooModel) -> dict[str, list[str]]:
    """What its first values are, without comparing: weights no initializer gives, never initialized, dead layers."""
    with quiet():
        torch.manual_seed(7)
        found = strange(measure(case.make(), case.inputs, inits=2, seed=11).findings)
    return found | {"never_initialized": never_initialized(case.make)}


def strange(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """Layers whose values no initializer gives, and those that are dead."""
    return {
        "no_initializer": [f.layer for f in findings if f.kind in _STRANGE],
        "dead": [f.layer for f in findings if f.kind == FindingKind.DEAD],
    }


def never_initialized(make: Callable[[], nn.Module]) -> list[str]:
    """Parameters and buffers that nobody wrote to: torch fills new memory with NaN meanwhile, which they still have."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with quiet():
            model = make()
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    return [
        name for name, value in model.state_dict().items() if value.is_floating_point() and bool(value.isnan().any())
    ]


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Silence what a model prints and warns of."""
    import logging

    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def brief(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:160]
