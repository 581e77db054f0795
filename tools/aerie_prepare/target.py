# SPDX-License-Identifier: Apache-2.0
"""What a target's directory says about text: tokenizer, chat template, special tokens, size of the vocabulary."""

import datetime
import hashlib
import json
from pathlib import Path

from tokenizers import Tokenizer, processors

from .errors import DATA, IO, MISSING, USAGE, Fatal
from .spans import Markers
from .template import ChatTemplate

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def _read_json(path: Path) -> dict:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as e:
        raise Fatal(DATA, f"{path}: not valid JSON: {e}", "the target's directory is damaged") from e
    except OSError as e:
        raise Fatal(IO, str(e)) from e
    if not isinstance(value, dict):
        raise Fatal(DATA, f"{path}: a JSON object expected", "the target's directory is damaged")
    return value


def _token_text(value) -> str | None:
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


class Target:
    def __init__(self, directory: Path, chat_template: Path | None, now: datetime.datetime):
        if not directory.is_dir():
            raise Fatal(MISSING, f"{directory}: no such directory", "--target names a directory with tokenizer.json")
        self.directory = directory
        self._config = _read_json(directory / "tokenizer_config.json")
        self._special = self._special_tokens()
        self._templates = {name: ChatTemplate(text, self._special, now, origin)
                           for name, (text, origin) in self._template_texts(chat_template).items()}
        self.tokenizer, tokenizer_bytes = self._load_tokenizer()
        self.vocab_size = self._vocab_size()
        added = self.tokenizer.get_added_tokens_decoder().values() if self.tokenizer else ()
        self.markers = Markers([t.content for t in added])
        self.tokenizer_hash = self._hash(tokenizer_bytes)

    def template(self, tools: list | None) -> ChatTemplate:
        """The one named tool_use for conversations with tools, where there is one; else the default."""
        if not self._templates:
            raise Fatal(USAGE, f"{self.directory}: has no chat template", "give one with --chat-template FILE")
        return self._templates.get("tool_use") if tools and "tool_use" in self._templates else self._templates["default"]

    def need_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise Fatal(MISSING, f"{self.directory}/tokenizer.json: no such file",
                        "convert the model's tokenizer to tokenizer.json, or prepare token ids yourself (--format tokens)")
        return self.tokenizer

    @property
    def uses_clock(self) -> bool:
        return any(t.uses_clock for t in self._templates.values())

    def _special_tokens(self) -> dict:
        special = {}
        for source in (_read_json(self.directory / "special_tokens_map.json"), self._config):  # the later one wins
            for name in SPECIAL:
                if (text := _token_text(source.get(name))) is not None:
                    special[name] = text
            more = source.get("additional_special_tokens")
            if isinstance(more, list):
                special["additional_special_tokens"] = [t for t in map(_token_text, more) if t is not None]
        return special

    def _template_texts(self, given: Path | None) -> dict[str, tuple[str, str]]:
        """By name: text and where it came from. A file given by the user, then the directory's own file, then its settings."""
        if given is not None and not given.is_file():
            raise Fatal(MISSING, f"{given}: no such file", "check --chat-template")
        for path in (given, self.directory / "chat_template.jinja"):
            if path is not None and path.is_file():
                try:
                    return {"default": (path.read_bytes().decode("utf-8"), str(path))}
                except UnicodeError as e:
                    raise Fatal(DATA, f"{path}: not valid UTF-8: {e}") from e
                except OSError as e:
                    raise Fatal(IO, str(e)) from e
        for name in ("tokenizer_config.json", "chat_template.json"):
            path = self.directory / name
            value = self._config.get("chat_template") if name == "tokenizer_config.json" else _read_json(path).get("chat_template")
            if value is None:
                continue
            if isinstance(value, str):
                value = [{"name": "default", "template": value}]
            if isinstance(value, dict):
                value = [{"name": k, "template": v} for k, v in value.items()]
            if not isinstance(value, list) or not all(
                isinstance(t, dict) and isinstance(t.get("name"), str) and isinstance(t.get("template"), str) for t in value):
                raise Fatal(DATA, f"{path}: chat_template is neither text nor a list of named templates")
            found = {t["name"]: (t["template"], f"{path}: {t['name']}") for t in value if t["name"] in ("default", "tool_use")}
            if "default" not in found:
                raise Fatal(DATA, f'{path}: no chat template is named "default"', "choose one with --chat-template FILE")
            return found
        return {}

    def _load_tokenizer(self) -> tuple[Tokenizer | None, bytes]:
        path = self.directory / "tokenizer.json"
        if not path.is_file():
            return None, b""
        try:
            raw = path.read_bytes()
            tokenizer = Tokenizer.from_buffer(raw)
        except OSError as e:
            raise Fatal(IO, str(e)) from e
        except Exception as e:  # the package raises its own types for damaged files
            raise Fatal(DATA, f"{path}: not a tokenizer: {e}", "the target's directory is damaged") from e
        tokenizer.no_truncation()  # some files carry both as left over from training
        tokenizer.no_padding()
        # No special tokens are added, so all that a post-processor could do is to trim blanks off the offsets, which spans need.
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        return tokenizer, raw

    def _vocab_size(self) -> int:
        """Of the model (ids up to here have an embedding), else of the tokenizer."""
        config = _read_json(self.directory / "config.json")
        for part in (config, config.get("text_config")):
            if isinstance(part, dict) and isinstance(part.get("vocab_size"), int) and part["vocab_size"] > 0:
                return part["vocab_size"]
        return self.tokenizer.get_vocab_size(with_added_tokens=True) if self.tokenizer else 0

    def _hash(self, tokenizer_bytes: bytes) -> str:
        """sha256 over tokenizer.json, one zero byte, the template; a tool_use template follows after another zero byte."""
        if not tokenizer_bytes:
            return ""
        h = hashlib.sha256(tokenizer_bytes)
        for name in ("default", "tool_use"):
            if name in self._templates or name == "default":
                template = self._templates.get(name)
                h.update(b"\0" + (template.source.encode("utf-8") if template else b""))
        return "sha256:" + h.hexdigest()
