"""Run the notebooks of the documentation and keep what they show.

    python scripts/run_notebooks.py        all under docs/notebooks, in place

Times, warnings and the names of this machine's interpreter are left out, so that the same code
gives the same file. headcount is installed, or src is on PYTHONPATH by its full path.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def main() -> None:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            resources = {"metadata": {"path": folder}}
            NotebookClient(notebook, kernel_name="python3", resources=resources).execute()
        notebook.metadata = nbformat.from_dict(METADATA)
        for number, cell in enumerate(notebook.cells):
            cell.id, cell.metadata = f"cell-{number}", {}
            if cell.cell_type == "code":  # without what libraries warn of on this machine
                cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
