"""Models as other people write them: loops over containers, functional forwards, GANs, a VAE, siamese networks and graphs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier

from .kind import Kind
from .limits import matrix, pad


class Iterated(nn.Module):
    """Goes through a container of its own, layer by layer."""

    def __init__(self) -> None:
        super().__init__()
        first, second = (nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh()), (nn.Linear(8, 8), nn.Dropout(0.2), nn.ReLU())
        self.net = nn.Sequential(*first, *second, nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.net:
            x = layer(x)
        return x


class Sliced(Iterated):
    """Goes through it in slices, as those do who want the features of a pretrained network."""

    def forward(self, x: Tensor) -> Tensor:
        features = self.net[:3](x)
        return self.net[-1](self.net[3:-1](features))


class Listed(nn.Module):
    """Layers in lists and dicts, one activation for all."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.act = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8)]), nn.ELU()
        self.heads = nn.ModuleDict({"label": nn.Linear(8, 3), "unused": nn.Linear(8, 1)})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.act(layer(x))
        return self.heads["label"](x) + 0.0 * self.heads["unused"](x)


class Alive(nn.Module):
    """Functional dropout, random numbers, a condition and attributes, all as the module's mode and state have them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.rate, self.slope, self.tau = 0.2, 0.3, 2.0

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.rate > 0:
            x = x + self.rate * torch.randn_like(x)
        x = torch.tanh(F.dropout(self.fc1(x), self.rate, training=self.training))
        x = F.leaky_relu(self.fc2(F.dropout(x, self.rate, training=self.training)), self.slope)
        return self.fc3(x) / self.tau


def _silent(model: Any) -> None:
    model.rate = 0.0


class Generator(nn.Module):
    """DCGAN's generator: transposed convolutions from a point to an image, and Tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *(nn.ConvTranspose2d(6, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True)),
            *(nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(True)),
            *(nn.ConvTranspose2d(4, 2, 4, 2, 1, bias=False), nn.Tanh()),
        )

    def forward(self, noise: Tensor) -> Tensor:
        return self.main(noise)


class Discriminator(nn.Module):
    """DCGAN's discriminator: strided convolutions from an image to a probability."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *(nn.Conv2d(2, 4, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)),
            *(nn.Conv2d(4, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.2, inplace=True)),
            *(nn.Conv2d(8, 1, 4, 1, 0), nn.Sigmoid()),
        )
        nn.init.constant_(self.get_parameter("main.5.bias"), 2.0)  # it begins by taking all for real

    def forward(self, image: Tensor) -> Tensor:
        return self.main(image).view(-1, 1).squeeze(1)


def _generator_limit(model: Any, z: Tensor) -> Tensor:
    weight = matrix(model.main.get_submodule("5._mollifier.ends.0.copy.projection"))
    image = torch.einsum("oi,bixy->boxy", weight, pad(z, 8).expand(-1, -1, 4, 4)).repeat_interleave(2, 2)
    return torch.tanh(model.main[6](image.repeat_interleave(2, 3)))


def _discriminator_limit(model: Any, x: Tensor) -> Tensor:
    return torch.sigmoid(model.main[5](pad(F.avg_pool2d(x, 4), 8))).flatten()


class VAE(nn.Module):
    """The variational autoencoder of torch's examples; its decoder is called from outside, too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.fc3, self.fc4, self.sampling = nn.Linear(2, 8), nn.Linear(8, 6), True

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = F.relu(self.fc1(x))
        return self.fc21(hidden), self.fc22(hidden)

    def reparameterize(self, mean: Tensor, log_variance: Tensor) -> Tensor:
        deviation = torch.exp(0.5 * log_variance)
        return mean + torch.randn_like(mean) * deviation if self.training and self.sampling else mean + 0 * deviation

    def decode(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x)
        return self.decode(self.reparameterize(mean, log_variance)), mean, log_variance


def _deterministic(model: Any) -> None:
    model.sampling = False


class Siamese(nn.Module):
    """Two inputs through the same layers, and a probability that they are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
        self.fc, self.head = nn.Linear(8, 4), nn.Linear(8, 1)

    def once(self, x: Tensor) -> Tensor:
        return torch.tanh(self.fc(self.body(x)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.head(torch.cat([self.once(x[:, :3]), self.once(x[:, 3:])], 1)))


def _siamese_limit(model: Any, x: Tensor) -> Tensor:
    weight = matrix(model.get_submodule("_mollifier.ends.0.copy.projection"))
    return torch.sigmoid(model.head(torch.cat([pad(half, 8) @ weight.T for half in (x[:, :3], x[:, 3:])], 1)))


class GraphConv(nn.Module):
    """The graph convolution of Kipf and Welling, with weights of its own and matrix products."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.5 * torch.randn(i, o)), nn.Parameter(torch.zeros(o))

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return torch.mm(adjacency, torch.mm(x, self.weight)) + self.bias


class GCN(nn.Module):
    """Two of them, with an activation and dropout between."""

    def __init__(self) -> None:
        super().__init__()
        self.gc1, self.gc2, self.rate = GraphConv(6, 8), GraphConv(8, 3), 0.2

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        x = F.relu(self.gc1(x, adjacency))
        x = F.dropout(x, self.rate, training=self.training)
        return F.log_softmax(self.gc2(x, adjacency), dim=1)


class GraphLayer(nn.Module):
    """A graph convolution with its activation: a block to be named."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.conv = GraphConv(i, o)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return torch.tanh(self.conv(x, adjacency))


class DeepGCN(nn.Module):
    """Several such layers, and a head for every node."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList([GraphLayer(6, 6), GraphLayer(6, 6)]), nn.Linear(6, 3)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, adjacency)
        return self.head(x)


def ring(x: Tensor) -> tuple[Tensor]:
    """Every node with its neighbours on a ring, normalised."""
    one = torch.eye(len(x), dtype=x.dtype)
    return ((one + one.roll(1, 0) + one.roll(-1, 0)) / 3,)


def _gcn_limit(model: Any, x: Tensor) -> Tensor:
    (adjacency,), a = ring(x), model.get_parameter("_mollifier.loose.forward_0.a")
    hidden = model.gc1(x, adjacency)
    hidden = mollifier.functional.noisy_activation(hidden, "relu", level=1.0, a=a, noise="expected")
    return F.log_softmax(model.gc2(hidden, adjacency), 1)


STRANGERS = [
    Kind("iterated", Iterated, limit=lambda m, x: m.net[6](pad(x, 8))),
    Kind("sliced", Sliced, limit=lambda m, x: m.net[6](pad(x, 8))),
    Kind("listed", Listed, limit=lambda m, x: m.heads["label"](pad(x, 8))),
    Kind("functional-alive", Alive, limit=lambda m, x: m.fc3(pad(x, 8)) / 2, quiet=_silent),
    Kind("gan-generator", Generator, (4, 6, 1, 1), limit=_generator_limit, affine=False),
    Kind("gan-discriminator", Discriminator, (4, 2, 16, 16), limit=_discriminator_limit, affine=False),
    Kind(
        "vae",
        VAE,
        limit=lambda m, x: torch.sigmoid(m.fc4(pad(m.fc21(pad(x, 8)), 8))),
        affine=False,
        pick=lambda out: out[0],
        quiet=_deterministic,
    ),
    Kind("siamese", Siamese, limit=_siamese_limit, affine=False),
    Kind("graph", GCN, (9, 6), limit=_gcn_limit, affine=False, copies=False, extra=ring, quiet=_silent),
    Kind("graph-named", DeepGCN, (9, 6), {"blocks": "layers.*"}, limit=lambda m, x: m.head(x), extra=ring),
]
