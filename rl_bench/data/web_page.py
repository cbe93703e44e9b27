"""Web pages where a file was expected: what they are called, and the form that leads to the file.

Google Drive answers a request for a large file with a page that asks to confirm; its form, sent as
it stands, leads to the file. Any other page (a login, a quota, a captive portal) has no such form.
"""

from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

FORM_ID = "download-form"


class _Page(HTMLParser):
    """Collects the title and the download form."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._in_title = self._in_form = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "title":
            self._in_title = True
        elif tag == "form" and given.get("id") == FORM_ID:
            self._in_form, self.action = True, given.get("action", "")
        elif tag == "input" and self._in_form and given.get("name"):
            self.fields[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag == "form":
            self._in_form = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data


def title_of(html: str) -> str:
    """The page's title in one line; ``untitled`` without one."""
    page = _Page()
    page.feed(html)
    return " ".join(page.title.split())[:100] or "untitled"


def follow_form(html: str, url: str) -> str | None:
    """The address that the page's download form leads to, or ``None`` if it has no such form.

    Args:
        html: The page.
        url: Its own address.
    """
    page = _Page()
    page.feed(html)
    if page.action is None:
        return None
    target = urlsplit(urljoin(url, page.action))
    query = urlencode(dict(parse_qsl(target.query)) | page.fields)
    return urlunsplit((target.scheme, target.netloc, target.path, query, ""))
