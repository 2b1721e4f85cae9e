"""Small models, tokenizers and an environment for the agent's tests, each made within seconds and from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from vpo_agent.policy.chat import ChatFormat
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Samples
from vpo_envs import Objective, Task, Unparsable, VectorTextEnv
from vpo_envs.core import ScorerFailure
from vpo_envs.text import answer_tags, format_answers

CHAT_TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% if enable_thinking is defined and not enable_thinking %}"
    " (no thinking){% endif %} {% endif %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MAY_THINK = CHATML.replace(
    "assistant\n{% endif", "assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif"
)
"""As Qwen3's: thinking is on unless it is switched off."""
ALWAYS_THINKS = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
"""As DeepSeek-R1's: the template opens the thoughts of every response."""
CHATML_MARKS = ("<|im_start|>", "<|im_end|>")
FAMILIES = ("qwen3", "llama", "gpt2", "gemma2", "opt")
"""Rotary positions with and without query norms, learned absolute positions, and capped logits."""


def bpe_tokenizer(
    *, chat: bool = False, pad: str | None = "<pad>", eos: str | None = "<eos>"
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of 300 tokens, under which a closing tag is several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token in (pad, eos) if token is not None]
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the maze and the answer", "an answer to the maze"] * 4, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=pad, eos_token=eos, padding_side="left")
    if chat:
        made.chat_template = CHAT_TEMPLATE
    return made


