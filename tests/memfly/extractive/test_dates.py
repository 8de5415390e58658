"""Temporal expressions: wording, direction, and calendar arithmetic for any session date."""

from __future__ import annotations

import itertools
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfly.llm.extractive.dates import expressions, in_digits, parse_label, shift_days, shift_months, worded

SESSION = date(2023, 7, 15)
DAYS = st.dates(min_value=date(1900, 1, 1), max_value=date(2999, 12, 31))


def resolved(text: str, session: date = SESSION) -> list[str]:
    return [found.resolve(session) for found in expressions(text)]


@pytest.mark.parametrize(
    ("label", "day"),
    [
        ("1:56 pm on 8 May, 2023", date(2023, 5, 8)),
        ("8 May 2023", date(2023, 5, 8)),
        ("2023-05-08", date(2023, 5, 8)),
        ("31 February, 2023", None),
        ("summary", None),
        ("", None),
    ],
)
def test_labels(label: str, day: date | None) -> None:
    assert parse_label(label) == day


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("I went there yesterday.", "14 July 2023"),
        ("We met the day before yesterday.", "13 July 2023"),
        ("I cooked today.", "15 July 2023"),
        ("See you tomorrow!", "16 July 2023"),
        ("I ran last Friday.", "The Friday before 15 July 2023"),
        ("I ran last Fri.", "The Friday before 15 July 2023"),
        ("I went on Tuesday.", "The Tuesday before 15 July 2023"),
        ("I'm going on Tuesday.", "The Tuesday after 15 July 2023"),
        ("I start next Monday.", "The Monday after 15 July 2023"),
        ("I went last week.", "The week before 15 July 2023"),
        ("I applied this week.", "The week of 15 July 2023"),
        ("We camped last weekend.", "The weekend before 15 July 2023"),
        ("We camped two weekends ago.", "Two weekends before 15 July 2023"),
        ("A few weeks ago we met.", "A few weeks before 15 July 2023"),
        ("I came back two weeks ago.", "Two weeks before 15 July 2023"),
        ("I came back a week ago.", "The week before 15 July 2023"),
        ("I came back 3 days ago.", "12 July 2023"),
        ("We moved three months ago.", "April 2023"),
        ("We moved six years ago.", "2017"),
        ("It happened last month.", "June 2023"),
        ("I leave next month.", "August 2023"),
        ("I painted it last year.", "2022"),
        ("We'll go next summer.", "Summer 2024"),
        ("I was born on 5 June 1990.", "5 June 1990"),
        ("It's on August 13th, 2023.", "13 August 2023"),
        ("It was on the 28th of March.", "28 March 2023"),
        ("We'll sail on the 2nd of January.", "2 January 2024"),
        ("We went in December.", "December 2022"),
        ("We married in 2016.", "2016"),
        ("I've lived here since 2016.", "Since 2016"),
        ("I've lived here for three years.", "three years"),
        ("We swim twice a week.", "twice a week"),
    ],
)
def test_wording(text: str, answer: str) -> None:
    assert resolved(text) == [answer]


@pytest.mark.parametrize("text", ["It may rain.", "I can march on.", "Sat down with a book.", "The sun was out.", ""])
def test_words_that_only_look_like_dates(text: str) -> None:
    assert resolved(text) == []


def test_expressions_come_in_order_and_do_not_overlap() -> None:
    found = expressions("Last Friday I ran, yesterday I slept, and on 3 May 2023 I was in Oslo.")
    assert [f.text.lower() for f in found] == ["last friday", "yesterday", "3 may 2023"]
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))


def test_durations_in_digits() -> None:
    assert in_digits("seven years") == "7 years"
    assert in_digits("a few weeks") == "a few weeks"


@given(DAYS)
def test_worded_dates_are_read_back(day: date) -> None:
    assert parse_label(worded(day)) == day


@given(DAYS, st.integers(1, 99))
def test_days_ago_is_exact(day: date, count: int) -> None:
    unit = "day" if count == 1 else "days"
    assert resolved(f"I left {count} {unit} ago.", day) == [worded(day - timedelta(days=count))]


@given(DAYS, st.integers(-600, 600))
def test_shifting_months_keeps_the_day_or_ends_the_month(day: date, months: int) -> None:
    moved = shift_months(day, months)
    assert (moved.year - day.year) * 12 + moved.month - day.month == months
    assert moved.day == day.day or (moved.day < day.day and (moved + timedelta(days=1)).month != moved.month)


@given(st.dates(), st.integers(-(10**9), 10**9), st.text(max_size=80))
def test_the_ends_of_the_calendar_are_no_errors(day: date, count: int, text: str) -> None:
    assert date.min <= shift_days(day, count) <= date.max
    assert date.min <= shift_months(day, count) <= date.max
    for phrase in (
        "yesterday",
        "tomorrow",
        "last week",
        "next year",
        "three decades ago",
        "in 99 years",
        "next June",
        text,
    ):
        for found in expressions(phrase):
            assert found.resolve(day)
