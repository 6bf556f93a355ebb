"""Every causal language model of transformers, tiny: its own unmodified class, a shrunk config, random weights."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from kvref.errors import TargetError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

LAYERS = 4

TINY: Mapping[str, Any] = {
    # vocabulary and special tokens; padding is the last, as some models treat it apart
    "vocab_size": 99,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 98,
    # depth
    "num_hidden_layers": LAYERS,
    "n_layer": LAYERS,
    "n_layers": LAYERS,
    "num_layers": LAYERS,
    "decoder_layers": LAYERS,
    "num_decoder_layers": LAYERS,
    "encoder_layers": LAYERS,  # some decoders count their cache by it
    "num_encoder_layers": LAYERS,
    # widths
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "emb_dim": 32,
    "embedding_size": 16,
    "intermediate_size": 64,
    "ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_ffn_dim": 64,
    "ffn_hidden_size": 64,
    "d_ff": 64,
    "d_inner": 64,
    # heads
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
    "num_decoder_attention_heads": 4,
    "num_encoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "head_dim": 8,
    "rotary_dim": 4,
    # windows are crossed twice within 20 tokens
    "sliding_window": 8,
    "attention_chunk_size": 8,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "max_seq_len": 64,
    # experts
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "n_group": 2,
    "num_expert_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "shared_experts_intermediate_size": 16,
    "shared_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    # multi-head latent attention and its sparse indexer; many index heads, as few of them tie
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "index_n_heads": 16,
    "index_head_dim": 16,
    "index_topk": 6,
    # linear attention
    "linear_num_heads": 4,
    "linear_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    # state spaces: heads times width of a head are twice the hidden size; 20 tokens are several chunks
    "mamba_n_heads": 8,
    "mamba_num_heads": 8,
    "mamba_d_head": 8,
    "mamba_head_dim": 8,
    "mamba_headdim": 8,
    "mamba_d_state": 8,
    "ssm_state_size": 8,
    "state_size": 8,
    "mamba_d_ssm": 64,
    "mamba_n_groups": 2,
    "mamba_ngroups": 2,
    "n_groups": 2,
    "mamba_chunk_size": 4,
    "chunk_size": 4,
    "time_step_rank": 4,
    "mamba_dt_rank": 4,
    # decoders of families that are encoders by default
    "is_decoder": True,
}
"""The tiny value of each size that a config may have. What a config does not have is left out."""

INKLING: Mapping[str, Any] = {
    "unpadded_vocab_size": 99,
    "sliding_window_size": 8,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 8,
    "d_rel": 8,
    "rel_extent": 16,
    "n_layers_per_attn_res_block": 1,
    "log_scaling_n_floor": 4,
}

WINDOW: Mapping[str, Any] = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2}
"""A window, where the default config has none, in the layers from the third on."""

AFTER_PADDING: Mapping[str, Any] = {"pad_token_id": 1, "max_position_embeddings": 66}
"""Positions are counted from the padding token on, so that it is one of the first."""

EXCEPTIONS: Mapping[str, Mapping[str, Any]] = {
    # sizes that go by a name of their own
    "blt": {"encoder_hash_byte_group_vocab": 99, "local_attention_window_len": 8},
    "codegen": {"n_ctx": 64},
    "cpmant": {"dim_ff": 64, "dim_head": 8, "position_bias_num_buckets": 32, "prompt_types": 4, "segment_types": 4},
    "ctrl": {"dff": 64},
    "dots1": {"n_shared_experts": 1},
    "dory": {"n_input_layers": 1, "n_recurrent_layers": 2, "n_output_layers": 1},
    "ernie4_5_moe": {"moe_k": 2},
    "gpt_neo": {"window_size": 8, "attention_types": [[["global", "local"], 2]]},
    "inkling_text": INKLING,
    "inkling2_text": INKLING,
    "inkling2_loop_text": {
        **INKLING,
        "loop_layer_index_start": 1,
        "loop_layer_index_end": 3,
        "loop_num_passes": 2,
        "loop_gate_rank": 8,
    },
    "jetmoe": {"kv_channels": 8},
    "mamba2": {"num_heads": 8},  # of its state space
    "minimax": {"block_size": 4},
    "modernbert-decoder": {"local_attention": 16},
    "opt": {"word_embed_proj_dim": 32},
    "recurrent_gemma": {"attention_window_size": 8, "lru_width": 32},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "roc_bert": {
        "pronunciation_vocab_size": 99,
        "pronunciation_embed_dim": 16,
        "shape_vocab_size": 99,
        "shape_embed_dim": 16,
    },
    "rwkv": {"attention_hidden_size": 32, "context_length": 64},
    "xlnet": {"d_head": 8, "mem_len": 64, "attn_type": "uni"},  # or it is not causal
    "zamba2": {"adapter_rank": 8},
    # kinds of layers that the default config does not have, windows among them
    "bamba": {"attn_layer_indices": [1, 3]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "laguna": {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mellum": {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "ministral3": WINDOW,
    "minimax_m3_vl_text": {
        "layer_types": ["full_attention", "minimax_m3_sparse"] * 2,
        "index_block_size": 4,
        "index_topk_blocks": 2,
        "index_n_heads": 2,
    },
    "mixtral": WINDOW,
    "phi3": WINDOW,
    "phi4_multimodal": WINDOW,
    "phimoe": WINDOW,
    "qwen2": WINDOW,
    "qwen2_moe": WINDOW,
    "qwen3": WINDOW,
    "qwen3_moe": WINDOW,
    "smollm3": WINDOW,
    "starcoder2": WINDOW,
    "zaya": {"layer_types": ["hybrid_sliding", "hybrid"] * 2, "sliding_window": 8, "num_experts_per_tok": 1},
    # positions after padding
    "camembert": AFTER_PADDING,
    "data2vec-text": AFTER_PADDING,
    "prophetnet": AFTER_PADDING,
    "roberta": AFTER_PADDING,
    "roberta-prelayernorm": AFTER_PADDING,
    "xglm": AFTER_PADDING,
    "xlm-roberta": AFTER_PADDING,
    "xlm-roberta-xl": AFTER_PADDING,
    "xmod": {**AFTER_PADDING, "default_language": "en_XX"},  # or it wants a language with every call
    # sizes that have to fit each other
    "blt_global_transformer": {"hidden_size": 64, "head_dim": 16},  # is as wide as two of its patches' vectors
    "blt_local_decoder": {"hidden_size_global": 64},
    "blt_local_encoder": {"hidden_size_global": 64},
    "deepseek_v4": {
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
        "o_groups": 2,
        "o_lora_rank": 8,
        "head_dim": 16,  # an eighth of it is rotated
    },
    "dots3_note_audio_encoder": {"adapter_input_size": 32, "adapter_out_dim": 32},
    "dots3_note_text": {
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_q_lora_rank": 16,
        "swa_kv_lora_rank": 16,
        "swa_head_dim": 16,
        "swa_qk_nope_head_dim": 8,
        "swa_v_head_dim": 8,
    },
    "dots3_note_vision_encoder": {"adapter_in_dim": 32, "adapter_out_dim": 32},
    "gemma3n_text": {
        "num_kv_shared_layers": 2,
        "activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0],
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 99,
        "laurel_rank": 8,
    },
    "gemma4_text": {
        "num_kv_shared_layers": 2,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 99,
    },
    "gemma4_unified_text": {"num_kv_shared_layers": 2, "global_head_dim": 16},
    "longcat_flash": {"head_dim": 8, "zero_expert_num": 2},
    "qwen4_exp_text": {
        "eos_token_id": 1,
        "indexer_n_heads": 16,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 6,
        "indexer_compress_ratio": 2,
        "hc_lowrank": 8,
        "ple_layer_ids": [1],
        "ple_embed_dim": 16,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 50,
        "split_ngram_parts": 1,
    },
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "attention_head_size": 8,
        "axial_pos_shape": [8, 8],
        "axial_pos_embds_dim": [16, 16],
        "feed_forward_size": 64,
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 2,
        "hash_seed": 0,  # or its hashes are random
    },
    "xlstm": {"num_blocks": 4, "hidden_size": 64, "embedding_dim": 64, "qk_dim_factor": 1.0},  # it rounds up to 64
    # what the defaults lack, or have otherwise than a decoder of text needs
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    "mllama_text_model": {"cross_attention_layers": [1]},  # passed over where there is no image
    "musicgen_decoder": {"num_codebooks": 1},  # or what is a batch to others are its codebooks
    "musicgen_melody_decoder": {"num_codebooks": 1},
    "xlm": {"causal": True, "pad_index": -1},  # no token is padding
}
"""What else a model type, or a part of one, needs or needs otherwise."""

NOT_ALONE = ("gemma4_assistant", "gemma4_unified_assistant")
"""Model types that read the keys and values of another model."""

LAYER_KINDS = ("layer_types", "mlp_layer_types", "layers_block_type", "block_types")
"""Lists with a kind for each layer."""

UNSET = ("head_dim", "num_key_value_heads", "n_routed_experts", "num_experts_per_tok")
"""Sizes that are given even where the default config leaves them open."""


def model_types() -> list[str]:
    """The model types that transformers maps to a causal language model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def tiny_model(
    model_type: str, seed: int = 0, attention: str | None = "eager", dtype: torch.dtype = torch.float32
) -> "PreTrainedModel":
    """A model of this type with tiny sizes and random weights; the same seed gives the same.

    Without `attention` it has the kind that transformers prefers.

    What its class makes in float32 in any case stays so. Raises `TargetError` where transformers cannot build it here.
    """
    if model_type in NOT_ALONE:
        raise TargetError(f"{model_type} cannot run alone: it reads the keys and values of another model")
    try:
        with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped
            torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped
            model = untrained(model_type, attn_implementation=attention, experts_implementation="eager", dtype=dtype)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise TargetError(f"transformers cannot build a tiny {model_type} ({reason})") from error
    redraw(model, seed)
    return model.eval().requires_grad_(False)


