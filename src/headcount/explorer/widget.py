"""The explorer as a widget, in Jupyter, VS Code and marimo."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from headcount.errors import HeadcountError
from headcount.explorer.inquiries import ENDS, Inquiry
from headcount.explorer.session import ExplorerSession, page_id
from headcount.explorer.state import ExplorerState
from headcount.report.script import joined
from headcount.system.files import to_json

REPORT, EXPLORER = "headcount.report", "headcount.explorer"


@cache
def module() -> str:
    """The page's modules and styles as one module, which loads nothing."""
    styles = ((REPORT, "page.css"), (EXPLORER, "page/explorer.css"))
    style = "\n".join((files(room) / name).read_text(encoding="utf-8") for room, name in styles)
    page = joined(
        (REPORT, "heads.js"), *((EXPLORER, f"page/{n}.js") for n in ("panels", "explorer"))
    )
    # The widget stands in a shadow tree, which has no :root.
    own = f"const STYLE = {json.dumps(style.replace(':root', ':host'))};\n"
    return page + own + (files(EXPLORER) / "page/widget.js").read_text(encoding="utf-8")


class ExplorerWidget(anywidget.AnyWidget):
    """The explorer in a notebook; `state` is what it shows, and can be set.

    Whatever `state` leaves out stays as it is: `widget.state = {"heads": ["3.4"]}`.
    """

    state = traitlets.Dict().tag(sync=True)

    def __init__(self, session: ExplorerSession) -> None:
        self.session = session
        self._inquiries: dict[str, Inquiry] = {}
        super().__init__(_esm=module(), state=_plain(session.first_state()))
        self.on_msg(self._hear)

    @traitlets.validate("state")
    def _checked(self, proposal: Any) -> dict[str, Any]:
        """Refuse what is no state of the model."""
        known = dict(self._trait_values.get("state") or {})
        return _plain(ExplorerState.of(known | dict(proposal["value"]), self.session.model.layout))

    def _hear(self, _: Any, content: Any, __: Any) -> None:
        """Answer an inquiry of the page by messages, or cancel it."""
        if not isinstance(content, dict):
            return
        if "cancel" in content:
            if (inquiry := self._inquiries.pop(str(content["cancel"]), None)) is not None:
                inquiry.cancel()
            return
        number = str(content.pop("number", ""))

        def emit(name: str, data: Any) -> None:
            if name in ENDS:
                self._inquiries.pop(number, None)
            self.send({"number": number, "name": name, "data": json.loads(to_json(data))})

        try:
            page, kind = page_id(content.get("page")), str(content.get("kind"))
            self._inquiries[number] = self.session.ask(page, kind, content, emit)
        except HeadcountError as error:
            emit("refused", {"text": str(error)})


def _plain(state: ExplorerState) -> dict[str, Any]:
    """A state in the types of JSON."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in state.settings().items()}
