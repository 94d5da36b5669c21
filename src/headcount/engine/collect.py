"""Read the heads' outputs while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.model import Model
from headcount.models.sites import HeadSite, plain, to_rows


@contextmanager
def reading(
    model: Model, read: Callable[[HeadSite, Float[Tensor, "rows tokens width"]], None]
) -> Iterator[None]:
    """Call `read` with each site's z, before any gate, whenever the model runs in this context."""
    named = dict(plain(model.module).named_modules())
    runs: dict[str, int] = {}
    rows = [1]

    def starting(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        runs.clear()
        ids = kwargs.get("input_ids", args[0] if args else None)
        rows[0] = 1 if ids is None else ids.shape[0]

    def hook_for(name: str, sites: dict[int, HeadSite]) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            call = runs.get(name, 0)
            runs[name] = call + 1
            if call in sites:
                read(sites[call], to_rows(args[0], sites[call].order, rows[0]))

        return hook

    with ExitStack() as stack:
        top = plain(model.module)
        stack.callback(top.register_forward_pre_hook(starting, with_kwargs=True).remove)
        for name in dict.fromkeys(site.module for site in model.sites):
            sites = {site.call: site for site in model.sites if site.module == name}
            # First in line, so that z is read as the attention left it.
            hook = hook_for(name, sites)
            handle = named[name].register_forward_pre_hook(hook, prepend=True)
            stack.callback(handle.remove)
        yield
