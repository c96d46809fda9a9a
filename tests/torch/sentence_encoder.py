"""all-MiniLM-L6-v2 as a module of torch, with the weights' names of the model's own file."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY, POSITIONS, SEGMENTS = 30522, 512, 2
LAYERS, HEADS, HIDDEN, INTERMEDIATE = 6, 12, 384, 1536
EPSILON = 1e-12


def norm() -> nn.LayerNorm:
    return nn.LayerNorm(HIDDEN, eps=EPSILON)


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCABULARY, HIDDEN)
        self.position_embeddings = nn.Embedding(POSITIONS, HIDDEN)
        self.token_type_embeddings = nn.Embedding(SEGMENTS, HIDDEN)
        self.LayerNorm = norm()

    def forward(self, ids):
        places = self.position_embeddings.weight[: ids.shape[1]]
        return self.LayerNorm(
            self.word_embeddings(ids) + places + self.token_type_embeddings.weight[0]
        )


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))

    def forward(self, x, mask):
        def heads(projected):
            return projected.unflatten(2, (HEADS, HIDDEN // HEADS)).transpose(1, 2)

        query, key, value = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        scores = query @ key.transpose(2, 3) / (HIDDEN // HEADS) ** 0.5
        scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(torch.float32).min)
        return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)


class Output(nn.Module):
    """A dense layer, and the norm of its sum with what went round it."""

    def __init__(self, inputs):
        super().__init__()
        self.dense = nn.Linear(inputs, HIDDEN)
        self.LayerNorm = norm()

    def forward(self, x, around):
        return self.LayerNorm(self.dense(x) + around)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        attention = {"self": SelfAttention(), "output": Output(HIDDEN)}
        self.attention = nn.ModuleDict(attention)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(HIDDEN, INTERMEDIATE)})
        self.output = Output(INTERMEDIATE)

    def forward(self, x, mask):
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(nn.functional.gelu(self.intermediate["dense"](x)), x)


class Encoder(nn.Module):
    """Embeds tokenized sentences: s64[n,t] ids and bool[n,t] masks to f32[n,384] of length 1."""

    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer() for _ in range(LAYERS))})

    def forward(self, ids, mask):
        x = self.embeddings(ids)
        for layer in self.encoder["layer"]:
            x = layer(x, mask)
        weight = mask[:, :, None].to(x.dtype)
        return nn.functional.normalize((x * weight).sum(1) / weight.sum(1), dim=1)


def load(arrays) -> Encoder:
    """Give the encoder with the weights of the model's file, from arrays by name."""
    encoder = Encoder()
    wanted = encoder.state_dict()
    state = {name: torch.tensor(arrays[name].copy()) for name in wanted}
    encoder.load_state_dict(state)
    return encoder.eval()
