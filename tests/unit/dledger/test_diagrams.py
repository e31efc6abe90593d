"""The pictures in the documentation are the tables in the code."""

from pathlib import Path

from dledger.diagrams import DOCUMENT, TABLES, draw, main, redraw

ROOT = Path(__file__).parents[3]


def test_diagrams_of_the_documentation_are_up_to_date():
    assert main(["--check", str(ROOT / DOCUMENT)]) == 0, "run: python -m dledger.diagrams"


def test_document_shows_every_table():
    text = (ROOT / DOCUMENT).read_text()
    assert all(f"<!-- diagram {name}," in text for name in TABLES)


def test_every_state_of_a_table_is_reached():
    for first, table in TABLES.values():
        reached = {first}
        for _ in table:
            reached |= {after for before, after in table if before in reached}
        assert reached == set(type(first))


def test_diagram_has_a_line_for_each_transition():
    for first, table in TABLES.values():
        lines = draw(first, table).splitlines()
        assert sum("-->" in line and "[*]" not in line for line in lines) == len(table)
        assert lines[2] == f"    [*] --> {first.value}"


def test_old_diagram_is_drawn_anew_and_the_rest_is_kept(tmp_path):
    page = tmp_path / "page.md"
    mark = "<!-- diagram roles, made by python -m dledger.diagrams -->\n"
    page.write_text(f"before\n\n{mark}old\n<!-- end -->\nafter\n")
    assert main(["--check", str(page)]) == 1
    assert main([str(page)]) == 0
    text = page.read_text()
    assert text == f"before\n\n{mark}{draw(*TABLES['roles'])}<!-- end -->\nafter\n"
    assert redraw(text) == text
    assert main(["--check", str(page)]) == 0
