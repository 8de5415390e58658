"""Temporal expressions: found by pattern, resolved against a session's date, worded as LoCoMo words its gold answers.

"yesterday" becomes "7 May 2023", "last Friday" "The Friday before 15 July 2023", "last week" "The week before 9 June
2023", "next month" "June 2023". Wording was chosen on the bundled sample and conversation conv-26 of LoCoMo only. Never
reads the clock: everything is relative to the given date. Pure functions, standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from memfly.llm.extractive.lexicon import MONTHS, NUMBER_WORDS, PAST_FORMS, WEEKDAYS

MONTH_NAMES = "January February March April May June July August September October November December".split()
WEEKDAY_NAMES = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_LABEL = re.compile(r"(?:\d{1,2}:\d\d\s*[ap]m on )?(\d{1,2}) ([A-Z][a-z]+),? (\d{4})")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)")


def parse_label(label: str) -> date | None:
    """The day of a label such as "1:56 pm on 8 May, 2023" or "2023-05-08"; None when there is none or it is impossible."""
    match = _LABEL.search(label)
    iso = None if match else _ISO.search(label)
    try:
        if match and match[2].lower() in MONTHS:
            return date(int(match[3]), MONTHS[match[2].lower()], int(match[1]))
        if iso:
            return date(int(iso[1]), int(iso[2]), int(iso[3]))
    except ValueError:
        return None
    return None


def worded(day: date) -> str:
    """ "7 May 2023"."""
    return f"{day.day} {MONTH_NAMES[day.month - 1]} {day.year}"


@dataclass(frozen=True, slots=True)
class Temporal:
    """One expression: where it stands, its kind ("point", "duration", "frequency", "since") and direction in time."""

    start: int
    end: int
    text: str
    kind: str
    future: bool
    resolve: Callable[[date], str]


_COUNT = r"(?:an?|" + "|".join(list(NUMBER_WORDS)[1:21]) + r"|\d{1,3}|(?:a )?few|(?:a )?couple(?: of)?|several)"
_UNIT = r"(?:day|week|month|year|weekend|hour|minute|night|decade)"
_DAY = r"(?:" + "|".join(sorted((w for w in WEEKDAYS), key=len, reverse=True)) + r")"
_PLAIN_DAY = "(?:" + "|".join(name.lower() for name in WEEKDAY_NAMES) + "|tues|thurs|fri)"
_MONTH = r"(?:" + "|".join(sorted((m for m in MONTHS if m != "may"), key=len, reverse=True)) + r"|May)"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_YEAR = r"(?:19|20)\d\d"


def _count(words: str) -> int | None:
    """The number, or None for a vague one ("a few")."""
    low = re.sub(r"\s+", " ", words.lower())
    if low in ("a", "an"):
        return 1
    if low.startswith("couple") or low.startswith("a couple"):
        return 2
    return int(low) if low.isdigit() else NUMBER_WORDS.get(low)


def shift_months(day: date, months: int) -> date:
    """The same day some months on (or back), cut to the month's last day; clamped to the years 1 to 9999."""
    index = min(max(day.year * 12 + day.month - 1 + months, 12), 9999 * 12 + 11)
    year, month = divmod(index, 12)
    for last in (day.day, 30, 29, 28):
        try:
            return date(year, month + 1, min(day.day, last))
        except ValueError:
            continue
    raise AssertionError("unreachable")


