"""Tokenizes prompts and messages of requests as training does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.serve.protocol import RequestError


def encode_completion(policy: LMPolicy, prompt: str | list[str] | list[int] | list[list[int]]) -> list[list[int]]:
    """Tokenize plain prompts, without a chat template.

    Raises:
        RequestError: A prompt without tokens, or a token that the model does not have.
    """
    # One prompt as text or as tokens, or several of either.
    several = isinstance(prompt, list) and not (prompt and isinstance(prompt[0], int))
    prompts: Any = prompt if several else [prompt]
    rows = [_encode_text(policy, one) if isinstance(one, str) else _checked(policy, one) for one in prompts]
    if not rows or not all(rows):
        raise RequestError(400, "the prompt has no tokens: give it some text", param="prompt")
    return rows


def encode_chat(
    policy: LMPolicy, messages: Sequence[tuple[str, str]], *, continue_final: bool = False
) -> list[list[int]]:
    """Tokenize a chat as one prompt.

    It goes through the tokenizer's chat template with thinking off, as prompts do in training. Without a template the
    texts are separated by empty lines; a single message is the prompt itself.

    Args:
        policy: Whose tokenizer is used.
        messages: Role and text of each message.
        continue_final: Take the last message as the beginning of the answer.

    Raises:
        RequestError: The template refuses the messages, or nothing is left to continue or to encode.
    """
    begun = ""
    if continue_final:
        *messages, (role, begun) = messages
        if role != "assistant" or not messages:
            message = "continue_final_message needs a last message of the role assistant, after at least one other"
            raise RequestError(400, message, param="continue_final_message")
    tokenizer = policy.tokenizer
    if tokenizer.chat_template is None:
        text = "\n\n".join(text for _, text in messages if text)
    else:
        chat = [{"role": "system" if role == "developer" else role, "content": text} for role, text in messages]
        try:
            text = policy.apply_template(chat)
        except TemplateError as error:
            raise RequestError(400, f"the chat template refuses these messages: {error}", param="messages") from None
    row = _encode_text(policy, text + begun, templated=tokenizer.chat_template is not None)
    if not row:
        raise RequestError(400, "the messages have no tokens: give them some text", param="messages")
    return [row]


def _encode_text(policy: LMPolicy, text: str, *, templated: bool = False) -> list[int]:
    ids: list[int] = policy.tokenizer(text, add_special_tokens=not templated, verbose=False)["input_ids"]
    return ids


def _checked(policy: LMPolicy, ids: Any) -> list[int]:
    bad = next((token for token in ids if not 0 <= token < policy.vocabulary), None)
    if bad is not None:
        message = f"the prompt has the token {bad}, but this model's are 0 to {policy.vocabulary - 1}"
        raise RequestError(400, message, param="prompt")
    return list(ids)
