"""Single edges of attention: (layer, head, query, key), each kept or taken from another prompt."""
