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


@pytest.mark.parametrize("level", [1.0, 0.3, 0.0])
def test_save_pretrained_writes_the_plain_network(level, tmp_path):
    from safetensors.torch import load_file

    model = build()
    keys = set(load_file(save(model, tmp_path / "plain")))
    ignored = set(model._keys_to_ignore_on_save)
    mollifier.mollify(model, blocks=["transformer.h.*"], level=level)
    assert set(load_file(save(model, tmp_path / "mollified"))) == keys
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "mollified")
    for name, weight in mollifier.plain_state_dict(model).items():
        assert torch.equal(loaded.state_dict()[name], weight)
    mollifier.restore(model, force=True)
    assert model._keys_to_ignore_on_save == ignored


def save(model, folder) -> str:
    model.save_pretrained(folder)
    return str(folder / "model.safetensors")


def test_bert_too(tmp_path):
    from safetensors.torch import load_file

    torch.manual_seed(0)
    sizes = {
        "vocab_size": 11,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, max_position_embeddings=8))
    keys = set(load_file(save(model, tmp_path / "plain")))
    mollifier.mollify(model, blocks=["bert.encoder.layer.*"])
    assert set(load_file(save(model, tmp_path / "mollified"))) == keys
    transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "mollified")


def test_a_checkpoint_is_plain_and_resumes_with_what_was_added(tmp_path):
    from safetensors.torch import load_file

    from mollifier.integrations.transformers import MollifierCallback

    model = mollifier.mollify(build(), blocks=["transformer.h.*"])
    train(model, MollifierCallback(restore=False, k=5.0), tmp_path, 4)
    kept = {key: value for key, value in model.state_dict().items() if "_mollifier" in key}
    assert not [key for key in load_file(tmp_path / "checkpoint-4" / "model.safetensors") if "_mollifier" in key]

    other = mollifier.mollify(build(1), blocks=["transformer.h.*"])
    assert any(not torch.equal(other.state_dict()[key], value) for key, value in kept.items())
    train(other, MollifierCallback(restore=False, k=5.0), tmp_path, 4, resume=str(tmp_path / "checkpoint-4"))
    for key, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[key], value), key


def test_a_checkpoint_of_another_mollification_is_refused(tmp_path):
    from mollifier.integrations.transformers import MollifierCallback

    train(mollifier.mollify(build(), blocks=["transformer.h.*"]), MollifierCallback(restore=False), tmp_path, 4)
    other = mollifier.mollify(build(), blocks=["transformer.h.0"])
    with pytest.raises(ValueError, match=r"mollified in a different way: .*Mollify with the same options"):
        train(other, MollifierCallback(restore=False), tmp_path, 8, resume=str(tmp_path / "checkpoint-4"))
