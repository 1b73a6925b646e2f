"""Gemma 4's models, small, with the traits of the published ones."""

from bases import BASE, without
from mlx_lm.models import gemma4, gemma4_text

# As E2B: layers that read others' keys and values and are twice as wide, inputs of their own for
# all, one key-value head. Three layers: each has six products with quantised weights behind one
# another, and each of these rounds its activations.
SMALL = {
    **without(BASE, "rope_theta", "tie_word_embeddings"),
    "model_type": "gemma4_text",
    "num_hidden_layers": 3,
    "hidden_size": 256,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "global_head_dim": 64,
    "num_kv_shared_layers": 1,
    "hidden_size_per_layer_input": 64,
    "vocab_size_per_layer_input": 160,
    "sliding_window": 12,
    "sliding_window_pattern": 2,
    "hidden_activation": "gelu_pytorch_tanh",
    "use_double_wide_mlp": True,
}

# As 31B: keys that are values, in layers with heads of their own number.
LARGE = {
    **SMALL,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_global_key_value_heads": 2,
    "attention_k_eq_v": True,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
    "use_double_wide_mlp": False,
    "final_logit_softcapping": 30.0,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {
            "partial_rotary_factor": 0.25,
            "rope_theta": 1e6,
            "rope_type": "proportional",
        },
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
}

WITH_EXPERTS = {
    **LARGE,
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "enable_moe_block": True,
    "num_experts": 6,
    "top_k_experts": 2,
    "moe_intermediate_size": 128,
}

GEMMA4_ARCHITECTURES = {
    "gemma4_text": (gemma4_text, SMALL),
    # Layers of both kinds read others' keys and values.
    "gemma4_text-deep": (
        gemma4_text,
        {**SMALL, "num_hidden_layers": 7, "num_kv_shared_layers": 4},
    ),
    "gemma4_text-large": (gemma4_text, LARGE),
    # As 26B-A4B: experts beside the feed-forward; as MLX stores them, and as they are published.
    "gemma4_text-experts": (gemma4_text, WITH_EXPERTS),
    "gemma4_text-experts-published": (gemma4_text, WITH_EXPERTS),
    # As E4B: no layer is wider than the others.
    "gemma4": (
        gemma4,
        {
            "model_type": "gemma4",
            "vocab_size": 160,
            "text_config": {
                **without(SMALL, "vocab_size"),
                "num_key_value_heads": 2,
                "use_double_wide_mlp": False,
                "final_logit_softcapping": None,
            },
        },
    ),
}
