"""The past tense and third person of verbs, and the plural of nouns."""

from __future__ import annotations

import re
from functools import cache

from headcount.tasks.items import tables


@cache
def irregular(section: str) -> dict[str, str]:
    """Irregular words with their "pasts" or "plurals".

    >>> irregular("plurals")["mouse"]
    'mice'
    """
    pairs = (phrase.split() for phrase in tables("word_forms").phrases(section))
    return {pair[0]: pair[1] for pair in pairs}


def past(verb: str) -> str:
    """The past tense of a verb, regular or not.

    >>> past("walk"), past("move"), past("carry"), past("stop"), past("go"), past("hurt")
    ('walked', 'moved', 'carried', 'stopped', 'went', 'hurt')
    """
    if verb in irregular("pasts") or verb == "hurt":
        return irregular("pasts").get(verb, verb)
    if verb.endswith("e"):
        return verb + "d"
    if re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb):  # one short vowel: stop, hug
        return verb + verb[-1] + "ed"
    return re.sub(r"(?<=[^aeiou])y$", "i", verb) + "ed"


def plural(noun: str) -> str:
    """The plural of a regular noun.

    >>> plural("book"), plural("box"), plural("church"), plural("city"), plural("day")
    ('books', 'boxes', 'churches', 'cities', 'days')
    """
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return noun + "es"
    return re.sub(r"(?<=[^aeiou])y$", "ie", noun) + "s"


def third_person(verb: str) -> str:
    """The verb in the third person singular.

    >>> third_person("walk"), third_person("wash"), third_person("go"), third_person("carry")
    ('walks', 'washes', 'goes', 'carries')
    """
    if verb.endswith("o"):
        return verb + "es"
    return plural(verb)  # the rule for the s of a verb is that of nouns
