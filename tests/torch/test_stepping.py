"""A decoder with a KV cache, exported by torch and stepped without it, beside torch itself."""

import numpy as np
import torch

import pjrt_hub
import pjrt_hub.torch

HEADS, SIZE, TOKENS, LONGEST = 4, 64, 256, 256


class Decoder(torch.nn.Module):
    """Returns the likeliest next token, and the caches with this one in them."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(TOKENS, SIZE)
        self.norm = torch.nn.LayerNorm(SIZE)
        self.attention = torch.nn.Linear(SIZE, 3 * SIZE)
        self.output = torch.nn.Linear(SIZE, SIZE)
        self.head = torch.nn.Linear(SIZE, TOKENS)

    def forward(self, token, position, keys, values):
        x = self.embedding(token)
        query, key, value = self.attention(self.norm(x)).reshape(3, HEADS, -1)
        places = torch.arange(LONGEST)
        here = (places == position)[:, None, None]
        keys, values = torch.where(here, key, keys), torch.where(here, value, values)
        scores = (query * keys).sum(-1) / (SIZE // HEADS) ** 0.5
        scores = scores.masked_fill((places > position)[:, None], -torch.inf)
        x = x + self.output((scores.softmax(0)[..., None] * values).sum(0).reshape(-1))
        return self.head(self.norm(x)).argmax(), position + 1, keys, values


class Pair(torch.nn.Module):
    """A module without weights."""

    def forward(self, a, b):
        return a * 2, b + 1


def test_one_tensor_may_stand_for_two_arguments(tmp_path):
    """torch.export by itself would take both for the second."""
    zeros = torch.zeros(3)
    path = pjrt_hub.torch.export(Pair(), (zeros, zeros), tmp_path / "pair.pjrt")
    with pjrt_hub.load_exported(path) as pair:
        a, b = pair(np.float32([1, 2, 3]), np.float32([5, 6, 7]))
        assert (a.tolist(), b.tolist()) == ([2, 4, 6], [6, 7, 8])


def test_two_hundred_tokens_are_those_of_torch(tmp_path):
    torch.manual_seed(0)
    decoder = Decoder().eval()
    cache = torch.zeros(LONGEST, HEADS, SIZE // HEADS)
    first = torch.tensor(1), torch.tensor(0), cache, cache
    arguments, wanted = first, []
    with torch.no_grad():
        for _ in range(200):
            arguments = decoder(*arguments)
            wanted.append(int(arguments[0]))
    assert len(set(wanted)) > 20
    path = pjrt_hub.torch.export(decoder, first, tmp_path / "decoder.pjrt")
    with pjrt_hub.load_exported(path) as exported:
        step = exported.stepper(
            carry={f"result[{n}]": f"args[{n}]" for n in (1, 2, 3)},
            state={f"args[{n}]": first[n].numpy() for n in (1, 2, 3)},
        )
        token, tokens = np.int64(1), []
        for _ in range(200):
            token = step(token)
            tokens.append(token)
        assert [int(each) for each in tokens] == wanted
        assert int(step.state["args[1]"]) == 200
