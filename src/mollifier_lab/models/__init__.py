"""The plain networks of the tasks and the baselines they are compared with. Nothing here is mollified: `apply_method` does that."""

from mollifier_lab.models.characters import CharacterEncoder as CharacterEncoder
from mollifier_lab.models.language import LanguageModel as LanguageModel
from mollifier_lab.models.mlp import mlp as mlp
from mollifier_lab.models.resnet import resnet as resnet

__all__ = ["CharacterEncoder", "LanguageModel", "mlp", "resnet"]
