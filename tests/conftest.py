"""What all tests share: shape checks over the whole package, one thread, tiny models built once."""

from __future__ import annotations

import jaxtyping

# Before anything imports headcount: every annotated function and dataclass of the package checks
# the types and shapes it is given, also those of other tests' arguments.
jaxtyping.install_import_hook("headcount", "beartype.beartype")
