# SPDX-License-Identifier: Apache-2.0
"""A chat template as a function: messages -> text, in the environment that Hugging Face templates are written for. Templates are
foreign programs, so the environment is sandboxed and whatever one throws rejects the sample, not the run."""

import datetime
import json
import re

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .errors import DATA, Fatal, bad

# Noncharacters of Unicode: no text for people holds them. They mark where {% generation %} blocks begin and end.
OPEN, CLOSE = "\ufdd0\ufdd1", "\ufdd1\ufdd0"


class GenerationBlocks(Extension):
    """{% generation %}...{% endgeneration %}: what the model itself writes. Renders its body, between marks when `marking` is on."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        environment.extend(generation_blocks=0, marking=[False])

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        self.environment.generation_blocks += 1
        return nodes.CallBlock(self.call_method("_wrap"), [], [], body).set_lineno(line)

    def _wrap(self, caller):
        text = caller()
        return OPEN + text + CLOSE if self.environment.marking[0] else text


def _raise_exception(message):
    raise jinja2.TemplateError(message)


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    # Jinja's own filter escapes <, > and & for HTML; models were trained on plain JSON.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class ChatTemplate:
    """`now` is taken once, so that every rendering of a run agrees on the date. `uses_clock`: the template asked for it."""

    def __init__(self, source: str, special: dict, now: datetime.datetime, origin: str):
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, loopcontrols])
        self.uses_clock = False

        def strftime_now(pattern):
            self.uses_clock = True
            return now.strftime(pattern)

        env.filters["tojson"] = _tojson
        env.globals.update(raise_exception=_raise_exception, strftime_now=strftime_now)
        try:
            self._template = env.from_string(source)
        except jinja2.TemplateError as e:
            raise Fatal(DATA, f"{origin}: the chat template does not compile: {e}", "give another one with --chat-template") from e
        self._env, self._special = env, special
        self.source = source

    @property
    def has_generation_blocks(self) -> bool:
        return self._env.generation_blocks > 0

    def render(self, messages: list[dict], tools: list | None, generation_prompt: bool = False) -> str:
        """Throws Reject with the template's own message."""
        try:
            return self._template.render(**self._special, messages=messages, tools=tools, documents=None,
                                         add_generation_prompt=generation_prompt)
        except jinja2.TemplateError as e:
            raise bad(f"the chat template rejects it: {e.message or type(e).__name__}") from e
        except Exception as e:  # any other exception is the foreign program's too
            raise bad(f"the chat template fails on it: {type(e).__name__}: {e}") from e

    def render_marked(self, messages: list[dict], tools: list | None) -> tuple[str, list[tuple[int, int]]]:
        """The rendering and the character spans of its {% generation %} blocks."""
        plain = self.render(messages, tools)
        if OPEN in plain or CLOSE in plain:
            raise bad("the text holds the noncharacters U+FDD0 U+FDD1")
        self._env.marking[0] = True
        try:
            marked = self.render(messages, tools)
        finally:
            self._env.marking[0] = False
        spans, starts, at = [], [], 0
        for piece in re.split(f"({OPEN}|{CLOSE})", marked):
            if piece == OPEN:
                starts.append(at)
            elif piece == CLOSE:
                if not starts:
                    raise bad("the chat template tears its generation blocks apart")
                begin = starts.pop()
                if not starts:  # an inner block lies within its outer one
                    spans.append((begin, at))
            else:
                at += len(piece)
        # A template that trims or compares a captured block would render something else with marks in it.
        if starts or marked.replace(OPEN, "").replace(CLOSE, "") != plain:
            raise bad("the chat template changes its text when generation blocks are marked")
        return plain, spans
