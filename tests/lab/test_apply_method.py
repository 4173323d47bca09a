from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import mollifier
from mollifier.nn import HardSigmoidLSTM, WeightNoise
from mollifier_lab.apply_method import add_weight_noise, apply_method, finish, make_annealer, remove_weight_noise
from mollifier_lab.errors import LabError
from mollifier_lab.models import CharacterEncoder, LanguageModel, mlp
from mollifier_lab.settings import RunConfig


def small() -> nn.Sequential:
    return mlp(4, 1, width=6, depth=3)


def config(method: str = "mollified", task: str = "parity", **changes: object) -> RunConfig:
    return RunConfig.make(task, method, **changes)


def test_settings_reach_the_mollified_model() -> None:
    model = small()
    apply_method(model, config(c=7.0))
    assert {part.c for part in model.modules() if isinstance(part, mollifier.nn.NoisyActivation)} == {7.0}
    model = LanguageModel(9, width=4)
    apply_method(model, config(task="ptb", c=7.0))
    assert all(layer._mollifier.options.c == 7.0 for layer in model.layers)
    model = small()
    apply_method(model, config("mollified-deterministic"))
    assert torch.equal(model(torch.ones(2, 4)), model(torch.ones(2, 4)))


def test_settings_reach_the_annealer() -> None:
    model = mollifier.mollify(small())
    settings = config(k=3.0, loss_average=0.0, stop_at=0.2, anneal_every=5).settings
    annealer = make_annealer(model, settings)
    assert (annealer.k, annealer.beta, annealer.stop_at, annealer.every) == (3.0, None, 0.2, 5)
    annealer = make_annealer(model, config().settings)
    assert (annealer.k, annealer.beta, annealer.horizon) == (100.0, 0.99, None)
    assert annealer.stop_at == pytest.approx(0.05 * 3)
    assert make_annealer(model, config(stop_at=0.0).settings).stop_at == 0.0
    annealer = make_annealer(model, config(horizon=40.0).settings)
    assert (annealer.k, annealer.horizon) == (None, 40.0)
    annealer = make_annealer(model, config(schedule="linear", horizon=40.0).settings)
    for _ in range(40):
        annealer.step(0.7)
    assert annealer.finished


def test_a_method_that_finds_nothing_is_an_error() -> None:
    with pytest.raises(LabError, match=r"'mollified' on task 'parity': mollify: found nothing to mollify in Linear"):
        apply_method(nn.Linear(3, 1), config())
    with pytest.raises(LabError, match=r"no nn\.Linear and no convolution"):
        apply_method(nn.Sequential(nn.Tanh()), config("weight-noise"))
    with pytest.raises(LabError, match=r"stop_at=50\.0: expected"):
        apply_method(small(), config(stop_at=50.0))


def test_other_methods_have_no_annealer_and_finish_does_nothing() -> None:
    model = small()
    before = str(model)
    assert apply_method(model, config("residual")) is None
    assert str(finish(model)) == before


def test_residual_layers_are_copied_past_as_a_whole() -> None:
    model = mlp(4, 1, width=6, depth=4, architecture="residual")
    apply_method(model, config("mollified-residual"))
    assert mollifier.levels(model) == [1.0] * 4
    x = torch.randn(5, 4)
    hidden = model.eval()[:-1](x)
    assert torch.equal(hidden, torch.cat([x, torch.zeros(5, 2)], 1))  # padded in the first layer, then the identity
    mollifier.set_level(model, 0.25)
    h = torch.randn(5, 6)
    noisy = model[1].body(h)
    torch.testing.assert_close(model[1](h), 0.25 * h + 0.75 * (h + noisy))


def test_a_residual_recurrent_layer_has_one_level() -> None:
    model = LanguageModel(9, width=4, layers=3, architecture="residual").eval()
    words = torch.randint(9, (2, 5))
    plain = model(words)[0]
    annealer = apply_method(model, config("mollified-residual", "ptb", k=1.0))
    assert annealer is not None
    assert mollifier.levels(model) == [1.0] * 3
    torch.testing.assert_close(model(words)[0], model.output(model.embedding(words)))  # 1 h, not 2 h, a layer
    annealer.step(0.7)
    first, second, third = mollifier.levels(model)
    assert first < second < third < 1
    finish(model, annealer)
    assert torch.equal(model(words)[0], plain)


def test_a_copy_of_the_model_is_finished_without_an_annealer() -> None:
    model = small().eval()
    x = torch.randn(3, 4)
    plain = model(x)
    annealer = apply_method(model, config())
    other = finish(copy.deepcopy(model))
    assert torch.equal(other(x), plain)
    assert mollifier.levels(model) == [1.0] * 3
    assert not annealer.finished


@pytest.mark.parametrize("gates", ["hard-sigmoid", "sigmoid"])
def test_weight_noise_in_recurrent_layers(gates: str) -> None:
    model = CharacterEncoder(9, 3, embedding=4, width=5, depth=2, gates=gates)
    batch = torch.randint(1, 9, (3, 4)), torch.tensor([4, 2, 3])
    names, parameters = list(model.state_dict()), set(model.parameters())
    plain = model(*batch)
    kind = type(model.lstm)
    add_weight_noise(model, 0.3)
    assert mollifier.levels(model) == [1.0] * 4  # LSTM, two layers, output
    assert len([part for part in model.lstm.modules() if isinstance(part, WeightNoise)]) == 4
    features = [model.lstm(model.embedding(batch[0]))[0] for _ in range(2)]
    assert not torch.equal(*features)  # the noise reaches the recurrence
    model(*batch).sum().backward()
    assert all(parameter.grad is not None for parameter in parameters)
    copy.deepcopy(model)
    assert torch.equal(model.eval()(*batch), plain)
    mollifier.set_level(model, 0.0)
    assert torch.equal(model.train()(*batch), plain)
    hook = model.lstm.register_forward_hook(lambda *_: None)
    remove_weight_noise(model)
    assert type(model.lstm) is kind
    assert kind is (HardSigmoidLSTM if gates == "hard-sigmoid" else nn.LSTM)
    assert list(model.lstm._forward_hooks) == [hook.id]  # somebody else's stays
    assert sorted(model.state_dict()) == sorted(names)
    assert set(model.parameters()) == parameters
    assert torch.equal(model(*batch), plain)


