# SPDX-License-Identifier: Apache-2.0
"""The record layouts that are understood, each turned into one of three things: a conversation (messages and tools for the chat
template), a text, or token ids with their mask. Nothing here knows the tokenizer."""

import json
from dataclasses import dataclass
from typing import Any

from .errors import bad

FORMATS = ("auto", "openai", "sharegpt", "specforge", "text", "tokens")


@dataclass
class Conversation:
    messages: list[dict]
    tools: list | None


@dataclass
class Text:
    text: str


@dataclass
class Tokens:
    ids: list[int]
    mask: list[int]


# ShareGPT's speakers. A name that is not here is rejected: guessing who spoke would put loss on the wrong side.
SPEAKERS = {
    "human": "user", "user": "user",
    "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant", "bard": "assistant", "bing": "assistant",
    "bot": "assistant", "model": "assistant",
    "system": "system",
    "tool": "tool", "observation": "tool", "function_response": "tool",
}


def sample_id(value: Any, fallback: str) -> str:
    """A string or an integer; anything else, and a missing one, is derived from file and line."""
    given = value.get("id") if isinstance(value, dict) else None
    if isinstance(given, str) and given:
        return given
    if isinstance(given, int) and not isinstance(given, bool) and -(2**63) <= given < 2**64:
        return str(given)
    return fallback


def detect(value: dict) -> str:
    if "input_ids" in value:
        return "tokens"
    if "messages" in value:
        return "openai"
    if "conversations" in value:
        turns = value["conversations"]
        first = turns[0] if isinstance(turns, list) and turns else None
        return "sharegpt" if isinstance(first, dict) and "from" in first else "specforge"
    if "text" in value:
        return "text"
    keys = ", ".join(list(value)[:8])
    raise bad(f"no layout has these keys: {keys or '(none)'} (messages, conversations, text or input_ids expected)")


def read_layout(value: Any, layout: str) -> Conversation | Text | Tokens:
    if not isinstance(value, dict):
        raise bad(f"a JSON object expected, found {type(value).__name__}")
    if layout == "auto":
        layout = detect(value)
    return {"openai": _openai, "specforge": _specforge, "sharegpt": _sharegpt, "text": _text, "tokens": _tokens}[layout](value)


def _openai(value: dict) -> Conversation:
    return Conversation([_message(m, i) for i, m in enumerate(_list(value, "messages"))], _tools(value))


def _specforge(value: dict) -> Conversation:
    turns = [_message(m, i) for i, m in enumerate(_list(value, "conversations"))]
    return Conversation(_with_system(value, turns), _tools(value))


def _sharegpt(value: dict) -> Conversation:
    messages = []
    for i, turn in enumerate(_list(value, "conversations")):
        if not isinstance(turn, dict) or not isinstance(turn.get("from"), str):
            raise bad(f'message {i}: an object with "from" and "value" expected')
        role = SPEAKERS.get(turn["from"].lower())
        if role is None:
            raise bad(f'message {i}: unknown speaker "{turn["from"]}" (known: {", ".join(SPEAKERS)})')
        if not isinstance(turn.get("value"), str):
            raise bad(f'message {i}: "value" is not a string')
        messages.append({"role": role, "content": turn["value"]})
    return Conversation(_with_system(value, messages), _tools(value))


def _text(value: dict) -> Text:
    if not isinstance(value.get("text"), str):
        raise bad('"text" is not a string')
    return Text(value["text"])


def _tokens(value: dict) -> Tokens:
    """The same checks, in the same order, as import_jsonl in src/dataset/import_line.cpp."""
    ids, mask = _list(value, "input_ids"), _list(value, "loss_mask")
    for name, values in (("input_ids", ids), ("loss_mask", mask)):
        for i, v in enumerate(values):
            allowed = (int, bool) if name == "loss_mask" else (int,)
            if type(v) not in allowed or not -(2**63) <= v < 2**64:
                raise bad(f"{name}[{i}] is not an integer")
    if len(ids) != len(mask):
        raise bad(f"{len(ids)} input_ids but {len(mask)} values in loss_mask")
    for i, v in enumerate(mask):
        if v not in (0, 1):
            raise bad(f"loss_mask[{i}] is {v}, not 0 or 1")
    return Tokens(ids, [int(v) for v in mask])


def _list(value: dict, key: str) -> list:
    if not isinstance(value.get(key), list):
        raise bad(f'"{key}" is missing' if key not in value else f'"{key}" is not a list')
    return value[key]


def _tools(value: dict) -> list | None:
    tools = value.get("tools")
    if isinstance(tools, str):  # some sets store the list as JSON text
        try:
            tools = json.loads(tools) if tools.strip() else None
        except ValueError as e:
            raise bad(f'"tools" is a string that is not JSON: {e}') from e
    if tools is not None and not isinstance(tools, list):
        raise bad('"tools" is not a list')
    return tools or None


def _with_system(value: dict, messages: list[dict]) -> list[dict]:
    system = value.get("system")
    if isinstance(system, str) and system and messages and messages[0]["role"] != "system":
        return [{"role": "system", "content": system}, *messages]
    return messages


def _message(message: Any, i: int) -> dict:
    """The message as given, but for two things: keys that are null are left out (templates print "None" for them), and a list of text
    parts becomes one string (most templates concatenate)."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise bad(f'message {i}: an object with "role" and "content" expected')
    message = {k: v for k, v in message.items() if v is not None}
    content = message.get("content")
    if isinstance(content, list):
        parts = []
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            if kind != "text" or not isinstance(part.get("text"), str):
                raise bad(f"message {i}: a content part of type {kind!r}; only text can be prepared")
            parts.append(part["text"])
        message["content"] = "\n".join(parts)
    elif content is not None and not isinstance(content, str):
        raise bad(f"message {i}: content is neither text nor a list of text parts")
    elif content is None and not (message.get("tool_calls") or message.get("reasoning_content") or message.get("function_call")):
        raise bad(f"message {i}: no content")
    return message
