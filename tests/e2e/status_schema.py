# SPDX-License-Identifier: Apache-2.0
"""The table of docs/reference/status.md as a schema: what `aerie status --json` prints is checked against it, key by key.

    schema = Schema("docs/reference/status.md")
    schema.check(status)      raises Violation: a key that is missing, not documented, of another type, or null where it may not be
    schema.never_seen()       documented keys that no status checked so far had with a value
"""
import re

FREE = {"any"}  # whatever is in it is not looked at
TYPES = {
    "text": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "true, false": lambda v: isinstance(v, bool),
    "object": lambda v: isinstance(v, dict),
    "list": lambda v: isinstance(v, list),
    "list of text": lambda v: isinstance(v, list) and all(isinstance(t, str) for t in v),
    "any": lambda v: True,
}


class Violation(Exception):
    pass


class Schema:
    def __init__(self, path):
        self.kinds, self.nullable, self.seen = {}, set(), set()
        with open(path, encoding="utf-8") as f:
            rows = [m.groups() for m in map(re.compile(r"\| `([a-z_.\[\]]+)` \| ([a-z, ]+?) \|").match, f) if m]
        for key, kind in rows:
            if kind.endswith(" or null"):
                kind = kind.removesuffix(" or null")
                self.nullable.add(key)
            if kind not in TYPES:
                raise Violation(f"{path}: the type of {key} is '{kind}', known are {sorted(TYPES)}")
            self.kinds[key] = kind
        if "schema" not in self.kinds:
            raise Violation(f"{path}: no table of keys")

    def check(self, status):
        self.check_object(status, "")

    def check_object(self, value, prefix):
        wanted = {k for k in self.kinds if k.startswith(prefix) and "." not in k[len(prefix):] and "[" not in k[len(prefix):]}
        found = {prefix + k for k in value}
        if wanted != found:
            raise Violation(f"missing: {sorted(wanted - found)}; not documented: {sorted(found - wanted)}")
        for key in sorted(found):
            self.check_value(value[key[len(prefix):]], key)

    def check_value(self, value, key):
        if value is None:
            if key not in self.nullable:
                raise Violation(f"{key} is null")
            return
        self.seen.add(key)
        kind = self.kinds[key]
        if not TYPES[kind](value):
            raise Violation(f"{key} is {value!r}, which is no {kind}")
        if kind == "object":
            self.check_object(value, key + ".")
        elif kind == "list":
            for item in value:
                if not isinstance(item, dict):
                    raise Violation(f"{key} holds {item!r}, which is no object")
                self.check_object(item, key + "[].")

    def never_seen(self):
        return sorted(set(self.kinds) - self.seen)
