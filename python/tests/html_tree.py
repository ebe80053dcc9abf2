"""HTML as a tree, for tests that ask what a page shows instead of how it is written."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

_EMPTY = {"br", "img", "input", "link", "meta"}


class Element:
    """An element: its name, attributes and content."""

    def __init__(self, name: str, attributes: dict[str, str | None]):
        self.name, self.attributes = name, attributes
        self.content: list[Element | str] = []

    def __getitem__(self, attribute: str) -> str:
        return self.attributes[attribute] or ""

    @property
    def text(self) -> str:
        """What it shows, in one line."""
        return " ".join(self._raw().split())

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    def all(self, name: str = "", class_: str = "", **attributes: str) -> list[Element]:
        """Return the elements in it of a name, of a class, with attributes."""
        return [
            e
            for e in self._walk()
            if name in ("", e.name)
            and (not class_ or class_ in e.classes)
            and all(e.attributes.get(k) == v for k, v in attributes.items())
        ]

    def one(self, name: str = "", class_: str = "", **attributes: str) -> Element:
        """Return the only one of :meth:`all`."""
        (found,) = self.all(name, class_, **attributes)
        return found

    def rows(self) -> list[list[str]]:
        """Return the text of a table's cells."""
        return [[c.text for c in row.all() if c.name in ("td", "th")] for row in self.all("tr")]

    def _raw(self) -> str:
        return "".join(part if isinstance(part, str) else part._raw() for part in self.content)

    def _walk(self) -> Iterator[Element]:
        for part in self.content:
            if isinstance(part, Element):
                yield part
                yield from part._walk()


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].content.append(element)
        if tag not in _EMPTY:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].content.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"<{self.open[-1].name}> is closed by </{tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].content.append(data)


def parsed(page: str) -> Element:
    """Return a page's tree; every element must be closed, and in order."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert len(parser.open) == 1, f"<{parser.open[-1].name}> is not closed"
    return parser.open[0]
