"""Write texts under head sets: greedy decoding and sampling."""
