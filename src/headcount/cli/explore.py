"""The command `headcount explore`: a local page in which heads are switched off by hand."""

from __future__ import annotations

import sys
from argparse import Namespace

from headcount.cli.common import heads_from, model_from
from headcount.cli.parser import parse_settings
from headcount.tasks import task_factory


def explore(arguments: Namespace) -> None:
    """Serve the page until Ctrl-C."""
    from headcount.explorer.explore import check_packages

    check_packages(["starlette", "uvicorn"])
    from headcount.explorer.launch import ExplorerServer, free_port, open_browser
    from headcount.explorer.scores import Scores
    from headcount.explorer.session import ExplorerSession

    settings = parse_settings(arguments.set)
    make = task_factory(arguments.task, **settings)
    heads = heads_from(arguments)
    free_port(arguments.port).close()  # refuses a wrong port before a model is loaded
    model = model_from(arguments)
    scores = Scores.read(arguments.scores, model.name, model.layout)
    store = None if arguments.no_store else arguments.store or "default"
    names = {"model": arguments.model, "task": arguments.task}
    task = make(model.tokenizer)
    session = ExplorerSession(model, task, scores, store, names, settings, heads)
    _say(f"{model.name} is loaded; its fast paths are proven once, which can take a minute …")
    _ = model.fast_paths
    with ExplorerServer(session, arguments.port) as server:
        if server.port != arguments.port and arguments.port:
            _say(f"Port {arguments.port} is taken; {server.port} is the next free one.")
        _say(f"The explorer is at\n\n  {server.link}\n\nKeep the link to yourself. Ctrl-C ends it.")
        _say(
            "From another machine, first forward the port there: "
            f"ssh -L {server.port}:127.0.0.1:{server.port} THIS-MACHINE"
        )
        if not arguments.no_browser:
            open_browser(server.link, _say)
        try:
            server.wait()
        except KeyboardInterrupt:
            _say("\nThe explorer has ended.")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