def save_reward_model(
    folder: Path, *, seed: int = 0, labels: int = 1, chat: bool = True, nan: bool = False, positions: int = 256
) -> str:
    """Save a tiny random reward model with its tokenizer, and return the path of its folder."""
    tokenizer = bpe_tokenizer(chat=chat)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=positions,
        pad_token_id=tokenizer.pad_token_id,
        num_labels=labels,
        initializer_range=0.5,
    )
    model = LlamaForSequenceClassification(config)
    if nan:
        model.score.weight.data.fill_(float("nan"))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def tiny_model(
    family: str, tokenizer: PreTrainedTokenizerFast, *, seed: int = 0, scale: float = 4.0, **changes: Any
) -> Any:
    """A model of a few thousand parameters; ``scale`` widens its weights, so that its distributions are not flat."""
    common = {
        "vocab_size": len(tokenizer),
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    wide = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
    }
    torch.manual_seed(seed)
    model: Any
    if family == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(**{**common, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256, **changes})
        )
    elif family == "opt":
        sizes = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "num_hidden_layers": 2}
        more = {"num_attention_heads": 4, "max_position_embeddings": 256}
        model = OPTForCausalLM(OPTConfig(**{**common, **sizes, **more, **changes}))
    elif family == "llama":
        model = LlamaForCausalLM(LlamaConfig(**{**common, **wide, **changes}))
    elif family == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**{**common, **wide, "tie_word_embeddings": True, **changes}))
    else:
        model = Gemma2ForCausalLM(Gemma2Config(**{**common, **wide, "final_logit_softcapping": 2.0, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model.eval()


def ends_often(model: Any) -> Any:
    """The model with a tenth of its vocabulary as end-of-sequence tokens, so that rows end at different times."""
    model.generation_config.eos_token_id = list(range(1, model.config.vocab_size, 10))
    return model


def make_policy(family: str, *, chat: bool = False, checkpointing: bool = False, **changes: Any) -> LMPolicy:
    """A policy of a tiny model whose rows end at different times."""
    tokenizer = bpe_tokenizer(chat=chat)
    model = ends_often(tiny_model(family, tokenizer, **changes))
    return LMPolicy(model, tokenizer, gradient_checkpointing=checkpointing)


def teach(
    model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]], *, steps: int = 100, rate: float = 5e-3
) -> None:
    """Train the model on prompts with their responses until it reproduces them."""
    rows = []
    for prompt, response in pairs:
        head = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        rows.append((head, tokenizer(response, add_special_tokens=False)["input_ids"]))
    longest = max(len(head) + len(tail) for head, tail in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    counts = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, (head, tail) in enumerate(rows):
        ids[i, : len(head) + len(tail)] = torch.tensor(head + tail)
        counts[i, len(head) : len(head) + len(tail)] = True
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(steps):
        logits = model(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits[counts[:, 1:]], ids[:, 1:][counts[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.zero_grad()


def chat_tokenizer(template: str, *tokens: str, eos: str = "<eos>") -> Any:
    """A byte-level tokenizer with a template, and these special tokens."""
    tokenizer = bpe_tokenizer(eos=eos)
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
    tokenizer.chat_template = template
    return tokenizer


def taught(tokenizer: Any, prompt: str, response: str) -> LMPolicy:
    """A policy that writes this response to a prompt, with the template's end of turn."""
    model = tiny_model("qwen3", tokenizer, scale=1.0)
    head = ChatFormat(tokenizer).apply([{"role": "user", "content": prompt}]) if tokenizer.chat_template else prompt
    teach(model, tokenizer, [(head, response)], steps=150)
    return LMPolicy(model.eval(), tokenizer)


def plain_log_probs(policy: LMPolicy, samples: Samples) -> list[Tensor]:
    """Return the log-probabilities of each response by a forward pass over its own unpadded sequence, uncached."""
    out = []
    for row in range(len(samples.ids)):
        prompt = row // samples.rollouts_per_prompt
        head = samples.prompt_ids[prompt][samples.prompt_mask[prompt]]
        tail = samples.ids[row][samples.mask[row]]
        logits = policy.model(input_ids=torch.cat([head, tail])[None]).logits[0, len(head) - 1 : -1]
        log_probs = torch.log_softmax(logits.float() / samples.temperature, dim=-1)
        out.append(log_probs.gather(1, tail[:, None])[:, 0])
    return out


def check_log_probs(policy: LMPolicy, samples: Samples, tolerance: float = 1e-4) -> None:
    """Compare the log-probabilities of sampling and of the update with those of :func:`plain_log_probs`."""
    with torch.no_grad():
        expected = torch.cat(plain_log_probs(policy, samples))
        for found in (samples.log_probs, policy.log_probs(samples)[0]):
            torch.testing.assert_close(found[samples.mask], expected, rtol=0, atol=tolerance)
            assert (found[~samples.mask] == 0).all()


# ------------------------------------------------------------------------------------------ an environment of letters

LETTERS = {"a": (1.0, 0.0), "b": (0.0, 1.0), "c": (0.4, 0.4), "d": (0.0, 0.0), "e": (0.7, 0.1)}
BROKEN = "x"
"""The answer at which the scorer fails."""


class LettersTask(Task):
    """A number, shown in the prompt."""

    number: int


class LettersEnv(VectorTextEnv[LettersTask, str, tuple[float, float]]):
    """Name a letter: each is worth a fixed vector, the same for every task."""

    task_type = LettersTask
    namespace = 990
    objectives = (
        Objective("left", "first component", lambda outcome: outcome[0]),
        Objective("right", "second component", lambda outcome: outcome[1]),
    )

    def generate(self, rng: np.random.Generator) -> LettersTask:
        return LettersTask(number=int(rng.integers(10 ** int(rng.integers(1, 6)))))

    def prompt(self, task: LettersTask, num_answers: int) -> str:
        return " ".join(["pick", str(num_answers), "for", *str(task.number)])

    def parse(self, text: str) -> str:
        answer = text.strip()
        if answer not in LETTERS and answer != BROKEN:
            raise Unparsable("no such letter")
        return answer

    def evaluate(self, task: LettersTask, answer: str) -> tuple[float, float]:
        if answer == BROKEN:
            raise ScorerFailure("broken")
        return LETTERS[answer]

    def outcome_info(self, outcome: tuple[float, float] | None) -> dict[str, Any] | None:
        return None if outcome is None else {"vector": list(outcome)}

    def outcome_front(self, task: LettersTask) -> list[tuple[tuple[float, float], str]]:
        return [(LETTERS[letter], letter) for letter in "abce"]


class ShownLettersEnv(LettersEnv):
    """Letters with demonstrations: an a, a b or an e."""

    def demonstrations(self, task: LettersTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        return [str(letter) for letter in rng.choice(list("abe"), size=num_answers)]


LETTERS_ID = "test/Letters-v0"
SHOWN_LETTERS_ID = "test/ShownLetters-v0"
for _name, _class in ((LETTERS_ID, LettersEnv), (SHOWN_LETTERS_ID, ShownLettersEnv)):
    if _name not in gym.registry:
        gym.register(id=_name, entry_point=f"toys:{_class.__name__}", disable_env_checker=True)


def letters_tokenizer() -> PreTrainedTokenizerFast:
    """One token per letter, digit and tag."""
    tags = [tag for m in (1, 3) for pair in answer_tags(m) for tag in pair]
    words = ["<pad>", "<eos>", "<unk>", "pick", "for", *map(str, range(10)), *LETTERS, BROKEN, *tags]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"</?answer(_\d+)?>"), "isolated")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def save_letters_model(folder: Path, *, letters: str = "".join(LETTERS)) -> Path:
    """Save a model that answers with uniformly drawn letters, one or three at a time; return its folder."""
    tokenizer = letters_tokenizer()
    model = tiny_model("qwen3", tokenizer, scale=1.0, num_hidden_layers=1, max_position_embeddings=64)
    rng = np.random.default_rng(0)
    env = LettersEnv()
    pairs = []
    for index in range(256):
        m = int(rng.choice([1, 3]))
        answers = [f" {letter} " for letter in rng.choice(list(letters), size=m)]
        pairs.append((env.prompt(env.task(index), m), format_answers(answers) + " <eos>"))
    teach(model, tokenizer, pairs, steps=80, rate=1e-2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# ------------------------------------------------------------------------------------------ six letters


class StringsEnv(LettersEnv):
    """Write six letters: each place that holds an a is worth a sixth. Independent samples hardly ever get them all."""

    objectives = (Objective("share", "share of a", lambda outcome: outcome[0]),)

    def parse(self, text: str) -> str:
        return "".join(text.split())

    def evaluate(self, task: object, answer: str) -> tuple[float, float]:
        return sum(letter == "a" for letter in answer[:6]) / 6, 0.0

    def outcome_front(self, task: object) -> list[tuple[tuple[float, float], str]]:
        return [((1.0, 0.0), "aaaaaa")]


class CornersEnv(StringsEnv):
    """Write six letters: places that hold an a earn one objective, those that hold a b the other."""

    objectives = (
        Objective("a", "share of a", lambda outcome: outcome[0]),
        Objective("b", "share of b", lambda outcome: outcome[1]),
    )

    def evaluate(self, task: object, answer: str) -> tuple[float, float]:
        return sum(letter == "a" for letter in answer[:6]) / 6, sum(letter == "b" for letter in answer[:6]) / 6

    def outcome_front(self, task: object) -> list[tuple[tuple[float, float], str]]:
        return [((a / 6, 1 - a / 6), "a" * a + "b" * (6 - a)) for a in range(7)]


def strings_policy() -> LMPolicy:
    """Make a policy that writes six letters, each a or b with equal chances."""
    tokenizer = letters_tokenizer()
    model = tiny_model("qwen3", tokenizer, scale=1.0, max_position_embeddings=64)
    env, rng = StringsEnv(), np.random.default_rng(0)
    pairs = [
        (env.prompt(env.task(i), 1), f"<answer> {' '.join(rng.choice(list('ab'), size=6))} </answer> <eos>")
        for i in range(128)
    ]
    teach(model, tokenizer, pairs, steps=80, rate=1e-2)
    return LMPolicy(model.eval(), tokenizer)
