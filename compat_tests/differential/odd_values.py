"""Values for each type of key: what is meant, what lies at the bounds, and what people get wrong."""

from __future__ import annotations

from collections.abc import Iterator

from compat_tests.differential.definitions import Definition

NUMBERS = (
    *("-2147483649", "-2147483648", "-101", "-6", "-2", "-1", "0", "1", "2", "3", "5", "10", "99", "100"),
    *("101", "1000", "45000", "60001", "2147483647", "2147483648", "", "abc", " 7 ", "+7", "1.0", "0x10"),
    *("1_0", "\u00a07", "\x1c7", "-0", "007"),
)
WORDS = ("", "abc", " x ", "PLAINTEXT", "none", "-1", "a:b", "A,B", "1:2", ":")
VALUES = {
    "INT": NUMBERS,
    "SHORT": (*NUMBERS, "32767", "32768", "-32768", "-32769"),
    "LONG": (*NUMBERS, "9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    "BOOLEAN": ("true", "false", "TRUE", " true ", "yes", "1", "", "\u00a0true", "on"),
    "DOUBLE": ("-1", "0", "-0.0", "0.5", "1", "1.5", "abc", "", " 0.5 ", ".5", "1e9", "\u00a01"),
    "STRING": WORDS,
    "LIST": ("", "a", "a,b", "a,,b", "a,a", ",", " a , b ", "a,", "compact"),
    "CLASS": ("", "no.such.Class", "java.lang.String"),
    "PASSWORD": ("", "x", " x "),
}
"""By Kafka's types. Digits that are not ASCII, NaN and infinities are left out: Kafka alone takes them."""


def values_of(definition: Definition) -> Iterator[str]:
    yield from VALUES[definition.type]
