# SPDX-License-Identifier: Apache-2.0
"""Two kinds of failure: one sample is rejected and the run goes on (Reject), or the command ends with a documented code (Fatal)."""

from enum import IntEnum


class Reason(IntEnum):
    """Numbers as in include/aerie/io/store.hpp (FailReason)."""

    NONE = 0
    EMPTY = 1
    TOO_LONG = 2
    NO_LOSS = 3
    BAD_TOKEN = 4
    BAD_INPUT = 5


class Reject(Exception):
    """This sample cannot be used. The text says why; the caller adds file and line."""

    def __init__(self, reason: Reason, why: str):
        super().__init__(why)
        self.reason = reason


def bad(why: str) -> Reject:
    return Reject(Reason.BAD_INPUT, why)


USAGE, DATA, MISSING, IO = 2, 65, 66, 74


class Fatal(Exception):
    """Ends the command; nothing is published."""

    def __init__(self, code: int, what: str, hint: str = ""):
        super().__init__(what)
        self.code, self.hint = code, hint
