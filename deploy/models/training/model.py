"""The Llama architecture in PyTorch, small enough to read, and its 4-bit fake quantisation.

Parameter names are those of Hugging Face's LlamaForCausalLM, so a state_dict exports without a
table of names. Rotary embedding is the "rotate half" form that Hugging Face and MLX
(`traditional=False`) use.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Config:
    vocab_size: int = 3072
    hidden_size: int = 256
    intermediate_size: int = 768
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 32
    max_position_embeddings: int = 1024
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    initializer_range: float = 0.02


def mlx_affine_round_trip(w, group_size, bits):
    """What MLX's affine quantisation makes of `w` (float32), group by group along the last axis.

    Same rule as mx.quantize: the scale keeps the edge of larger magnitude exactly representable,
    and that edge is made a whole multiple of the scale so that zero stays (nearly) zero.
    """
    n_bins = float(2**bits - 1)
    g = w.reshape(-1, group_size)
    w_max, w_min = g.max(dim=1, keepdim=True).values, g.min(dim=1, keepdim=True).values
    low_edge = w_min.abs() > w_max.abs()
    scale = ((w_max - w_min) / n_bins).clamp_min(1e-7)
    scale = torch.where(low_edge, scale, -scale)
    edge = torch.where(low_edge, w_min, w_max)
    q0 = torch.round(edge / scale)
    scale = torch.where(q0 != 0, edge / q0, scale)
    bias = torch.where(q0 == 0, torch.zeros_like(edge), edge)
    q = torch.round((g - bias) / scale).clamp(0, n_bins)
    return (q * scale + bias).reshape(w.shape)


class FakeQuant(torch.autograd.Function):
    """Forward: the rounded weights. Backward: straight through."""

    @staticmethod
    def forward(ctx, w, group_size, bits, half):
        w = w.float()
        w = mlx_affine_round_trip(w, group_size, bits)
        return w.to(half) if half is not None else w

    @staticmethod
    def backward(ctx, grad):
        return grad.float(), None, None, None


class Linear(nn.Linear):
    quant = None  # (group_size, bits) while fine-tuning with fake quantisation

    def __init__(self, n_in, n_out):
        super().__init__(n_in, n_out, bias=False)

    def forward(self, x):
        w = self.weight
        if Linear.quant:
            w = FakeQuant.apply(w, *Linear.quant, None)
        return F.linear(x, w)


class RMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x):
        x32 = x.float()
        x32 = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self.eps)
        return x32.to(x.dtype) * self.weight.to(x.dtype)


def rope_tables(config):
    inv = 1.0 / config.rope_theta ** (torch.arange(0, config.head_dim, 2) / config.head_dim)
    angle = torch.outer(torch.arange(config.max_position_embeddings).float(), inv)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_proj = Linear(c.hidden_size, c.num_attention_heads * c.head_dim)
        self.k_proj = Linear(c.hidden_size, c.num_key_value_heads * c.head_dim)
        self.v_proj = Linear(c.hidden_size, c.num_key_value_heads * c.head_dim)
        self.o_proj = Linear(c.num_attention_heads * c.head_dim, c.hidden_size)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        c = self.c
        q = self.q_proj(x).view(b, t, c.num_attention_heads, c.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, c.num_key_value_heads, c.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, c.num_key_value_heads, c.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        repeats = c.num_attention_heads // c.num_key_value_heads
        k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = Linear(c.hidden_size, c.intermediate_size)
        self.up_proj = Linear(c.hidden_size, c.intermediate_size)
        self.down_proj = Linear(c.intermediate_size, c.hidden_size)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)


class Llama(nn.Module):
    """Tied embeddings; `forward` gives the hidden states, `logits` the scores of chosen rows."""

    def __init__(self, c):
        super().__init__()
        self.config = c
        self.model = Body(c)
        cos, sin = rope_tables(c)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = c.initializer_range
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= math.sqrt(2 * c.num_hidden_layers)
                nn.init.normal_(p, std=std)

    def embedding(self):
        w = self.model.embed_tokens.weight
        return FakeQuant.apply(w, *Linear.quant, None) if Linear.quant else w

    def forward(self, ids, positions, mask):
        """ids, positions: [b, t]; mask: bool [b, 1, t, t], true where attention is allowed."""
        x = F.embedding(ids, self.embedding())
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        if torch.is_autocast_enabled("cpu"):
            x, cos, sin = x.bfloat16(), cos.bfloat16(), sin.bfloat16()
        for layer in self.model.layers:
            x = layer(x, cos, sin, mask)
        return self.model.norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.embedding())
