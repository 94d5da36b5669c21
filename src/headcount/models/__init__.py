"""Load language models; find, prove and gate their heads; write them with heads removed."""
