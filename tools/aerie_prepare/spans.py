# SPDX-License-Identifier: Apache-2.0
"""Which characters of a rendered conversation the assistant wrote, its end-of-turn token included. Found by rendering, not by
knowing any model: the rules are in docs/reference/dataset.md, section "Loss mask"; the names of the steps are the same there."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from .errors import Reject, bad
from .template import ChatTemplate

Span = tuple[int, int]
PROBE = "QzProbeContentzQ"  # survives trimming, case-preserving templates and JSON quoting


def common_prefix(a: str, b: str) -> int:
    lo, hi = 0, min(len(a), len(b))
    while lo < hi:  # the longest k with a[:k] == b[:k]
        mid = (lo + hi + 1) // 2
        lo, hi = (mid, hi) if a[lo:mid] == b[lo:mid] else (lo, mid - 1)
    return lo


class Markers:
    """The tokenizer's added tokens as they stand in text (runs of blanks left out)."""

    def __init__(self, texts: list[str]):
        texts = sorted({t for t in texts if t.strip()}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts)) or r"(?!)")

    def spans(self, text: str) -> list[Span]:
        return [m.span() for m in self._pattern.finditer(text)]

    def ends_with(self, text: str) -> bool:
        tail = text[-256:]
        return any(end == len(tail) for _, end in self.spans(tail))

    def only(self, text: str) -> bool:
        return not self._pattern.sub("", text).strip()

    def whole(self, text: str, at: int) -> int:
        """`at`, moved to the front of the marker that it would cut in two."""
        window = max(0, at - 256)
        return next((window + a for a, b in self.spans(text[window:at + 256]) if window + a < at < window + b), at)


