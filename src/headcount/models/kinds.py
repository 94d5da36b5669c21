"""Further kinds of models, such as sparse ones, each with the name of the module that loads it.

The module is imported only when a model of its kind is loaded, or any model is exported.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class ModelKind(NamedTuple):
    """A kind of model.

    prefix  model names of this kind begin with it
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
            folder: Path = self.loader.named_folder(spec.removeprefix(self.prefix))
            return folder
        folder = Path(spec).expanduser()
        return folder if (folder / self.marker).exists() else None

    @property
    def loader(self) -> Any:
        """The module, imported on first use."""
        return import_module(self.module)


KINDS: list[ModelKind] = []
