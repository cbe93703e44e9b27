"""What public post-training libraries call their trainers and their command lines.

Names are facts about those libraries (TRL, transformers, verl, OpenRLHF, trlx, torchtune, axolotl,
LLaMA-Factory, ms-swift, unsloth); what they mean for a mode is `rl_bench.audit.mode`'s.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple


class Family(StrEnum):
    """What an update is made of."""

    SFT = "sft"
    """Cross-entropy over given labels, filtered samples among them."""
    DISTILL = "distill"
    """Another model's distribution."""
    RL = "rl"
    """Rewards of samples."""
    PREFERENCE = "preference"
    """Pairs or marks of what is better."""
    REWARD_MODEL = "reward_model"
    """Trains a judge of samples, not the submission."""
    MERGE = "merge"
    """Weights of several models averaged."""
    UNCLEAR = "unclear"
    """A loss of its own that the rules cannot read."""


class Method(NamedTuple):
    """A post-training method; ``online``: on samples of the model that is being trained."""

    name: str
    family: Family
    online: bool = False


SFT = Method("sft", Family.SFT)
DISTILL = Method("distillation", Family.DISTILL)
MERGE = Method("merge", Family.MERGE)
REWARD_MODEL = Method("reward_model", Family.REWARD_MODEL)
UNCLEAR = Method("custom", Family.UNCLEAR)
POLICY_GRADIENT = Method("policy_gradient", Family.RL, online=True)
OFFLINE_RL = Method("offline_rl", Family.RL)
EVOLUTION = Method("evolution", Family.RL, online=True)
PREFERENCE = Method("preference", Family.PREFERENCE)

_ONLINE_RL = ("grpo", "rloo", "ppo", "online_dpo", "xpo", "nash_md", "reinforce", "dapo", "gspo")
_PREFERENCE = ("dpo", "kto", "orpo", "cpo", "bco", "ipo", "simpo", "tpo")
_DISTILL = ("gkd", "distillation", "gold", "minillm", "sdft", "kd")
_NAMED: Mapping[str, Method] = {
    "sft": SFT,
    "pt": SFT,
    "pretrain": SFT,
    "reward": REWARD_MODEL,
    "rm": REWARD_MODEL,
    "prm": REWARD_MODEL,
    **{name: Method(name, Family.RL, online=True) for name in _ONLINE_RL},
    **{name: Method(name, Family.PREFERENCE) for name in _PREFERENCE},
    **{name: Method(name, Family.DISTILL) for name in _DISTILL},
    "ilql": Method("ilql", Family.RL),
    "iterative_dpo": Method("iterative_dpo", Family.PREFERENCE),
}

_ROOTS = frozenset({"trl", "transformers", "unsloth", "openrlhf", "verl", "swift", "trlx"})
_TRAINERS: Mapping[str, str] = {
    "Trainer": "sft",
    "Seq2SeqTrainer": "sft",
    "SFTTrainer": "sft",
    "UnslothTrainer": "sft",
    "IterativeSFTTrainer": "sft",
    "GRPOTrainer": "grpo",
    "AsyncGRPOTrainer": "grpo",
    "GMPOTrainer": "grpo",
    "A2POTrainer": "grpo",
    "PAPOTrainer": "grpo",
    "SDPOTrainer": "grpo",
    "RLOOTrainer": "rloo",
    "PPOTrainer": "ppo",
    "PPOv2Trainer": "ppo",
    "RayPPOTrainer": "ppo",
    "OnlineDPOTrainer": "online_dpo",
    "XPOTrainer": "xpo",
    "NashMDTrainer": "nash_md",
    "DPOTrainer": "dpo",
    "KTOTrainer": "kto",
    "ORPOTrainer": "orpo",
    "CPOTrainer": "cpo",
    "BCOTrainer": "bco",
    "TPOTrainer": "tpo",
    "RewardTrainer": "reward",
    "RewardModelTrainer": "reward",
    "PRMTrainer": "prm",
    "ProcessRewardModelTrainer": "prm",
    "GKDTrainer": "gkd",
    "GOLDTrainer": "gold",
    "MiniLLMTrainer": "minillm",
    "DistillationTrainer": "distillation",
    "ServerDistillationTrainer": "distillation",
    "SDFTTrainer": "sdft",
    "KDTrainer": "kd",
}
TRAIN_VERBS = frozenset({"train", "fit", "learn", "step", "run"})
"""Methods of a trainer that update weights; ``step`` and ``run`` are those of older ones."""


