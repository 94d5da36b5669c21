"""Kinds of models that other rooms load and export: each is entered here by dotted names.

Nothing of a kind is imported before a name, a folder or an export asks for it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class ModelKind(NamedTuple):
    """A kind of model.

    prefix  names that begin with it are of this kind
    marker  the file by which a folder of this kind is recognised
    module  has `named_folder(name)`, `load(folder, options, spec)` and
            `export(module, written, folder)`
    """

    prefix: str
    marker: str
    module: str

    def folder_of(self, spec: str) -> Path | None:
        """The folder that `spec` means, if it means a model of this kind."""
        if spec.startswith(self.prefix):
            folder: Path = self.home.named_folder(spec.removeprefix(self.prefix))
            return folder
        folder = Path(spec).expanduser()
        return folder if (folder / self.marker).exists() else None

    @property
    def home(self) -> Any:
        """The module, imported when first asked for."""
        return import_module(self.module)


KINDS: list[ModelKind] = []
