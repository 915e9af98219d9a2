"""The table of clients, from a report like pytest's."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.features import BEGIN, DOCUMENT, END, LACKS, results, rewrite, table


def case(client: str, feature: str, outcome: str = "") -> str:
    return f"""<testcase><properties><property name="client" value="{client}"/>
        <property name="feature" value="{feature}"/></properties>{outcome}</testcase>"""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    lacks = f'<skipped message="{LACKS}no plug-in"/>'
    cases = [
        case("one 1.0", "codecs"),
        case("one 1.0", "codecs", lacks),
        case("one 1.0", "topics", lacks),
        case("one 1.0", "groups", "<failure/>"),
        case("one 1.0", "groups"),
        case("two 2.0", "groups"),
        case("three 3.0", "groups", '<skipped message="no such tool here"/>'),
        "<testcase/>",
    ]
    path = tmp_path / "report.xml"
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return path


def test_what_passed_failed_and_is_lacking_is_told_apart_from_what_was_not_tried(report: Path) -> None:
    assert table(results(report)) == [
        "|  | one 1.0 | two 2.0 |",
        "| --- | --- | --- |",
        "| codecs | in part |  |",
        "| topics | - |  |",
        "| groups | **fails** | yes |",
        "",
        "What a client has not:",
        "",
        "- one 1.0: no plug-in (codecs; topics)",
    ]


def test_only_what_is_between_the_markers_is_replaced() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert rewrite(document, ["new"]) == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert rewrite(rewrite(document, ["new"]), ["new"]) == rewrite(document, ["new"])


def test_the_document_has_the_markers() -> None:
    assert END in rewrite(DOCUMENT.read_text(), [])