class Turns:
    """Finds the turns of one conversation. Renderings are made on demand and once."""

    def __init__(self, template: ChatTemplate, messages: list[dict], tools: list | None, markers: Markers):
        self._template, self._messages, self._tools, self._markers = template, messages, tools, markers
        self._made: dict[tuple[int, bool], str | None] = {}
        self.full = template.render(messages, tools)
        self._made[(len(messages), False)] = self.full

    def _render(self, n: int, prompt: bool) -> str | None:
        """The first n messages; nothing when the template rejects this part of a conversation that it accepts as a whole."""
        key = (n, prompt)
        if key not in self._made:
            self._made[key] = self._attempt(self._messages[:n], prompt)
        return self._made[key]

    def _attempt(self, messages: list[dict], prompt: bool) -> str | None:
        try:
            return self._template.render(messages, self._tools, prompt)
        except Reject:
            return None

    def spans(self) -> list[Span]:
        out: list[Span] = []
        turns = [i for i, m in enumerate(self._messages) if m["role"] == "assistant"]
        for nth, i in enumerate(turns):
            start, before, header = self._start(i, nth, len(turns))
            end = self._end(i, start, before, header)
            if out and start < out[-1][1]:
                raise bad(f"message {i}: its turn overlaps the turn before it in the rendering")
            out.append((start, end))
        return out

    def _start(self, i: int, nth: int, n_turns: int) -> tuple[int, str, str]:
        """Where the turn of message i begins in the full rendering; what stands before the turn when it is rendered as the last one;
        and the generation prompt ("" when the template has none)."""
        full, prompt, base = self.full, self._render(i, True), self._render(i, False)
        header = ""
        if prompt is not None and base is not None:
            # Where the two part; a template may end with a token of its own when no generation prompt is asked for.
            header = prompt[self._markers.whole(prompt, common_prefix(prompt, base)):]
        if prompt is not None and header and full.startswith(prompt):
            return len(prompt), prompt, header  # step "prompt"
        if not header or i == 0:
            # Step "probe": no generation prompt, or nothing before the turn to render. A probe in the message's place shows the
            # text that stands before its content.
            probe = self._attempt([*self._messages[:i], {"role": "assistant", "content": PROBE}], False)
            at = probe.find(PROBE) if probe is not None else -1
            if at >= 0:
                before = probe[:at]
                if base is not None and before.startswith(base) and not before[len(base):].strip():
                    before = base  # blanks before the content belong to the turn's first token
                if full.startswith(before):
                    return len(before), before, header
        elif prompt is not None:
            # Step "shorter prompt": the prompt opens something (thinking) that the full rendering leaves out or moved.
            stem = prompt[:len(prompt) - len(header)]
            for cut in self._cuts(header):
                g = header[:cut]
                if full.startswith(stem + g):
                    return len(stem) + cut, stem + g, header
            # Step "counted": earlier turns changed, so everything after them moved. The prompt's text must occur once a turn.
            for cut in self._cuts(header):
                g = header[:cut]
                if full.count(g) == n_turns:
                    at = -1
                    for _ in range(nth + 1):
                        at = full.index(g, at + 1)
                    return at + cut, stem + g, header
        raise bad(f"message {i}: the prompt that the chat template makes for this turn is not a prefix of the whole conversation's "
                  "rendering, so the turn cannot be located")

    def _cuts(self, header: str) -> list[int]:
        """Ends of prefixes of a generation prompt, longest first: after a marker, and after a line's end behind one."""
        ends = [b for _, b in self._markers.spans(header)]
        if not ends:
            return []
        lines = [m.end() for m in re.finditer("\n+", header) if m.end() > ends[0]]
        return sorted({*ends, *lines, len(header)}, reverse=True)

    def _end(self, i: int, start: int, before: str, header: str) -> int:
        full, last = self.full, i + 1 == len(self._messages)
        for turn in self._renderings(i, before, header):
            kept = self._kept(turn, start)
            if kept is None:
                continue
            end = start + len(kept)
            if last and not self._markers.only(full[end:]):
                continue
            return start + len(kept.rstrip())  # blanks behind the end-of-turn token are not the assistant's
        raise bad(f"message {i}: the chat template renders this turn differently when other messages follow, and not as an end of it")

    def _renderings(self, i: int, before: str, header: str):
        """The turn as it looks when the conversation goes on, then as it looks at the conversation's end."""
        follow = self._render(i + 1, True)
        if header and follow is not None and follow.startswith(before) and follow.endswith(header):
            yield follow[len(before):len(follow) - len(header)]
        alone = self._render(i + 1, False)
        if alone is not None and alone.startswith(before):
            yield alone[len(before):]

    def _kept(self, turn: str, start: int) -> str | None:
        """`turn` if the full rendering has it at `start`, else its longest ending there (templates drop earlier thinking)."""
        full = self.full
        if full.startswith(turn, start):
            return turn
        first, at = full[start:start + 1], 0
        while first and (at := turn.find(first, at + 1)) >= 0:
            if full.startswith(turn[at:], start) and turn[at:].strip():
                return turn[at:]
        return None


def assistant_spans(template: ChatTemplate, messages: list[dict], tools: list | None, markers: Markers) -> tuple[str, list[Span]]:
    """The full rendering and the character spans of the assistant's turns, ascending. Throws Reject."""
    if template.has_generation_blocks:
        text, blocks = template.render_marked(messages, tools)
        return text, [_trim(text, a, b, markers) for a, b in blocks]
    turns = Turns(template, messages, tools, markers)
    return turns.full, turns.spans()


def _trim(text: str, a: int, b: int, markers: Markers) -> Span:
    bare = text[a:b].rstrip()
    return (a, a + len(bare)) if markers.ends_with(bare) else (a, b)


def mask_tokens(text: str, offsets: list[tuple[int, int]], spans: list[Span], set_loss: Callable[[int, int], None]) -> None:
    """Calls set_loss(first, last + 1) for the tokens of each span. A token that also covers characters outside belongs to the span
    only if those are blanks."""
    for begin, end in spans:
        lo = bisect_right(offsets, begin, key=lambda o: o[1])
        hi = bisect_left(offsets, end, key=lambda o: o[0])
        while lo < hi and offsets[lo][0] < begin and text[offsets[lo][0]:begin].strip():
            lo += 1
        while lo < hi and offsets[hi - 1][1] > end and text[end:offsets[hi - 1][1]].strip():
            hi -= 1
        if lo < hi:
            set_loss(lo, hi)
