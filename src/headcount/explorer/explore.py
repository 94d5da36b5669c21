"""`headcount.explore`: the explorer from Python, in a notebook or beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.explorer.scores import Scores
from headcount.explorer.session import ExplorerSession
from headcount.heads import HeadScores, HeadSet
from headcount.models.gate import require_one_process
from headcount.models.model import Model, check_model
from headcount.rankings import fitting
from headcount.system.progress import in_notebook
from headcount.tasks import Task, make_task

NEEDED = ("starlette", "uvicorn", "anywidget")


def check_packages(names: Iterable[str]) -> None:
    """Refuse to start without the packages of the extra `explore`."""
    lacking = [name for name in names if find_spec(name) is None]
    if lacking:
        raise HeadcountError(
            f"The explorer needs {' and '.join(lacking)}: pip install 'headcount[explore]'."
        )


def explore(
    model: Model,
    task: str | Path | Task | None = "ioi",
    *,
    scores: Iterable[HeadScores | str | Path] = (),
    heads: HeadSet | Iterable[str] = (),
    widget: bool | None = None,
    browser: bool = True,
) -> Any:
    """Switch heads off by hand, and watch what the model then thinks.

    In a notebook this is a widget, whose `state` can be read and set: `widget.state["heads"]`,
    `widget.state = {"heads": ["3.4"]}`. Elsewhere, or with `widget=False`, it is a local page,
    served until `close()`; its `link` opens in the browser unless `browser` is False. `scores`
    colour the map, also from files; further ones are computed on request. `heads` are those that
    are off at the start, such as `HeadSet.load("head-set.json")`.

    >>> from headcount import explore, load_model
    >>> page = explore(load_model("smollm2-135m-q4"), widget=False, browser=False)
    >>> page.link.startswith("http://127.0.0.1:")
    True
    >>> page.close()
    """
    as_widget = in_notebook() if widget is None else widget
    check_packages(["anywidget"] if as_widget else ["starlette", "uvicorn"])
    require_one_process(check_model(model).sites, "The explorer")
    given = list(scores)
    paths = [one for one in given if not isinstance(one, HeadScores)]
    known = Scores.read(paths, model.name, model.layout)
    for one in given:
        if isinstance(one, HeadScores):
            known.add(one.ranking, fitting(one, model))
    made = None if task is None else make_task(task, model)
    name = {} if isinstance(task, Task) or task is None else {"task": str(task)}
    spec = {} if model.origin is None else {"model": str(model.origin["spec"])}
    first = heads if isinstance(heads, HeadSet) else HeadSet(heads)
    session = ExplorerSession(model, made, known, names=name | spec, heads=first)
    if as_widget:
        from headcount.explorer.widget import ExplorerWidget

        return ExplorerWidget(session)
    from headcount.explorer.launch import ExplorerServer, open_browser

    server = ExplorerServer(session)
    if browser:
        open_browser(server.link, lambda text: print(text, file=sys.stderr))
    return server