def test_weight_noise_has_the_standard_deviation_that_was_asked_for() -> None:
    model = LanguageModel(9, width=20, layers=1)
    apply_method(model, config("weight-noise", "ptb", weight_std=0.3))
    lstm = model.layers[0]
    drawn = lstm.weight_hh_l0 - lstm.parametrizations.weight_hh_l0.original
    assert drawn.std().item() == pytest.approx(0.3, rel=0.1)


def test_the_papers_lstm_has_gates_and_activations_and_no_copy() -> None:
    model = LanguageModel(9, width=4)
    apply_method(model, config("paper-lstm", "ptb"))
    for layer in model.layers:
        found = layer._mollifier.options
        assert (found.gates, found.activations, found.copy, found.push) == (True, True, False, "paper")
    model = CharacterEncoder(9, 3, embedding=4, width=5, depth=2)
    apply_method(model, config("paper-lstm", "characters"))
    assert not model.lstm._mollifier.options.copy
    copies = [name for name, part in model.named_modules() if isinstance(part, mollifier.nn.Copy)]
    assert len(copies) == 2  # of the MLP, where Algorithm 1 has them
    assert all(name.startswith("mlp.") for name in copies)


def test_settings_of_the_gates_reach_recurrent_layers() -> None:
    model = LanguageModel(9, width=4)
    chosen = {"push": "odds", "unbiased_gates": True, "carry_time": True, "time_cap": 7, "copy": False}
    apply_method(model, config("mollified", "ptb", **chosen))
    for layer in model.layers:
        assert {name: getattr(layer._mollifier.options, name) for name in chosen} == chosen
    model = LanguageModel(9, width=4)
    apply_method(model, config("mollified", "ptb", time="annealing"))
    found = model.layers[0]._mollifier.options
    assert (found.time, found.time_cap, found.copy) == ("annealing", None, True)


@pytest.mark.parametrize("method", ["mollified", "mollified-residual", "mollified-bn", "mollified-deterministic"])
def test_the_copy_can_be_taken_away_and_the_push_chosen(method: str) -> None:
    for copies in (True, False):
        given = config(method, copy=copies, push="odds")
        model = mlp(4, 1, width=6, depth=3, architecture=given.spec.architecture)
        apply_method(model, given)
        assert any(isinstance(part, mollifier.nn.Copy) for part in model.modules()) == copies
        assert {part.push for part in model.modules() if isinstance(part, mollifier.nn.NoisyActivation)} == {"odds"}


@pytest.mark.parametrize("projection", ["auto", "learned", "fixed", "always"])
def test_the_projection_is_the_one_asked_for(projection: str) -> None:
    given = config("mollified", "pentomino", projection=projection)
    model = mlp(9, 1, width=4, depth=2)
    apply_method(model, given)
    kinds = [type(part.projection) for part in model.modules() if isinstance(part, mollifier.nn.Copy)]
    narrows = mollifier.nn.FixedProjection if projection == "fixed" else nn.Linear
    assert kinds == [narrows, type(None)]


@pytest.mark.parametrize(("projection", "rule"), [("auto", "project"), ("fixed", "fixed")])
def test_the_projection_reaches_recurrent_layers(projection: str, rule: str) -> None:
    model = CharacterEncoder(9, 3, embedding=8, width=5, depth=2)
    apply_method(model, config("mollified", "characters", projection=projection))
    assert {part.rule for part in model.modules() if isinstance(part, mollifier.nn.Copy)} == {rule, "copy"}


@pytest.mark.parametrize("changes", [{}, {"copy": False}])
def test_a_projection_that_no_layer_needs_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(LabError, match=r"projection='fixed' would do nothing: no copy .* Leave it out"):
        apply_method(mlp(4, 1, width=8, depth=2), config("mollified", projection="fixed", **changes))


def test_a_residual_recurrent_layer_without_the_copy() -> None:
    model = LanguageModel(9, width=4, layers=3, architecture="residual").eval()
    words = torch.randint(9, (2, 5))
    plain = model(words)[0]
    annealer = apply_method(model, config("mollified-residual", "ptb", copy=False))
    assert mollifier.levels(model) == [1.0] * 3
    assert not any(isinstance(part, mollifier.nn.Copy) for part in model.modules())
    assert torch.equal(finish(model, annealer)(words)[0], plain)


def test_the_end_and_the_least_level_reach_the_annealer() -> None:
    model = mollifier.mollify(small())
    annealer = make_annealer(model, config(then="hold", p_min=0.1, k=1.0).settings)
    for _ in range(1000):
        annealer.step(0.7)
    assert annealer.finished
    assert annealer.levels == pytest.approx([0.1] * 3)
    annealer = make_annealer(model, config(v="one", k=1.0).settings)
    annealer.step(100.0)
    assert annealer.loss_average == 1.0
