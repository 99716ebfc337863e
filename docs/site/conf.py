"""How Sphinx makes the site; ``python -m docs.site`` calls it."""

from __future__ import annotations

from sphinx.application import Sphinx

from tcomp.highlighting.pygmentslexer import TcLexer
from tcomp.version import __version__

project = "tcomp"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
master_doc = "index"
myst_heading_anchors = 4
suppress_warnings: list[str] = []
highlight_language = "text"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "tcomp"
html_favicon = "static/icon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Program text has colours of its own."""
    app.add_lexer("tc", TcLexer)
