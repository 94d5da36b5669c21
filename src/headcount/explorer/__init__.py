"""The explorer: a local page, or a notebook's widget, in which heads are switched off by hand."""
