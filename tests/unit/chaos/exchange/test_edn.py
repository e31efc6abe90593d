"""EDN is read form by form, whatever lies around it, and refused by its line."""

import contextlib
import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.exchange import edn
from chaos.exchange.edn import EdnError, Keyword, Symbol, read_forms, write_form


def read(text):
    return [form for _, form in read_forms(text.splitlines(keepends=True))]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nil", None),
        ("true", True),
        (":a/b", Keyword("a/b")),
        ("a-symbol!", Symbol("a-symbol!")),
        ("-12N", -12),
        ("1.5e3", 1500.0),
        ("2.5M", 2.5),
        ('"a\\n\\"b\\u0041 ; no"', 'a\n"bA ; no'),
        ("\\newline", "\n"),
        ("\\u0041", "A"),
        ("\\(", "("),
        ("{:a [1, (2 3)], [1 2] #{4}}", {"a": [1, [2, 3]], (1, 2): frozenset({4})}),
        ('#inst "2026-01-01"', "2026-01-01"),
        ("#jepsen.history.Op{:index 0 :f :send}", {"index": 0, "f": "send"}),
        ("#_ #_ 1 2 3 ; a comment", 3),
        ("{:a #_ 7 nil}", {"a": None}),
    ],
)
def test_form_is_what_it_says(text, value):
    # Around a form that begins with a bracket there is a wrapper, or it would be one.
    assert read(f"[{text}\n]") == [value]
    (again,) = read(f"({text}\n)")
    assert (again, type(again)) == (value, type(value))


def test_forms_have_the_lines_on_which_they_begin():
    text = '{:a 1}\n\n{:b\n "two\nlines"}\n{:c 3}\n'
    lines = text.splitlines(keepends=True)
    assert [line for line, _ in read_forms(lines)] == [1, 3, 6]
    assert [line for line, _ in read_forms(["[\n", *lines, "]\n"])] == [2, 4, 7]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{:a 1}\n{:b", 2),
        ("{:a 1}\n}", 2),
        ("[{:a 1)]", 1),
        ("{:a}", 1),
        ('{:a 1}\n{:b "no end\n}', 2),
        ('"\\q"', 1),
        ("1" * 50, 1),
        ("{" * 100, 1),
        ("[1 2", 1),
        ("\n#", 2),
    ],
)
def test_what_is_no_edn_is_refused_by_its_line(text, line):
    with pytest.raises(EdnError, match=rf"^line {line}: "):
        read(text)


def test_form_without_end_costs_no_memory(monkeypatch):
    monkeypatch.setattr(edn, "FORM_CHARS_MAX", 1_000)

    def endless():
        yield "{:a ["
        while True:
            yield "1 2 3 4 5 6 7 8\n"

    with pytest.raises(EdnError, match="too long"):
        list(read_forms(endless()))


def test_form_of_too_many_tokens_costs_no_memory(monkeypatch):
    monkeypatch.setattr(edn, "FORM_TOKENS_MAX", 1_000)

    def endless():
        yield "{:a ["
        while True:
            yield "#{1} #{2}\n"

    assert len(read("{:a 1}" * 1_000)) == 1_000
    with pytest.raises(EdnError, match=r"^line 1: a form that is too long"):
        list(read_forms(endless()))


@pytest.mark.parametrize("line", ["a b\n", "a b", "\\n", '\\"\n', "\\"])
def test_string_without_end_is_refused_at_its_limit(line, monkeypatch):
    monkeypatch.setattr(edn, "STRING_CHARS_MAX", 1_000)
    taken = 0

    def endless():
        nonlocal taken
        yield "{:a\n"
        yield '"'
        while True:
            taken += len(line)
            yield line

    with pytest.raises(EdnError, match=r"^line 2: a string that is too long"):
        list(read_forms(endless()))
    assert taken <= 1_000 + len(line)


def test_string_at_its_limit_is_read(monkeypatch):
    monkeypatch.setattr(edn, "STRING_CHARS_MAX", 1_000)
    assert read('["' + "a" * 1_000 + '"]') == ["a" * 1_000]
    for more in ("a", '\\"', "\\"):
        with pytest.raises(EdnError, match="a string that is too long"):
            read('["' + "a" * 1_000 + more + '"]')


def test_open_string_is_looked_at_once(monkeypatch):
    """Each line costs what is on it, however long the string already is."""
    looked = 0
    pattern = edn._STRING

    class Counting:
        def match(self, text, at, end):
            nonlocal looked
            found = pattern.match(text, at, end)
            looked += found.end() - at
            return found

    monkeypatch.setattr(edn, "_STRING", Counting())
    lines = ['{:a "', *["abcdefg\n"] * 5_000, '"}']
    assert list(read_forms(lines)) == [(1, {"a": "abcdefg\n" * 5_000})]
    assert looked == 5_000 * 8


def test_long_string_takes_no_memory_of_its_own():
    text = '"' + "\\n" * 400_000
    tracemalloc.start()
    try:
        with pytest.raises(EdnError, match="this string has no end"):
            list(read_forms([text]))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(text), "a matcher that can go back keeps 165 bytes a character"


PARTS = st.lists(
    st.sampled_from(["a", "\n", " ", ";", "\\n", '\\"', "\\\\", "\\u0041"]), max_size=12
)


@given(PARTS, st.sets(st.integers(0, 40), max_size=6))
def test_string_is_the_same_wherever_its_text_is_cut(parts, cuts):
    body = "".join(parts)
    whole = f'["{body}" 1]'
    places = [0, *sorted(2 + at for at in cuts if at <= len(body)), len(whole)]
    pieces = [whole[first:last] for first, last in itertools.pairwise(places)]
    forms = [form for _, form in read_forms([whole])]
    assert forms[1:] == [1]
    assert [form for _, form in read_forms(pieces)] == forms


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.from_regex(r"[a-z]+", fullmatch=True)
    .map(Keyword),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_what_is_written_is_read_again(value):
    if isinstance(value, int) and abs(value) > 10**38:
        return
    assert read(f"({write_form(value)})") == [value]


@given(st.text(alphabet='{}[]()#"\\;:_ \n1a^', max_size=40))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(EdnError):
        read(text)
