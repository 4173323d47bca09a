"""The Lightning callback: the same result as a bare loop, resumable, and nothing left behind."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mollifier

lightning = pytest.importorskip("lightning.pytorch", reason="pip install 'mollifier[lightning]'")
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
]


def data() -> DataLoader:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 4, generator=generator)
    return DataLoader(TensorDataset(x, (x.prod(1, keepdim=True) > 0).float()), batch_size=8)


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


def fit(module, callback, epochs: int, folder, resume=None, **options):
    trainer = lightning.Trainer(
        max_epochs=epochs,
        callbacks=callback if isinstance(callback, list) else [callback],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        accelerator="cpu",
        **options,
    )
    trainer.fit(module, data(), ckpt_path=resume)
    return trainer


def build():
    from mollifier.integrations.lightning import MollifierCallback

    torch.manual_seed(0)
    return Module(), MollifierCallback("net", k=2.0, restore=False, log=False)


def test_it_does_what_a_bare_loop_does(tmp_path):
    module, callback = build()
    fit(module, callback, 2, tmp_path)

    torch.manual_seed(0)
    bare = Module()
    mollifier.mollify(bare.net)
    annealer = mollifier.Annealer(bare.net, k=2.0)
    optimizer = bare.configure_optimizers()
    for _ in range(2):
        for index, batch in enumerate(data()):
            loss = bare.training_step(batch, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            annealer.step(loss)
    assert callback.annealer.updates == annealer.updates == 16
    assert callback.annealer.levels == annealer.levels
    for one, two in zip(module.parameters(), bare.parameters(), strict=True):
        assert torch.equal(one, two)


def test_it_restores_when_annealing_has_ended(tmp_path):
    from mollifier.integrations.lightning import MollifierCallback

    module = Module()
    keys = list(module.state_dict())
    fit(module, MollifierCallback(horizon=10), 4, tmp_path)
    assert not mollifier.is_mollified(module)
    assert list(module.state_dict()) == keys


def test_it_warns_when_annealing_has_not_ended(tmp_path):
    from mollifier.integrations.lightning import MollifierCallback

    module = Module()
    with pytest.warns(RuntimeWarning, match="the model stays mollified"):
        fit(module, MollifierCallback("net", k=1000.0), 1, tmp_path)
    assert mollifier.is_mollified(module.net)


def test_accumulated_batches_are_one_update(tmp_path):
    module, callback = build()
    fit(module, callback, 1, tmp_path, accumulate_grad_batches=4)
    assert callback.annealer.updates == 2


def test_a_resumed_fit_goes_on_where_it_was(tmp_path):
    module, callback = build()
    trainer = fit(module, callback, 1, tmp_path)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed, again = build()
    fit(resumed, again, 2, tmp_path, resume=tmp_path / "half.ckpt")
    assert again.annealer.updates == 16
    whole, callback = build()
    fit(whole, callback, 2, tmp_path)
    # the average of the losses differs by the noise that each run drew after its start; the clock does not
    assert again.annealer.updates == callback.annealer.updates
    assert again.annealer.levels == pytest.approx(callback.annealer.levels, abs=0.05)
    assert again.annealer.levels != [1.0, 1.0]


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize("submodule", ["", "net"])
def test_checkpoints_load_into_the_plain_module(submodule, weights_only, tmp_path):
    from lightning.pytorch.callbacks import ModelCheckpoint

    from mollifier.integrations.lightning import MollifierCallback

    module = Module()
    callback = MollifierCallback(submodule, horizon=12)
    writer = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1, save_weights_only=weights_only)
    fit(module, [callback, writer], 3, tmp_path)
    for epoch in range(3):  # in the middle of annealing, and after it
        loaded = Module.load_from_checkpoint(tmp_path / f"epoch={epoch}.ckpt")
    assert not mollifier.is_mollified(module)
    for one, two in zip(loaded.parameters(), module.parameters(), strict=True):
        assert torch.equal(one, two)
    assert not module._state_dict_hooks


def test_a_checkpoint_written_after_fit_is_plain_too(tmp_path):
    module, callback = build()
    trainer = fit(module, callback, 1, tmp_path)
    assert mollifier.is_mollified(module)
    trainer.save_checkpoint(tmp_path / "after.ckpt")
    Module.load_from_checkpoint(tmp_path / "after.ckpt")


def test_a_fit_resumed_in_the_middle_of_annealing_goes_on_bit_for_bit(tmp_path):
    from mollifier.integrations.lightning import MollifierCallback

    def start(seed: int):
        torch.manual_seed(seed)
        options = {"train_noise": "expected"}  # no noise that the second process would draw anew
        return Module(), MollifierCallback("net", k=2.0, restore=False, log=False, options=options)

    whole, callback = start(0)
    fit(whole, callback, 2, tmp_path)
    module, first = start(0)
    fit(module, first, 1, tmp_path).save_checkpoint(tmp_path / "half.ckpt")
    resumed, again = start(1)
    fit(resumed, again, 2, tmp_path, resume=tmp_path / "half.ckpt")
    assert 0 < again.annealer.levels[0] < 1
    assert again.annealer.levels == callback.annealer.levels
    assert resumed.state_dict().keys() == whole.state_dict().keys()
    for key, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], value), key


@pytest.mark.parametrize("horizon", [10, 1000])
def test_averaged_weights_beside_it(horizon, tmp_path):
    from lightning.pytorch.callbacks import EMAWeightAveraging

    from mollifier.integrations.lightning import MollifierCallback

    seen = []

    class Validated(Module):
        def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
            seen.append(mollifier.levels(self.net) == callback.annealer.levels)

        def val_dataloader(self) -> DataLoader:
            return data()

    module, keys = Validated(), list(Module().state_dict())
    callback = MollifierCallback("net", horizon=horizon, restore=horizon == 10)
    fit(module, [callback, EMAWeightAveraging(decay=0.5)], 4, tmp_path, num_sanity_val_steps=0)
    assert len(seen) == 32
    assert all(seen)
    if horizon == 10:
        assert list(module.state_dict()) == keys
    Module.load_from_checkpoint(next((tmp_path / "checkpoints").glob("*.ckpt")))


def test_callbacks_that_average_come_after_it(tmp_path):
    from lightning.pytorch.callbacks import EMAWeightAveraging

    from mollifier.integrations.lightning import MollifierCallback

    module = Module()
    with pytest.raises(ValueError, match=r"EMAWeightAveraging comes before MollifierCallback .*Put it after"):
        fit(module, [EMAWeightAveraging(), MollifierCallback()], 1, tmp_path)
    assert not mollifier.is_mollified(module)


def test_then_restore_in_the_middle_of_fit(tmp_path):
    from mollifier.integrations.lightning import MollifierCallback

    module = Module()
    fit(module, MollifierCallback("net", horizon=10, then="restore"), 2, tmp_path)
    assert not mollifier.is_mollified(module)