def shift_days(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError:
        return date.max if days > 0 else date.min


def _month_year(day: date) -> str:
    return f"{MONTH_NAMES[day.month - 1]} {day.year}"


def _ago(count: int | None, raw: str, unit: str, session: date, sign: int) -> str:
    """`count` units before (sign -1) or after (+1) the session; vague counts keep their words."""
    side = "before" if sign < 0 else "after"
    if unit in ("hour", "minute"):
        return worded(session)
    if count is None or unit == "weekend":
        words = re.sub(r"\s+", " ", raw).strip().capitalize()
        return f"{words} {unit}s {side} {worded(session)}"
    if unit in ("day", "night"):
        return worded(shift_days(session, sign * count))
    if unit == "week":
        return (
            f"{raw.strip().capitalize()} weeks {side} {worded(session)}"
            if count > 1
            else f"The week {side} {worded(session)}"
        )
    if unit == "month":
        return _month_year(shift_months(session, sign * count))
    return str(min(max(session.year + sign * count * (10 if unit == "decade" else 1), 1), 9999))


def _weekday(name: str, side: str, session: date) -> str:
    return f"The {WEEKDAY_NAMES[WEEKDAYS[name.lower()]]} {side} {worded(session)}"


def _unit_of(word: str, which: str, session: date) -> str:
    """ "last week", "next month", "this year", ..."""
    step = {"last": -1, "past": -1, "previous": -1, "next": 1, "coming": 1, "following": 1}.get(which, 0)
    side = {-1: "before", 1: "after", 0: "of"}[step]
    if word in ("week", "weekend"):
        return f"The {word} {side} {worded(session)}"
    if word == "month":
        return _month_year(shift_months(session, step))
    if word == "year":
        return str(min(max(session.year + step, 1), 9999))
    if word == "night":
        return worded(shift_days(session, step))
    return f"{word.capitalize()} {min(max(session.year + step, 1), 9999)}"


def _nearest_year(month: int, session: date, tense: int) -> int:
    """The year that puts the month closest to the session, on the side that the sentence speaks of where it does."""
    ahead = (month - session.month) % 12
    if tense > 0 or ahead <= (5 if tense == 0 else 3):
        return min(session.year + (month < session.month), 9999)
    return max(session.year - (month > session.month), 1)


def _explicit(day: int | None, month: str, year: str | None, session: date, tense: int) -> str:
    number = MONTHS[month.lower()]
    name = MONTH_NAMES[number - 1]
    if day is not None and not 1 <= day <= 31:
        return f"{name} {year or session.year}"
    value = int(year) if year else _nearest_year(number, session, tense)
    return f"{day} {name} {value}" if day else f"{name} {value}"


_Maker = Callable[[re.Match[str], int], tuple[str, bool, Callable[[date], str]]]


def _point(resolve: Callable[[re.Match[str], date], str], future: bool | None = None) -> _Maker:
    def make(match: re.Match[str], tense: int) -> tuple[str, bool, Callable[[date], str]]:
        return "point", tense > 0 if future is None else future, lambda session: resolve(match, session)

    return make


def _dated(day: int | None, month: int, year: int | None) -> _Maker:
    def make(match: re.Match[str], tense: int) -> tuple[str, bool, Callable[[date], str]]:
        number = int(match[day]) if day else None
        return (
            "point",
            tense > 0,
            lambda session: _explicit(number, match[month], match[year] if year else None, session, tense),
        )

    return make


def _which_weekday(match: re.Match[str], tense: int) -> tuple[str, bool, Callable[[date], str]]:
    which = (match[1] or "").lower()
    side = (
        "before"
        if which in ("last", "past")
        else "after"
        if which in ("next", "this", "this coming", "coming")
        else None
    )
    if which == "this" and tense <= 0:
        side = "before"
    chosen = side or ("after" if tense > 0 else "before")
    return "point", chosen == "after", lambda session: _weekday(match[2], chosen, session)


def _duration(match: re.Match[str], tense: int) -> tuple[str, bool, Callable[[date], str]]:
    return "duration", False, lambda session: re.sub(r"\s+", " ", match[1])


_PATTERNS: list[tuple[re.Pattern[str], _Maker]] = [
    (re.compile(pattern, flags), maker)
    for pattern, flags, maker in [
        (
            r"\b((?:once|twice|(?:three|four|five|\d+) times)(?: or twice)? (?:a|an|every|per|each) (?:day|week|month|year)"
            r"|every (?:other )?(?:day|week|weekend|month|year|morning|night|" + _DAY + r"))\b",
            re.I,
            lambda m, a: ("frequency", False, lambda s: m[1]),
        ),
        (rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})\.?,? ({_YEAR})\b", re.I, _dated(1, 2, 3)),
        (rf"\b({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?,? ({_YEAR})\b", re.I, _dated(2, 1, 3)),
        (rf"\b({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)", re.I, _dated(2, 1, None)),
        (rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})\b", re.I, _dated(1, 2, None)),
        (rf"\b(?:in |of )?({_MONTH}),? ({_YEAR})\b", re.I, _dated(None, 1, 2)),
        (r"\bday before yesterday\b", re.I, _point(lambda m, s: worded(shift_days(s, -2)), False)),
        (r"\bday after tomorrow\b", re.I, _point(lambda m, s: worded(shift_days(s, 2)), True)),
        (r"\byesterday\b", re.I, _point(lambda m, s: worded(shift_days(s, -1)), False)),
        (r"\blast night\b", re.I, _point(lambda m, s: worded(shift_days(s, -1)), False)),
        (r"\b(?:today|tonight|this morning|this afternoon|this evening)\b", re.I, _point(lambda m, s: worded(s))),
        (r"\btomorrow\b", re.I, _point(lambda m, s: worded(shift_days(s, 1)), True)),
        (
            rf"\b({_COUNT}) ({_UNIT})s? (?:ago|back|earlier)\b",
            re.I,
            _point(lambda m, s: _ago(_count(m[1]), m[1], m[2].lower(), s, -1), False),
        ),
        (
            rf"\bin ({_COUNT}) (day|week|month|year)s?\b",
            re.I,
            _point(lambda m, s: _ago(_count(m[1]), m[1], m[2].lower(), s, 1), True),
        ),
        (rf"\b(last|past|next|this coming|this|coming) ({_DAY})\b", re.I, _which_weekday),
        (
            r"\b(last|past|this past|previous|this|next|coming|following) (week|weekend|month|year)\b",
            re.I,
            _point(lambda m, s: _unit_of(m[2].lower(), m[1].lower().replace("this past", "past"), s)),
        ),
        (
            rf"\b(last|past|this|next|coming) ({_SEASON})\b",
            re.I,
            _point(lambda m, s: _unit_of(m[2].lower(), m[1].lower(), s)),
        ),
        (
            rf"\b(last|this|next) ({_MONTH})\b",
            re.I,
            _point(
                lambda m, s: (
                    f"{MONTH_NAMES[MONTHS[m[2].lower()] - 1]} {_relative_year(m[1].lower(), MONTHS[m[2].lower()], s)}"
                )
            ),
        ),
        (r"\bthe other (?:day|night|week)\b", re.I, _point(lambda m, s: f"A few days before {worded(s)}", False)),
        (r"\ba (?:while|little while) (?:ago|back)\b", re.I, _point(lambda m, s: f"Before {worded(s)}", False)),
        (rf"\bsince ((?:{_MONTH} )?{_YEAR})\b", re.I, lambda m, a: ("since", False, lambda s: f"Since {m[1]}")),
        (
            rf"\b(?:for |over |about |almost |nearly )?({_COUNT} (?:years?|months?|weeks?|days?|decades?|hours?|minutes?))\b"
            r"(?! ago| back)",
            re.I,
            _duration,
        ),
        (rf"\bon ()({_DAY})\b(?!')", re.I, _which_weekday),
        (rf"\b()({_PLAIN_DAY})\b(?!')", re.I, _which_weekday),
        (rf"\b(?:in|by|until|till|around|during|early|late|mid|since) ({_MONTH})\b", re.I, _dated(None, 1, None)),
        (rf"\b(?:in |back in |from )?({_YEAR})\b(?!-)", 0, _point(lambda m, s: m[1])),
        (rf"\b(?:in|during) (?:the )?({_SEASON})\b", re.I, _point(lambda m, s: f"{m[1].capitalize()} {s.year}")),
    ]
]
_PLANNED = "(?:go|com|mov|leav|arriv|start|hav|meet|host|visit|fly|driv|travel|tak|join|perform|play|open|return|throw|celebrat)"
_FUTURE = re.compile(
    r"\b(?:will|gonna|going to|planning|plan to|plans|can't wait|looking forward|upcoming|coming up|"
    rf"about to|won't|'ll|hope to|next|tomorrow|soon|is going|are going|"
    rf"(?:is|are|am|isn't|aren't|\w+'(?:m|re|s)) (?:{_PLANNED}ing))\b|'ll\b",
    re.I,
)


