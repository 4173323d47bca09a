"""A small GPT-2 in a training by the Trainer of transformers, mollified. Compare it with its plain twin, huggingface_plain.py.

Hardware: one core of a CPU. Time: about 20 s for both twins. Expect: validation loss in nats per character 0.62 (letters alone: 2.65).
"""

# %% The data: sentences of a small grammar, in which verbs agree with their subjects, as windows of characters
import random
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import mollifier
from mollifier.integrations.transformers import MollifierCallback

NOUNS, VERBS, ADJECTIVES = (
    ("cat", "dog", "bird", "fish", "horse"),
    ("see", "chase", "like", "know"),
    ("small", "red", "old", "quick"),
)


def sentence(draw: random.Random) -> str:
    plural, adjectives = draw.random() < 0.5, [draw.choice(ADJECTIVES) for _ in range(draw.randint(0, 3))]
    subject, verb, thing = draw.choice(NOUNS), draw.choice(VERBS), draw.choice(NOUNS)
    words = ["these", *adjectives, f"{subject}s", verb] if plural else ["this", *adjectives, subject, f"{verb}s"]
    return " ".join([*words, "the", f"{thing}. "])


DRAW = random.Random(0)
TEXT = "".join(sentence(DRAW) for _ in range(6000))
SYMBOLS = sorted(set(TEXT))
WINDOWS = torch.tensor([SYMBOLS.index(letter) for letter in TEXT]).unfold(0, 33, 32)
ROWS = [{"input_ids": row, "labels": row} for row in WINDOWS]
TRAIN, VALID = ROWS[:-100], ROWS[-100:]


# %% The network: with its residual connections, so that it trains without help, too
def network() -> GPT2LMHeadModel:
    sizes = {"n_layer": 4, "n_embd": 32, "n_head": 4, "n_positions": 33, "vocab_size": len(SYMBOLS)}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    return GPT2LMHeadModel(GPT2Config(**sizes, **none))


# %% The training: returns the losses that the Trainer logged, and the plain network's loss on other sentences, in nats per character
def train(updates: int = 600, seed: int = 1) -> tuple[list[float], float]:
    torch.manual_seed(seed)
    model = network()
    callbacks = []
    model = mollifier.mollify(model, blocks=["transformer.h.*"])
    callbacks = [MollifierCallback(horizon=0.75 * updates)]
    with tempfile.TemporaryDirectory() as folder:
        quiet = {
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "logging_steps": 10,
            "log_level": "error",
        }
        settings = {
            "max_steps": updates,
            "per_device_train_batch_size": 16,
            "learning_rate": 2e-3,
            "use_cpu": True,
            "seed": seed,
        }
        arguments = TrainingArguments(folder, **settings, **quiet)
        trainer = Trainer(model, arguments, train_dataset=TRAIN, eval_dataset=VALID, callbacks=callbacks)
        trainer.train()
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
        return losses, trainer.evaluate()["eval_loss"]


# %%
if __name__ == "__main__":
    torch.set_num_threads(1)  # layers this small are slower on several
    losses, valid = train()
    print(f"validation loss {valid:.2f} nats per character; letters without their context have 2.65")
