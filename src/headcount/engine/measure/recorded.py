"""What of the ungated pass is recorded, and when: as little as the passes that start late need.

Head sets that start at a later block read the input of that block, recorded in a pass with all
heads. A recording of every block would take more memory than the pass itself. So passes are sorted
by their start and carried out in stretches. The ungated pass advances from stretch to stretch and
keeps what the passes of one stretch need, and where it stopped. All stretches cost one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headcount.models.fast_paths import Trunk
from headcount.models.model import Model

SMALL = 256 << 20  # bytes: a recording of this size is made in one stretch
SHARE = 0.04  # of the weights' size that a larger recording may take
OF_BLOCK = 0.3  # the part of a block that a start at its output projection leaves out

SetsAndStart = tuple[list[int], int]  # the head sets of a pass, and the site where it starts


@dataclass(frozen=True)
class Stretch:
    """Passes, and the part of the ungated pass that runs before them.

    passes   start at sites that are recorded, or from the first block where nothing is
    starts   the sites that are recorded
    last     the block after which the ungated pass stops; None: it runs to the end
    runs     whether the ungated pass runs at all
    """

    passes: Sequence[SetsAndStart]
    starts: Sequence[int] = ()
    last: int | None = None
    runs: bool = True


def stretches(
    passes: Sequence[SetsAndStart], trunk: Trunk, attention: bool, whole: bool, most: int
) -> Iterator[Stretch]:
    """Group passes into stretches of up to `most` starts.

    With `whole`, the ungated pass runs to the end in the last stretch. Without `whole`, nothing is
    recorded that would not save more than it costs.

    >>> trunk = Trunk(blocks=("0", "1", "2", "3"), block_of=(0, 1, 2, 3), tokenwise=())
    >>> passes = [([0], 0), ([1, 2], 2), ([3], 3)]
    >>> for stretch in stretches(passes, trunk, attention=False, whole=True, most=2):
    ...     print(stretch.passes, stretch.starts, stretch.last)
    [([0], 0), ([1, 2], 2)] [0, 2] 2
    [([3], 3)] [3] None
    >>> for stretch in stretches(passes, trunk, attention=False, whole=False, most=2):
    ...     print(stretch.passes, stretch.starts, stretch.last)
    [([0], 0), ([1, 2], 2), ([3], 2)] [0, 2] 2
    """
    if not whole:
        latest = _latest_worth(passes, trunk, attention)
        if latest is None:
            yield Stretch([(rows, 0) for rows, _ in passes], runs=False)
            return
        passes = [(rows, min(start, latest)) for rows, start in passes]
    grouped: list[Stretch] = []
    for one in sorted(passes, key=lambda one: one[1]):
        start, block = one[1], trunk.block_of[one[1]]
        stretch = grouped[-1] if grouped else None
        # The ungated pass stops after whole blocks: sites of one block belong to one stretch.
        if stretch is None or (
            start not in stretch.starts and len(stretch.starts) >= most and block != stretch.last
        ):
            grouped.append(Stretch([one], [start], block))
        else:
            starts = dict.fromkeys([*stretch.starts, start])
            grouped[-1] = Stretch([*stretch.passes, one], list(starts), block)
    if whole:
        grouped[-1:] = [replace(grouped[-1], last=None) if grouped else Stretch([])]
    yield from grouped


def _latest_worth(passes: Sequence[SetsAndStart], trunk: Trunk, attention: bool) -> int | None:
    """The latest start to which it pays to record; None where the blocks saved are too few."""
    starts = [start for rows, start in passes for _ in rows]

    def gain(latest: int) -> float:
        saved = (trunk.block_of[min(start, latest)] for start in starts)
        within = OF_BLOCK * len(starts) if attention else 0.0
        return sum(saved) + within - (trunk.block_of[latest] + 1)

    best = max(sorted(set(starts)), key=gain, default=None)
    return best if best is not None and gain(best) > 0 else None


def most_starts(model: Model, tokens: int) -> int:
    """How many starts of a pass over so many tokens may be recorded at once: at least one."""
    weights = sum(p.numel() * p.element_size() for p in model.module.parameters())
    width = max(site.width for site in model.sites)
    one = 2 * tokens * width * model.dtype.itemsize  # a block's input and the heads' outputs
    return max(1, int(max(SMALL, SHARE * weights)) // one)
