"""The idiom: what a key accepts, how it says no, and what a table's value can do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config import (
    ConfigError,
    ConfigType,
    Form,
    boolean,
    class_name,
    float64,
    int16,
    int32,
    int64,
    key,
    keys_of,
    password,
    replace,
    string,
    table,
    words,
)


@table
class Example:
    """A key of each type."""

    a_boolean: boolean = key(default=False, doc="")
    a_string: string = key(default="red", choices=("red", "green"), doc="")
    a_short: int16 = key(default=3, doc="")
    an_int: int32 = key(default=5, at_least=1, at_most=9, also=-1, doc="")
    a_long: int64 | None = key(default=None, at_least=0, doc="")
    a_double: float64 = key(default=0.5, at_least=0, at_most=1, doc="")
    a_list: words = key(default=("x",), choices=("x", "y", "z"), doc="")
    a_pattern: words = key(default=(), form=Form(r"(\d+(,\d+)*)?", "a list of numbers"), doc="")
    a_class: class_name | None = key(default=None, doc="")
    a_password: password | None = key(default=None, doc="")

    @property
    def twice(self) -> int:
        """A table may compute."""
        return 2 * self.an_int


KEYS = keys_of(Example)

ALLOWED = [
    ("a.boolean", " TRUE ", True),
    ("a.boolean", "false", False),
    ("a.string", " green ", "green"),
    ("a.short", "-32768", -32768),
    ("an.int", "1", 1),
    ("an.int", "9", 9),
    ("an.int", "-1", -1),
    ("an.int", "+7", 7),
    ("an.int", "\x00\x1c 7\x1f\n", 7),
    ("a.list", "\x1cx\x0b,\f y ", ("x", "y")),
    ("a.long", "9223372036854775807", (1 << 63) - 1),
    ("a.double", "1e-5", 1e-5),
    ("a.double", "1", 1.0),
    ("a.double", ".25", 0.25),
    ("a.list", "", ()),
    ("a.list", "z , x,z", ("z", "x")),
    ("a.pattern", "", ()),
    ("a.pattern", "1, 22", ("1", "22")),
    ("a.class", "a.B", "a.B"),
    ("a.password", "secret", "secret"),
]

REFUSED = [
    ("a.boolean", "yes", "a.boolean: the value 'yes' is not true or false"),
    ("a.boolean", "", "a.boolean: the value '' is not true or false"),
    ("a.string", "Red", "a.string: the value 'Red' is not one of red, green"),
    ("a.short", "32768", "a.short: the value '32768' is not a 16-bit integer"),
    ("an.int", "0", "an.int: the value '0' is not a 32-bit integer from 1 to 9, or -1"),
    ("an.int", "10", "an.int: the value '10' is not a 32-bit integer from 1 to 9, or -1"),
    ("an.int", "", "an.int: the value '' is not a 32-bit integer from 1 to 9, or -1"),
    ("an.int", "1_0", "an.int: the value '1_0' is not a 32-bit integer from 1 to 9, or -1"),
    ("an.int", "0x5", "an.int: the value '0x5' is not a 32-bit integer from 1 to 9, or -1"),
    ("an.int", "\u00a07", "an.int: the value '\\xa07' is not a 32-bit integer from 1 to 9, or -1"),
    ("an.int", "7\u2003", "an.int: the value '7\\u2003' is not a 32-bit integer from 1 to 9, or -1"),
    ("a.boolean", "\x85true", "a.boolean: the value '\\x85true' is not true or false"),
    ("a.list", "x,\u00a0y", "a.list: the value 'x,\\xa0y' is not a list of x, y, z"),
    ("an.int", "5.0", "an.int: the value '5.0' is not a 32-bit integer from 1 to 9, or -1"),
    ("an.int", "٣", "an.int: the value '٣' is not a 32-bit integer from 1 to 9, or -1"),
    ("a.long", "-1", "a.long: the value '-1' is not a 64-bit integer from 0"),
    (
        "a.long",
        "9223372036854775808",
        "a.long: the value '9223372036854775808' is not a 64-bit integer from 0",
    ),
    ("a.double", "1.01", "a.double: the value '1.01' is not a number from 0 to 1"),
    ("a.double", "nan", "a.double: the value 'nan' is not a number from 0 to 1"),
    ("a.double", "1e999", "a.double: the value '1e999' is not a number from 0 to 1"),
    ("a.list", "x,w", "a.list: the value 'x,w' is not a list of x, y, z"),
    ("a.list", "x,,y", "a.list: the value 'x,,y' is not a list of x, y, z"),
    ("a.list", ",", "a.list: the value ',' is not a list of x, y, z"),
    ("a.pattern", "1,b", "a.pattern: the value '1,b' is not a list of numbers"),
]


@pytest.mark.parametrize(("name", "text", "value"), ALLOWED)
def test_a_text_is_read_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert KEYS[name].parse(text) == value


@pytest.mark.parametrize(("name", "text", "message"), REFUSED)
def test_a_bad_value_is_refused_with_what_is_allowed(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        KEYS[name].parse(text)
    assert str(refused.value) == message


def test_a_refused_secret_is_not_repeated() -> None:
    """Nothing is wrong with any password, so this takes a key with a pattern."""
    secret = KEYS["a.password"]._replace(form=Form("x+", "x, as often as you like"))
    with pytest.raises(ConfigError) as refused:
        secret.parse("hunter2")
    assert str(refused.value) == "a.password: the value that was given is not x, as often as you like"


@pytest.mark.parametrize("name", ["an.int", "a.double", "a.boolean", "a.string", "a.list"])
@pytest.mark.parametrize("end", ["", ".", "x"])
def test_a_million_digits_are_refused_soon_and_in_few_words(name: str, end: str) -> None:
    """A client may send them, and others wait meanwhile."""
    with pytest.raises(ConfigError) as refused:
        KEYS[name].parse("1" * 1_000_000 + end)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.00001, "1.0E-5"),
        (1234567.9, "1234567.9"),
        (12345678.9, "1.23456789E7"),
        (1e9, "1.0E9"),
        (-1e9, "-1.0E9"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
    ],
)
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    unlimited = KEYS["a.double"]._replace(at_least=None, at_most=None)
    assert unlimited.format(value) == text
    assert unlimited.parse(text) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_survives_being_written(value: float) -> None:
    unlimited = KEYS["a.double"]._replace(at_least=None, at_most=None)
    assert unlimited.parse(unlimited.format(value) or "") == value


TEXTS = st.one_of(
    st.text(),
    st.integers().map(str),
    st.floats().map(str),
    st.lists(st.sampled_from(["x", "y", "z", " ", "1", "22"])).map(",".join),
)


@given(st.sampled_from(sorted(KEYS)), TEXTS)
def test_a_text_is_refused_or_gives_a_value_that_survives_being_written(name: str, text: str) -> None:
    note = KEYS[name]
    try:
        value = note.parse(text)
    except ConfigError:
        return
    assert note.allows(value)
    assert note.parse(note.format(value) or "") == value


def test_no_value_is_written_as_none() -> None:
    assert KEYS["a.long"].format(None) is None


def test_a_table_knows_its_keys_by_kafkas_names_in_order() -> None:
    assert list(KEYS)[:4] == ["a.boolean", "a.string", "a.short", "an.int"]
    assert {name: note.type for name, note in KEYS.items()} == {
        "a.boolean": ConfigType.BOOLEAN,
        "a.string": ConfigType.STRING,
        "a.short": ConfigType.SHORT,
        "an.int": ConfigType.INT,
        "a.long": ConfigType.LONG,
        "a.double": ConfigType.DOUBLE,
        "a.list": ConfigType.LIST,
        "a.pattern": ConfigType.LIST,
        "a.class": ConfigType.CLASS,
        "a.password": ConfigType.PASSWORD,
    }
    assert KEYS["an.int"].attribute == "an_int"


def test_a_value_has_defaults_and_what_was_given() -> None:
    example = Example(an_int=7)
    assert (example.an_int, example.a_string, example.a_long, example.twice) == (7, "red", None, 14)


def test_a_value_cannot_change() -> None:
    example = Example()
    with pytest.raises(AttributeError, match="an_int cannot be changed"):
        setattr(example, "an_int", 7)  # noqa: B010 -- a type checker knows better
    with pytest.raises(AttributeError, match="an_int cannot be changed"):
        del example.an_int
    with pytest.raises(AttributeError):
        setattr(example, "another", 7)  # noqa: B010
    assert example.an_int == 5


def test_values_are_compared_by_content() -> None:
    assert Example(an_int=7) == replace(Example(), {"an_int": 7})
    assert Example(an_int=7) != Example()
    something_else: object = "something else"
    assert Example() != something_else


def test_a_value_does_not_show_its_secrets() -> None:
    assert "hunter2" not in repr(Example(a_password="hunter2"))


def test_what_a_table_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="Example has no an_integer"):
        replace(Example(), {"an_integer": 7})


def test_a_table_takes_keys_of_kafkas_types_only() -> None:
    class Wrong:
        a_set: set[str] = key(default=frozenset(), doc="")

    class Bare:
        an_int: int32 = 5

    with pytest.raises(TypeError, match=r"Wrong\.a_set is not a key of one of the types boolean, string"):
        table(Wrong)
    with pytest.raises(TypeError, match=r"Bare\.an_int"):
        table(Bare)
