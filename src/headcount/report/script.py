"""Modules of a page, joined into one script that stands in the page and loads nothing."""

from __future__ import annotations

import re
from importlib.resources import files

IMPORT = re.compile(r'^import \{[^}]*\} from "\./[\w.]+";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=const |class |default )", re.MULTILINE)


def joined(*modules: tuple[str, str], keep_last: bool = False) -> str:
    """The text of modules, each a package and a file, those that others import first.

    Their imports of each other are left out, and their exports, but with `keep_last` those of the
    last module.
    """
    texts = []
    for number, (package, name) in enumerate(modules, 1):
        text = IMPORT.sub("", (files(package) / name).read_text(encoding="utf-8"))
        exported = keep_last and number == len(modules)
        texts.append(text if exported else EXPORT.sub("", text))
    return "\n".join(texts)
