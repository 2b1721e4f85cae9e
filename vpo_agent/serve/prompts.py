"""Tokenizes the prompts and messages of requests in the same way as training."""

from __future__ import annotations

from typing import Any

from jinja2.exceptions import TemplateError

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.serve.protocol import ChatRequest, CompletionRequest, RequestError


def encode(policy: LMPolicy, asked: CompletionRequest | ChatRequest) -> list[list[int]]:
    """Tokenize the prompts of a request.

    Raises:
        RequestError: A prompt without tokens, a token that the model does not have, or messages that the template
            refuses or that cannot be continued.
    """
    if isinstance(asked, ChatRequest):
        return [_encode_chat(policy, asked)]
    # One prompt as text or as tokens, or several of either.
    prompt: Any = asked.prompt
    several = isinstance(prompt, list) and not (prompt and isinstance(prompt[0], int))
    rows = [_encode_prompt(policy, one) for one in (prompt if several else [prompt])]
    if not rows or not all(rows):
        raise RequestError(400, "the prompt has no tokens: give it some text", param="prompt")
    return rows


def _encode_prompt(policy: LMPolicy, prompt: str | list[int]) -> list[int]:
    """Tokenize a plain prompt, without a chat template, or check its tokens."""
    if isinstance(prompt, str):
        return _encode_text(policy, prompt)
    bad = next((token for token in prompt if not 0 <= token < policy.vocabulary), None)
    if bad is not None:
        message = f"the prompt has the token {bad}, but this model's are 0 to {policy.vocabulary - 1}"
        raise RequestError(400, message, param="prompt")
    return prompt


def _encode_chat(policy: LMPolicy, asked: ChatRequest) -> list[int]:
    """Tokenize a chat as one prompt.

    It goes through the tokenizer's chat template with thinking off, as prompts do in training. Without a template the
    texts are separated by empty lines; a single message is the prompt itself.
    """
    messages, begun = asked.messages, ""
    if asked.continue_final_message:
        *messages, last = messages
        begun = last.text
        if last.role != "assistant" or not messages:
            message = "continue_final_message needs a last message of the role assistant, after at least one other"
            raise RequestError(400, message, param="continue_final_message")
    templated = policy.tokenizer.chat_template is not None
    if templated:
        roles = {"developer": "system"}
        try:
            text = policy.apply_template([{"role": roles.get(m.role, m.role), "content": m.text} for m in messages])
        except TemplateError as error:
            raise RequestError(400, f"the chat template refuses these messages: {error}", param="messages") from None
    else:
        text = "\n\n".join(message.text for message in messages if message.text)
    row = _encode_text(policy, text + begun, templated=templated)
    if not row:
        raise RequestError(400, "the messages have no tokens: give them some text", param="messages")
    return row


def _encode_text(policy: LMPolicy, text: str, *, templated: bool = False) -> list[int]:
    ids: list[int] = policy.tokenizer(text, add_special_tokens=not templated, verbose=False)["input_ids"]
    return ids
