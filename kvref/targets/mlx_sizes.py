"""Tiny sizes for models of mlx-lm: those of the tiny config that transformers has, and what mlx-lm asks beside them."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from kvref.targets.tiny import LAYERS, TINY, tiny_config

BESIDE: Mapping[str, Any] = {
    # what newer configs of transformers say elsewhere
    "rope_theta": 10000.0,
    "rope_local_base_freq": 10000.0,
    "swa_rope_theta": 10000.0,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.5,
    "partial_rotary_factor": 0.5,
    "rope_scaling": None,
    # small numbers and factors
    "rms_norm_eps": 1e-6,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "layernorm_epsilon": 1e-5,
    "norm_eps": 1e-5,
    "scale_emb": 2.0,
    "scale_depth": 1.4,
    "gegelu_limit": 20.0,
    "routed_scaling_factor": 1.0,
    # sizes under names of their own
    "num_vocab": 99,
    "n_inner": 64,
    "n_ctx": 64,
    "block_size": 64,
    "block_dim": 32,
    "model_dim": 32,
    "hidden_dim": 64,
    "ff_intermediate_size": 64,
    "expert_ffn_hidden_size": 16,
    "dim_model_base": 16,
    "n_kv_heads": 2,
    "num_attention_groups": 2,
    "num_kv_reuse_layers": 1,
    "cla_share_factor": 2,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 8,
    "swa_v_head_dim": 8,
    "a_low_rank_dim": 4,
    "v_low_rank_dim": 4,
    "decay_low_rank_dim": 4,
    "gate_low_rank_dim": 4,
    "group_norm_size": 1,
    "num_transformer_layers": LAYERS,
    "num_query_heads": [4] * LAYERS,
    "ffn_multipliers": [2.0] * LAYERS,
    "ffn_dim_divisor": 8,
    # windows, and which layers have them: every other one, as a tiny model may have no sixth layer
    "sliding_window_size": 8,
    "sliding_window_pattern": 2,
    "sliding_window_layers": [0, 2],
    "hybrid_layer_pattern": [1, 0] * (LAYERS // 2),
    "conv_window": 2,
    "dense_attention_every_n_layers": 2,
    "layer_group_size": 2,
    # experts
    "n_shared_experts": 1,
    "num_shared_expert": 1,
    "num_shared_experts": 1,
    "zero_expert_num": 2,
    "zero_expert_type": "identity",
    "moe_layer_freq": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "is_moe_layer": [False, True] * (LAYERS // 2),
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    # convolutions between attention layers
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_multiple_of": 8,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    # choices
    "attention_method": "MLA",
    "attention_bias": False,
    "add_full_attention_sink_bias": True,
    "add_swa_attention_sink_bias": True,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
    "mlp_bias": False,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
    "post_norm": False,
    "qk_norm": True,
    "use_cla": True,
    "use_mixed_mlp_moe": True,
    "use_qk_norm": True,
}
"""What mlx-lm asks, and the configs of transformers do not say."""

SLIDING = ["sliding_attention", "full_attention"] * (LAYERS // 2)
"""A window in every other layer."""

EXCEPTIONS: Mapping[str, Mapping[str, Any]] = {
    # names that mean something else in this one
    "exaone4": {"sliding_window_pattern": "LG"},
    "mimo_v2_flash": {"moe_layer_freq": [0, 1] * (LAYERS // 2)},
    "openelm": {"num_kv_heads": [2] * LAYERS},
    # kinds of layers, by its own names
    "gear": {"layer_types": SLIDING},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * (LAYERS // 2)},
    "lfm2-vl": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2)},
    "spark2_5": {"layer_types": SLIDING, "rope_parameters": {kind: {"rope_theta": 10000.0} for kind in SLIDING}},
    "kimi_linear": {
        "linear_attn_config": {
            "kda_layers": [1, 3],
            "full_attn_layers": [2, 4],
            "num_heads": 4,
            "head_dim": 8,
            "short_conv_kernel_size": 4,
        }
    },
    # scaled positions, which it always has
    "deepseek_v2": {"rope_scaling": {"type": "yarn", "factor": 1.0}},
    "hunyuan": {"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1.0}},
    "minicpm3": {"rope_scaling": {"factor": 1.0, "original_max_position_embeddings": 64}},
    # sizes that go by a name of their own, or that it cannot have smaller
    "lille-130m": {"n_embd": 128, "n_head": 4},
    "llama4": {"num_experts_per_tok": 1},
    "llama4_text": {"num_experts_per_tok": 1},
    "plamo": {"n_shared_head": 2},
    "qwen": {"kv_channels": 8},
    "qwen3_vl_moe": {"num_experts": 4},
}
"""What holds for one type alone."""


def sizes_for(model_type: str, arguments: Any) -> dict[str, Any]:
    """What a config file of a tiny model says. `arguments` is the dataclass that mlx-lm reads it into."""
    from transformers import CONFIG_MAPPING

    configs: Any = CONFIG_MAPPING
    known = tiny_config(configs[model_type]).to_dict() if model_type in configs else dict(TINY)
    exceptions = EXCEPTIONS.get(model_type, {})
    required = {
        field.name for field in fields(arguments) if field.default is MISSING and field.default_factory is MISSING
    }
    if "text_config" in required | set(known):
        known["text_config"] = {"model_type": model_type, **completed(known.get("text_config", TINY)), **exceptions}
    known = {"vocab_size": TINY["vocab_size"]} | {name: TINY[name] for name in required & set(TINY)} | known
    return {**completed(known), **exceptions, "model_type": model_type}


def completed(known: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes, with what mlx-lm asks beside them; transformers' None is no answer."""
    return {**BESIDE, **{name: value for name, value in known.items() if value is not None or name not in BESIDE}}
