"""The callback for the Trainer of transformers: anneals by the clock of its optimiser, resumes, restores."""

import pytest
import torch

import mollifier

transformers = pytest.importorskip("transformers", reason="pip install 'mollifier[transformers]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # the Trainer's own: it must run, not be quiet


class Words(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(6) + index) % 11
        return {"input_ids": ids, "labels": ids}


def build(seed: int = 0):
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=11, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def train(model, callback, folder, steps: int, resume=None):
    arguments = transformers.TrainingArguments(
        str(folder),
        max_steps=steps,
        per_device_train_batch_size=8,
        logging_steps=1,
        save_steps=4,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        restore_callback_states_from_checkpoint=True,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Words(), callbacks=[callback])
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_it_anneals_once_an_update_by_the_logged_loss_and_restores(tmp_path):
    from mollifier.integrations.transformers import MollifierCallback

    model = build()
    keys = list(model.state_dict())
    callback = MollifierCallback(horizon=6)
    train(mollifier.mollify(model, blocks=["transformer.h.*"]), callback, tmp_path, 12)
    assert callback.annealer.finished
    assert callback.annealer.loss_average > 1.5  # near log 11: the loss itself, not 1
    assert not mollifier.is_mollified(model)
    assert list(model.state_dict()) == keys


def test_it_goes_on_from_a_checkpoint(tmp_path):
    from mollifier.integrations.transformers import MollifierCallback

    first = MollifierCallback(restore=False, k=5.0)
    train(mollifier.mollify(build(), blocks=["transformer.h.*"]), first, tmp_path, 4)
    model = mollifier.mollify(build(1), blocks=["transformer.h.*"])
    trainer = train(model, MollifierCallback(restore=False, k=5.0), tmp_path, 8, resume=str(tmp_path / "checkpoint-4"))
    (again,) = (each for each in trainer.callback_handler.callbacks if isinstance(each, MollifierCallback))
    assert again.annealer.updates == 8
    assert mollifier.levels(model) == again.annealer.levels
    assert all(later < earlier for later, earlier in zip(again.annealer.levels, first.annealer.levels, strict=True))
