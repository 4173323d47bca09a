"""One truth for the level: the buffer, in whatever way it is changed."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import mollifier
from mollifier.nn import Annealed, Copy, MollifiedLSTM, NoisyActivation, RecurrentOptions
from tests.helpers import mlp


def fill_state(model, level):
    for name, value in model.state_dict().items():
        if name.endswith("level"):
            value.fill_(level)


def fill_data(model, level):
    for name, buffer in model.named_buffers():
        if name.endswith("level"):
            buffer.data.fill_(level)


def replace_buffers(model, level):
    for part in model.modules():
        if isinstance(part, Annealed):
            part.level = torch.full_like(part.level, level)


WAYS = [mollifier.set_level, fill_state, fill_data, replace_buffers]


def at(model, level):
    """What the model computes in eval when every level is set by its own method."""
    twin = copy.deepcopy(model).eval()
    mollifier.set_level(twin, level)
    return twin


def shapes(out):
    return [tensor.shape for tensor in torch.utils._pytree.tree_leaves(out)]


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("first", [0.0, 0.5, 1.0])
def test_however_the_buffer_is_written_that_is_the_level(write, first):
    model, x = mollifier.mollify(mlp(4, 5, 5, 1), level=first).eval(), torch.randn(7, 4)
    for level in (1.0, 0.0, 0.3, 0.0, 0.6):
        write(model, level)
        assert mollifier.levels(model) == [level, level]
        assert torch.equal(model(x), at(model, level)(x))
        assert all(part.active == (level > 0) for part in model.modules() if isinstance(part, Annealed))


def test_functional_call_computes_the_level_that_it_is_given():
    model, x = mollifier.mollify(mlp(4, 5, 5, 1), level=0.0).eval(), torch.randn(7, 4)
    plain = model(x)
    for level in (1.0, 0.5):
        levels = {name: torch.tensor(level, dtype=torch.float64) for name, _ in model.named_buffers()}
        assert torch.equal(functional_call(model, levels, (x,)), at(model, level)(x))
    assert torch.equal(model(x), plain)


@pytest.mark.parametrize("through", ["data", "copy_", "load"])
def test_an_average_made_at_level_0_follows_its_model(through):
    model, x = mollifier.mollify(mlp(4, 5, 5, 1), level=0.0).eval(), torch.randn(7, 4)
    average = copy.deepcopy(model)
    mollifier.set_level(model, 0.8)
    with torch.no_grad():
        for mine, theirs in zip(average.buffers(), model.buffers(), strict=True):
            if through == "data":
                mine.data.copy_(theirs.data)
            elif through == "copy_":
                mine.copy_(theirs)
    if through == "load":
        average.load_state_dict(model.state_dict())
    assert torch.equal(average(x), model(x))


def test_an_averaged_model_on_a_device_keeps_each_buffer_in_its_place():
    options = RecurrentOptions(time="annealing")
    lstm = MollifiedLSTM(3, 4, options=options)
    average = AveragedModel(lstm, device=torch.device("cpu"), multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    annealer = mollifier.Annealer(lstm, k=10.0)
    for _ in range(30):
        annealer.step(1.0)
        average.update_parameters(lstm)
    assert all(0.0 <= level <= 1.0 for level in mollifier.levels(average.module))
    assert [name for name, _ in average.module.named_buffers()] == [name for name, _ in lstm.named_buffers()]
    moved = copy.deepcopy(lstm).to(torch.float16)
    assert [name for name, _ in moved.named_buffers()] == [name for name, _ in lstm.named_buffers()]


@pytest.mark.parametrize("training", [False, True])
def test_vmap_over_an_ensemble_with_levels_of_their_own(training):
    levels = (0.0, 0.3, 1.0)
    models = [mollifier.mollify(mlp(4, 5, 5, 1), level=level).train(training) for level in levels]
    base = copy.deepcopy(models[0]).to("meta").train(training)
    parameters, buffers = stack_module_state(models)
    x = torch.randn(2000, 4)

    def run(one, other):
        return functional_call(base, (one, other), (x,))

    found = torch.vmap(run, randomness="different")(parameters, buffers)
    for model, level, out in zip(models, levels, found, strict=True):
        if training and level == 0.3:
            assert not torch.equal(out, torch.vmap(run, randomness="different")(parameters, buffers)[1])
            assert out.mean().item() == pytest.approx(
                torch.stack([model(x).mean() for _ in range(20)]).mean().item(), abs=0.05
            )
        else:  # nothing is drawn in eval, and nothing that matters at the ends
            torch.testing.assert_close(out, model.eval()(x))


def test_vmap_over_inputs_leaves_the_level_readable():
    model, x = mollifier.mollify(mlp(4, 5, 5, 1), level=0.0).eval(), torch.randn(7, 4)
    assert torch.equal(torch.vmap(model)(x), model(x))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: mlp(4, 5, 5, 1), lambda: nn.LSTM(4, 5), lambda: nn.GRU(4, 5, bidirectional=True)]
)
def test_export_and_a_meta_forward_at_level_one_half(make, training):
    model, x = mollifier.mollify(make(), level=0.5).train(training), torch.randn(3, 2, 4)
    out = model(x)
    exported = torch.export.export(model, (x,)).module()
    assert shapes(exported(x)) == shapes(out)
    if not training:
        torch.testing.assert_close(exported(x), out)
        mollifier.set_level(model, 0.0)
        fill_state(exported, 0.0)  # the level is an input of the graph, not a constant in it
        torch.testing.assert_close(exported(x), model(x))
    nowhere = copy.deepcopy(model).to("meta")
    assert shapes(nowhere(x.to("meta"))) == shapes(out)
    assert "level on meta" in repr(nowhere)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_have_a_level_of_their_own(again):
    model, x = mollifier.mollify(mlp(4, 5, 5, 1), level=0.0).eval(), torch.randn(7, 4)
    twin = again(model)
    fill_state(twin, 0.7)
    assert mollifier.levels(model) == [0.0, 0.0]
    assert mollifier.levels(twin) == [0.7, 0.7]
    assert torch.equal(twin(x), at(model, 0.7)(x))


def _set(model, level):
    for part in model.modules():
        if isinstance(part, Annealed):
            part.level.fill_(level)


def test_another_process_writes_the_level():
    model, x = mollifier.mollify(mlp(4, 5, 5, 1), level=0.0).eval().share_memory(), torch.randn(7, 4)
    assert all(buffer.is_shared() for buffer in model.buffers())
    context = torch.multiprocessing.get_context("fork")
    process = context.Process(target=_set, args=(model, 0.5))
    process.start()
    process.join()
    assert mollifier.levels(model) == [0.5, 0.5]
    assert torch.equal(model(x), at(model, 0.5)(x))


def test_a_move_that_fails_leaves_the_level():
    unit = NoisyActivation("tanh", 3, level=0.25)

    def fail(tensor):
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        unit._apply(fail)
    with pytest.raises((RuntimeError, AssertionError)):
        unit.to("cuda:99")
    assert float(unit.level) == 0.25
    assert list(unit.state_dict()) == ["a", "level"]


def test_to_empty_on_the_same_device_keeps_the_level():
    assert float(Copy(level=0.25).to_empty(device="cpu").level) == 0.25


@pytest.mark.usefixtures("accelerator")
class TestOnAnAccelerator:
    """There the host knows what it wrote last, and nothing that others wrote."""

    def test_what_was_set_is_known_until_somebody_writes(self):
        unit = Copy(level=0.5)
        assert unit.known_level() is None
        for level in (0.0, 0.5):
            unit.set_level(level)
            assert unit.known_level() == level
        unit.set_level(0)
        assert not unit.active
        unit.state_dict()["level"].fill_(1.0)
        assert unit.known_level() is None
        assert unit.active
        unit.set_level(0)
        unit.level = torch.tensor(0.0, dtype=torch.float64)  # another tensor: nobody knows
        assert unit.active

    def test_a_checkpoint_is_known_and_a_copy_is_not(self):
        unit, other = Copy(level=0.5), Copy(level=0.0)
        unit.load_state_dict(other.state_dict())
        assert unit.known_level() == 0.0
        assert copy.deepcopy(unit).known_level() is None
        assert pickle.loads(pickle.dumps(unit)).known_level() is None

    @pytest.mark.parametrize("training", [False, True])
    def test_an_unknown_level_0_is_plain_to_the_last_bit(self, training):
        plain, x = mlp(4, 5, 5, 1), torch.randn(7, 4)
        model = mollifier.mollify(copy.deepcopy(plain), level=1.0).train(training)
        fill_state(model, 0.0)
        assert all(part.known_level() is None for part in model.modules() if isinstance(part, Annealed))
        assert torch.equal(model(x), plain(x))
        model(x).sum().backward()
        plain(x).sum().backward()
        for name, weight in plain.named_parameters():
            assert torch.equal(model.get_parameter(name).grad, weight.grad)
