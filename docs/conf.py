"""How `make docs` builds the site: Sphinx with MyST pages; nothing is loaded from outside."""

import re

from sphinx.errors import ExtensionError

from headcount import __version__

project = "headcount"
author = "The headcount developers"
copyright = author
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["results/*/**"]  # linked to, file by file
suppress_warnings = ["config.cache"]

# Pages: plain Markdown, whose links to headings work as they do where the files are read as such.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# Notebooks show what they showed when scripts/run_notebooks.py ran them.
nb_execution_mode = "off"
nb_merge_streams = True

# Docstrings: names between backticks are code, with a link where they are on the page.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = f"headcount {version}"
html_static_path = ["_static"]
html_css_files = ["headcount.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

# Files outside this folder that pages link to, and the pages that show them.
OUTSIDE = {"(../benchmarks/README.md)": "(running-benchmarks.md)"}

# "name   what it is", the form in which docstrings here explain fields and settings.
FIELD = re.compile(r"(?P<name>[\w.]+(?:, [\w.]+)*) {2,}(?P<text>\S.*)")


def fields_to_list(_app, _what, _name, _object, _options, lines) -> None:
    """Write aligned lines of names and explanations as a list, and keep backslashes."""
    written = []
    for block in re.split(r"\n{2,}", "\n".join(lines).strip("\n")):
        if not block.startswith(">>>"):
            block = block.replace("\\", "\\\\")
        rows = block.split("\n")
        if all(FIELD.fullmatch(row) or row.startswith("    ") for row in rows) and (
            FIELD.fullmatch(rows[0])
        ):
            block = "\n".join(
                f"- ``{found['name']}``: {found['text']}"
                if (found := FIELD.fullmatch(row))
                else f"  {row.strip()}"
                for row in rows
            )
        written += [*block.split("\n"), ""]
    lines[:] = written


def readable_defaults(_app, _what, _name, _object, _options, signature, returns):
    """Fields that are made anew, which dataclasses show in a form that is no Python."""
    return (signature or "").replace("<factory>", "...") or None, returns


def links_to_pages(_app, _page, source) -> None:
    """Lead links out of this folder to the pages that show those files."""
    for link, page in OUTSIDE.items():
        source[0] = source[0].replace(link, page)


LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')


def nothing_from_outside(app, exception) -> None:
    """The site must work without a network, and tell nobody who reads it."""
    for page in [] if exception else sorted(app.outdir.rglob("*.html")):
        if found := LOADED.search(page.read_text(encoding="utf-8")):
            raise ExtensionError(f"{page.name} loads something from outside: {found[0]}")


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", fields_to_list)
    app.connect("autodoc-process-signature", readable_defaults)
    app.connect("source-read", links_to_pages)
    app.connect("build-finished", nothing_from_outside)