def untrained(model_type: str, **options: Any) -> "PreTrainedModel":
    """A model of this type as its class makes it from a tiny config."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    configs: Any = CONFIG_MAPPING
    models: Any = MODEL_FOR_CAUSAL_LM_MAPPING
    config = tiny_config(configs[model_type])
    model_class = models[type(config)]
    # Where an image or sound is modelled too, the class for text takes the part of the config that is about text.
    parts = [config, *vars(config).values()]
    fitting = next((part for part in parts if isinstance(part, model_class.config_class)), config)
    return model_class._from_config(fitting, **options)


def tiny_config(config_class: Any) -> "PreTrainedConfig":
    """A config of this class, and of its parts, with every size that `TINY` knows tiny."""
    from transformers import PreTrainedConfig

    default = cast("dict[str, Any]", vars(config_class()))
    exceptions = EXCEPTIONS.get(config_class.model_type, {})
    has = {field.name for field in dataclasses.fields(config_class)}
    stored: Mapping[str, str] = config_class.attribute_map  # what a config calls otherwise inside
    given = {name for name in has if default.get(stored.get(name, name)) is not None or name in UNSET}
    sizes = {name: value for name, value in TINY.items() if name in given}
    sizes |= {name: few_of_each(default[name]) for name in LAYER_KINDS if name in has and varies(default.get(name))}
    if "kv_lora_rank" in has:  # latent attention has keys and values for each head, of widths of its own
        sizes["num_key_value_heads"] = TINY["num_attention_heads"]
        sizes.pop("head_dim", None)
    parts = {name: type(part) for name, part in default.items() if isinstance(part, PreTrainedConfig)}
    sizes |= {name: tiny_config(part) for name, part in parts.items() if name not in exceptions}
    return config_class(**(sizes | dict(exceptions)))


def varies(kinds: Sequence[str] | None) -> bool:
    """Whether there is more than one kind of layer."""
    return len(set(kinds or ())) > 1


def few_of_each(kinds: Sequence[str]) -> list[str]:
    """Every kind of layer that is there, in its order, over and over."""
    each = list(dict.fromkeys(kinds))
    return (each * LAYERS)[: max(LAYERS, len(each))]


def redraw(model: nn.Module, seed: int) -> None:
    """Matrices are normal with deviation 1/sqrt(row length), vectors moved by 0.2 of a standard normal."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        matrix = parameter.ndim > 1
        drawn = noise / parameter.shape[-1] ** 0.5 if matrix else parameter.data.double() + 0.2 * noise
        parameter.data.copy_(drawn)
