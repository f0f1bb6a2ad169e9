"""Finds a pattern for lines of one shape: words, ``[brackets]``, ``"quotes"``, times and ``name=value``.

Covers access logs and most applications' logs. Lines without a recognised time are left to the user.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

ALIKE_SHARE = 0.9  # share of the lines that must have the shape
LINES_LOOKED_AT = 1000
TOKENS_MAX = 40
REST = "(?: (?P<rest>.+))?"

_TOKENS = re.compile(
    r"(?P<T>[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)(?= |$)"
    r"|(?P<S>[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}(?:\.[0-9]+)?)(?= |$)"
    r"|(?P<B>\[[^\]]*\])(?= |$)"
    r'|(?P<Q>"(?:[^"\\]|\\.)*")(?= |$)'
    r'|(?P<N>[A-Za-z_][\w.-]*=(?:"[^"]*"|[^ "]*))(?= |$)'
    r"|(?P<W>[^ ]+)(?= |$)"
)
_GROUPS = {"B": r"\[(?P<{}>[^\]]*)\]", "Q": r'"(?P<{}>(?:[^"\\]|\\.)*)"', "W": "(?P<{}>[^ ]+)"}
_ROOT = r'"(?P<{0}>(?:[^"]*?Root=(?P<trace_id>[^";]+))?[^"]*)"'
_TIMES = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]+)?(?:Z|[+-][0-9:]+)?"
_SYSLOG_TIMES = r"[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}(?:\.[0-9]+)?"
_BRACKETED_TIME = re.compile(r"\[[0-9]{1,2}/[A-Za-z]{3}/[0-9]{4}:.*\]|\[[0-9]{4}-[0-9]{2}-[0-9]{2}[T ].*\]")
_ACCESS = "WWWBQWW"  # the common log format of web servers; the combined one has two more quoted fields
_ACCESS_NAMES = ("client", "ident", "user", "time", "request", "status", "bytes", "referrer", "agent")

Token = tuple[str, str, str]  # kind (T, S, B, Q, N or W), name (of N), text


def pattern_of(records: Sequence[bytes]) -> str | None:
    """Returns a regular expression with named groups that reads nearly all records; ``None`` if none does."""
    lines = [record.decode("utf-8", "replace") for record in records[:LINES_LOOKED_AT]]
    cut = [tokens for tokens in map(_tokens, lines) if tokens]
    needed = ALIKE_SHARE * len(lines)
    if len(cut) < max(needed, 2):
        return None
    shape = _shape(cut, needed)
    alike = [tokens for tokens in cut if _kinds(tokens).startswith(shape)]
    if not shape or not _has_time(alike, len(shape)):
        return None
    names = _names(alike[0], shape)
    root = next((place for place in range(len(shape)) if _is_root(alike, place)), -1)
    kinds = ["R" if place == root else kind for place, kind in enumerate(shape)]
    parts = [_group(kind, name) for kind, name in zip(kinds, names, strict=True)]
    behind = _behind(alike, len(shape), needed)
    pattern = " ".join(parts) + "".join(f".*? {re.escape(name)}={value}" for name, value in behind)
    try:
        matches = [match for match in map(re.compile(pattern).match, lines) if match]
    except re.error:  # two names that become equal when sanitised
        return None
    if len(matches) < needed:
        return None
    return pattern + REST if any(match.end() < len(match.string) for match in matches) else pattern


def _tokens(line: str) -> list[Token]:
    """Cuts a line into tokens; returns an empty list if they are not separated by single spaces."""
    tokens: list[Token] = []
    at = 0
    while len(tokens) < TOKENS_MAX and (match := _TOKENS.match(line, at)):
        kind = str(match.lastgroup)
        text = match[0]
        tokens.append((kind, text.partition("=")[0] if kind == "N" else "", text))
        at = match.end() + 1
        if match.end() == len(line):
            return tokens
    return tokens if len(tokens) > 1 else []


def _kinds(tokens: Sequence[Token]) -> str:
    return "".join(kind for kind, _, _ in tokens)


def _shape(cut: Sequence[Sequence[Token]], needed: float) -> str:
    """Returns the kinds of tokens, one letter each, with which nearly all lines begin.

    Ends before the first ``name=value``, where names matter more than order, and before free text.
    """
    shape = ""
    kinds = list(map(_kinds, cut))
    while True:
        nexts = Counter(each[len(shape)] for each in kinds if each.startswith(shape) and len(each) > len(shape))
        if not nexts:
            return shape
        kind, count = nexts.most_common(1)[0]
        if kind == "N" or count < needed:
            return shape
        shape += kind


def _is_root(lines: Sequence[Sequence[Token]], place: int) -> bool:
    """True if the tokens at ``place`` are AWS's trace ids, ``"Root=1-67891233-…"``."""
    texts = [tokens[place][2] for tokens in lines if tokens[place][0] == "Q"]
    return len(texts) == len(lines) and sum("Root=1-" in text for text in texts) >= ALIKE_SHARE * len(texts)


def _has_time(lines: Sequence[Sequence[Token]], width: int) -> bool:
    return any(
        all(tokens[place][0] in "TS" or _BRACKETED_TIME.fullmatch(tokens[place][2]) for tokens in lines)
        for place in range(width)
    )


def _names(tokens: Sequence[Token], shape: str) -> list[str]:
    if shape.startswith(_ACCESS) and _BRACKETED_TIME.fullmatch(tokens[3][2]):
        names = list(_ACCESS_NAMES[: len(_ACCESS) + 2 * shape.startswith(_ACCESS + "QQ")])
        return names + [f"f{place}" for place in range(len(names) + 1, len(shape) + 1)]
    names = []
    for place, kind in enumerate(shape):
        timed = kind in "TS" or _BRACKETED_TIME.fullmatch(tokens[place][2])
        names.append("time" if timed and "time" not in names else f"f{place + 1}")
    return names


def _group(kind: str, name: str) -> str:
    if kind == "R":
        return _ROOT.format(name)
    times = {"T": _TIMES, "S": _SYSLOG_TIMES}.get(kind)
    return _GROUPS[kind].replace("{}", name) if times is None else f"(?P<{name}>{times})"


def _behind(lines: Sequence[Sequence[Token]], width: int, needed: float) -> list[tuple[str, str]]:
    """Returns (name, group) of each ``name=value`` that nearly all lines have after the shape, in the order of the
    first line."""
    texts: dict[str, list[str]] = {}
    for tokens in lines:
        for name, text in {name: text for _, name, text in tokens[width:] if name}.items():
            texts.setdefault(name, []).append(text)
    often = dict.fromkeys(name for _, name, _ in lines[0][width:] if len(texts.get(name, ())) >= needed)
    return [(name, _value(_safe(name), texts[name])) for name in often]


def _value(group: str, texts: Sequence[str]) -> str:
    quoted = [text.endswith('"') for text in texts]
    if all(quoted):
        return rf'"(?P<{group}>[^"]*)"'
    return rf'(?P<{group}>"[^"]*"|[^ "]*)' if any(quoted) else rf'(?P<{group}>[^ "]*)'


def _safe(name: str) -> str:
    return re.sub(r"\W", "_", name)