def trainer_method(dotted: str) -> Method | None:
    """The method of a trainer class by its full name, e.g. ``trl.GRPOTrainer``."""
    root, _, _ = dotted.partition(".")
    name = dotted.rpartition(".")[2]
    if root not in _ROOTS or name not in _TRAINERS:
        return None
    return _NAMED[_TRAINERS[name]]


def named_method(name: str) -> Method | None:
    """The method that a command line calls so, e.g. ``grpo``."""
    return _NAMED.get(name.lower().replace("-", "_"))


_MODULES: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"^trl\.(experimental\.)?(scripts|cli)\.(\w+)$", r"\3"),
        (r"^verl\.trainer\.(main_ppo|main_ppo_\w+)$", "ppo"),
        (r"^verl\.(trainer\.\w*sft\w*|trainer\.sft_trainer\w*)$", "sft"),
        (r"^recipe\.dapo\.main_dapo$", "dapo"),
        (r"^openrlhf\.cli\.train_(sft|dpo|kto|kd|rm|prm|ppo)(_\w+)?$", r"\1"),
        (r"^axolotl\.cli\.train$", "sft"),
    )
)


def module_method(module: str, args: Sequence[str]) -> Method | None:
    """The method that ``python -m module args`` trains by; None for everything else."""
    if module == "trl" and args:
        return named_method(args[0])
    for pattern, template in _MODULES:
        match = pattern.match(module)
        if match is not None:
            method = named_method(match.expand(template))
            return _refined(method, args) if method is not None else None
    return None


def _refined(method: Method, args: Sequence[str]) -> Method:
    """Verl's PPO program runs whatever advantage estimator it is told."""
    for word in args:
        key, _, value = word.partition("=")
        if key.endswith("adv_estimator"):
            return named_method(value) or method
    return method


def program_method(program: str, args: Sequence[str]) -> Method | None:
    """The method that a library's own command trains by, e.g. ``trl grpo`` or ``swift rlhf``."""
    if not args:
        return None
    if program == "trl":
        return named_method(args[0])
    if program == "tune" and args[0] == "run":
        return _recipe_method(" ".join(args[1:]))
    if program == "swift":
        kind = _option(args, "rlhf_type") if args[0] == "rlhf" else args[0]
        return named_method(kind)
    if program in {"llamafactory-cli", "lmf"} and args[0] == "train":
        return named_method(_option(args, "stage"))
    if program == "axolotl" and args[0] == "train":
        return named_method(_option(args, "rl")) or SFT
    if program.startswith("mergekit"):
        return MERGE
    return None


_RECIPES: Sequence[tuple[str, str]] = (
    ("ppo", "ppo"),
    ("grpo", "grpo"),
    ("dpo", "dpo"),
    ("knowledge_distillation", "distillation"),
    ("finetune", "sft"),
)


def _recipe_method(words: str) -> Method | None:
    return next((_NAMED[name] for mark, name in _RECIPES if mark in words), None)


def _option(args: Sequence[str], name: str) -> str:
    """The value of ``--name VALUE``, ``--name=VALUE`` or ``name=VALUE``; empty without one."""
    for place, word in enumerate(args):
        key, equals, value = word.lstrip("-").partition("=")
        if key.replace("-", "_") == name:
            return value if equals else next(iter(args[place + 1 :]), "")
    return ""


_CONFIG_KEY = re.compile(r"^\s*(stage|rl|rlhf_type)\s*:\s*[\"']?([a-z_]+)", re.MULTILINE)


def config_method(text: str) -> Method | None:
    """The method that a YAML file for one of these programs names."""
    match = _CONFIG_KEY.search(text)
    return named_method(match[2]) if match else None
