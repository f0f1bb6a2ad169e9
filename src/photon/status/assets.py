"""The page's files, as the package has them, and what a browser may do with them.

Everything the page is made of comes from here: no other sources, no script or style inside of the HTML, no text that
is taken for HTML. So a log or an id with markup in its name stays text even where the page's code would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from photon.status.http import Answer

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
"""Of the files that are served; others in the directory are not."""
INDEX = "index.html"


def read_assets() -> Mapping[str, Answer]:
    """Path -> answer: the page at ``/``, its other files below ``/page/``."""
    headers = (("Content-Security-Policy", CONTENT_POLICY),)
    found = {}
    for file in files("photon.status").joinpath("page").iterdir():
        name, dot, ending = file.name.rpartition(".")
        media_type = MEDIA_TYPES.get(dot + ending)
        if name and media_type is not None:
            path = "/" if file.name == INDEX else f"/page/{file.name}"
            found[path] = Answer(file.read_bytes(), media_type, headers=headers)
    return found
