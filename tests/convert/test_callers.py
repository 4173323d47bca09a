"""Only what the user's own code calls is mollified: not what torch's code calls, nor what an autograd.Function computes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, TanhTransform, Transform, TransformedDistribution

import mollifier

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


class Tanh(torch.autograd.Function):
    """Knows its own backward, as memory-efficient activations do."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        out = torch.tanh(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return gradient * (1 - out**2)


class Efficient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.sigmoid(self.two(Tanh.apply(self.one(x)))))


class InTraining(Efficient):
    def forward(self, x: Tensor) -> Tensor:
        h = Tanh.apply(self.one(x)) if self.training else torch.tanh(self.one(x))
        return self.head(torch.sigmoid(self.two(h)))


def untraceable(kind: type[nn.Module]) -> type[nn.Module]:
    class Untraceable(kind):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x.sum() < 1e9 else x

    return Untraceable


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("kind", "example", "training"),
    [
        (Efficient, None, True),
        (Efficient, X, True),
        (InTraining, None, True),
        (InTraining, None, False),
        (untraceable(Efficient), X, True),
    ],
    ids=["traced", "example", "in training", "in training, looked at in eval", "recorded"],
)
def test_what_an_autograd_function_computes_is_plain(kind, example, training):
    model = mollifier.mollify(kind().train(training), example=example, level=0.5, train_noise="expected").double()
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(two, sigmoid)"]
    left = {row.what: row.why for row in mollifier.report(model).skipped}
    assert left["tanh"].startswith("it is called inside a torch.autograd.Function")
    x = X.double().requires_grad_()
    torch.autograd.gradcheck(model.train(), (x,))
    with torch.no_grad():
        assert torch.equal(model(x), model(x.requires_grad_()))


def test_a_function_that_mollify_did_not_see_is_plain_too():
    model = mollifier.mollify(untraceable(InTraining)(), example=X, blocks=None).eval()
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(one, tanh)", "forward(two, sigmoid)"]
    mollifier.set_level(model, [1.0, 0.0])
    want = model.head(torch.sigmoid(model.two(torch.tanh(model.one(X)))))
    assert not torch.equal(model(X), want)
    assert torch.equal(model.train()(X), want)


@pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)  # from inside torch's own compiler
def test_a_forward_with_a_function_compiles_as_a_whole():
    model = mollifier.mollify(Efficient(), level=0.5).eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), model(X))
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model(X))


class Policy(nn.Module):
    """A bounded action and its log-probability, which torch.distributions computes with tanh and softplus."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.mean = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        normal = Normal(self.mean(F.relu(self.body(x))), 1.0)
        policy = TransformedDistribution(normal, [TanhTransform(cache_size=1)])
        action = policy.rsample()
        return action * 2 - 1, policy.log_prob(action).sum(-1)


def test_what_a_distribution_computes_is_plain():
    model = mollifier.mollify(Policy(), example=X).eval()
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(body, relu)"]
    left = {row.what: row.why for row in mollifier.report(model).skipped}
    assert left["softplus"] == "torch's own code calls it, as distributions do, and relies on its values"
    action, log_probability = model(X)
    before = torch.atanh((action + 1) / 2)
    mean = model.mean(X)  # level 1 copies past the body
    want = Normal(mean, 1.0).log_prob(before) - torch.log(1 - torch.tanh(before) ** 2)
    torch.testing.assert_close(log_probability, want.sum(-1), rtol=1e-3, atol=1e-3)


class Training(Policy):
    """Computes the log-probability in training alone, which an example does not show."""

    def forward(self, x: Tensor) -> Tensor:
        x = x if x.sum() < 1e9 else -x
        if self.training:
            return TransformedDistribution(Normal(self.mean(x), 1.0), [TanhTransform()]).log_prob(
                x[:, :2].clamp(-0.9, 0.9)
            )
        return self.mean(F.softplus(self.body(x)) + F.softplus(x))


def test_what_a_distribution_computes_in_training_alone_is_plain():
    plain = Training()
    want = plain(X)
    model = mollifier.mollify(plain, example=X)
    assert [row.activations for row in mollifier.report(model).blocks] == [["softplus (4 a)"], ["softplus (1 a)"]]
    assert torch.equal(model(X), want)


class OnDevice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.device("cpu"):
            return self.head(F.relu(self.body(x)))


def test_a_default_device_is_none_of_torchs_calls():
    torch.set_default_device("cpu")  # by a mode, which comes between the call and us
    try:
        for example in (None, X):
            model = mollifier.mollify(OnDevice(), example=example).eval()
            assert torch.equal(model(X), model.head(X))
    finally:
        torch.set_default_device(None)


class Bend(Transform):
    """A user's own, which torch's code calls."""

    def _call(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x)


class Elsewhere(Policy):
    def forward(self, x: Tensor) -> Tensor:
        h = nn.Tanh()(self.body(x)) if x.sum() < 1e9 else x
        return self.mean(Bend()(h))


def test_the_users_own_code_may_be_called_by_torchs():
    model = mollifier.mollify(Elsewhere(), example=X)
    assert [row.activations for row in mollifier.report(model).blocks] == [
        ["tanh (4 a)"],
        ["leaky_relu(negative_slope=0.01) (1 a)"],
    ]