def _relative_year(which: str, month: int, session: date) -> int:
    if which == "last":
        return max(session.year if month < session.month else session.year - 1, 1)
    if which == "next":
        return min(session.year if month > session.month else session.year + 1, 9999)
    return session.year


def tense_of(text: str) -> int:
    """1 where a text speaks of what will be, -1 where it only tells what was, 0 where it does not say."""
    if _FUTURE.search(text):
        return 1
    return -1 if any(word in PAST_FORMS or word in ("was", "were", "did") for word in text.lower().split()) else 0


@lru_cache(maxsize=50_000)
def expressions(text: str) -> tuple[Temporal, ...]:
    """All temporal expressions, by position; the pattern that comes first in the table wins where two overlap."""
    text = text[:20_000]
    tense = tense_of(text)
    taken: list[tuple[int, int]] = []
    out: list[Temporal] = []
    for pattern, maker in _PATTERNS:
        for match in pattern.finditer(text):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            taken.append(match.span())
            kind, future, resolve = maker(match, tense)
            out.append(Temporal(match.start(), match.end(), match.group(), kind, future, resolve))
    return tuple(sorted(out, key=lambda t: t.start))


def in_digits(text: str) -> str:
    """Number words as digits ("seven years" -> "7 years"), the way durations are worded in LoCoMo."""
    return " ".join(str(NUMBER_WORDS.get(word.lower(), word)) for word in text.split())
