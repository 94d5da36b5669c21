"""Syntactic Understanding: which form does a word take?

    What is the past tense of walk?     →  walked
    What is the plural of city?         →  cities

Two forms of question. Regular words are listed alone and get their ending by rule; irregular ones
stand beside their answer. Words with two accepted forms (learn, penny) or without a form of their
own (cut, sheep) are left out. Comparatives ("What is the comparative form of big?") were tried as a
third form: the bundled model often gives the word back as it is (.45 to .77 correct, by the shots
in front). All items are our own.
"""

from __future__ import annotations

import re

from headcount.tasks.cognitive.item import Item


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    words = text.split()
    return tuple(zip(words[::2], words[1::2], strict=True))


QUESTIONS = {
    "past": "What is the past tense of {word}?",
    "plural": "What is the plural of {word}?",
}

VERBS = _words("""
    walk talk play work jump look ask help call open close move live love like want need start
    finish turn clean wash watch cook paint laugh smile cry carry study try hurry marry copy reply
    apply stop plan drop shop hug rob rub beg clap chat grab slip step trap wrap nod hop answer
    visit listen follow enter offer order remember wonder happen gather deliver discover cover
    explain enjoy stay pray destroy obey delay agree arrive believe breathe change dance decide
    escape hope invite notice place promise raise save share smoke taste use vote wave accept add
    attack bark boil climb collect count cross crash dress end expect fail fill float guess hunt
    join kick kill kiss knock land last lock melt miss pack pass point pour pull push rain reach
    repeat rest return roll sail scream seem shout show sign ski touch train trust wait warn whisper
    wish yawn
""")
PASTS = _pairs("""
    go went do did have had make made take took shake shook mistake mistook come came become became
    overcome overcame run ran begin began swim swam sing sang drink drank sink sank ring rang
    sit sat give gave forgive forgave see saw eat ate fall fell know knew grow grew throw threw
    blow blew fly flew draw drew withdraw withdrew drive drove ride rode write wrote rise rose
    arise arose freeze froze speak spoke steal stole break broke choose chose wake woke wear wore
    tear tore swear swore bear bore get got forget forgot bite bit hide hid slide slid find found
    bind bound grind ground feed fed lead led bleed bled breed bred meet met flee fled shoot shot
    hold held stand stood understand understood lose lost leave left sleep slept keep kept weep wept
    sweep swept creep crept feel felt deal dealt mean meant bend bent send sent lend lent
    spend spent build built buy bought bring brought think thought fight fought seek sought
    catch caught teach taught sell sold tell told hear heard say said pay paid lay laid dig dug
    stick stuck strike struck sting stung swing swung fling flung cling clung spin spun win won
""")

NOUNS = _words("""
    cat dog book car table chair tree house river road street bird horse cow pig king queen friend
    teacher doctor student farmer soldier window door wall garden flower apple orange banana carrot
    onion egg cake cup bottle plate spoon lamp clock pencil letter stamp ticket map bag coat hat
    shirt shoe sock ring coin key bridge tower castle village island mountain lake cloud star planet
    bus box fox tax glass class dish brush bush beach peach church bench branch match lunch sandwich
    witch ditch boss mass bonus virus actress princess address business city country party
    story family army lady baby body enemy cherry berry factory library lorry puppy pony
    spy diary gallery memory battery butterfly strawberry boy toy day ray tray monkey
    donkey turkey valley journey holiday cowboy highway piano photo radio video studio zoo kangaroo
    school hospital market station airport hotel museum theatre forest farm ship boat tractor plane
    engine wheel hammer nail ladder rope basket pocket blanket pillow mirror candle
""")
PLURALS = _pairs("""
    man men woman women child children foot feet tooth teeth goose geese mouse mice
    louse lice ox oxen leaf leaves wolf wolves knife knives wife wives life lives half halves
    shelf shelves loaf loaves thief thieves calf calves elf elves self selves policeman policemen
    fireman firemen fisherman fishermen gentleman gentlemen snowman snowmen grandchild grandchildren
    housewife housewives bookshelf bookshelves potato potatoes tomato tomatoes hero heroes
    echo echoes crisis crises oasis oases analysis analyses basis bases thesis theses
""")


def items() -> list[Item]:
    """All items, form after form."""
    forms = {
        "past": [*((word, past(word)) for word in VERBS), *PASTS],
        "plural": [*((word, plural(word)) for word in NOUNS), *PLURALS],
    }
    return [
        Item(QUESTIONS[form].format(word=word), answer, form, f"{form}/{word}")
        for form, pairs in forms.items()
        for word, answer in pairs
    ]


def past(verb: str) -> str:
    """The past tense of a regular verb.

    >>> past("walk"), past("move"), past("carry"), past("stop")
    ('walked', 'moved', 'carried', 'stopped')
    """
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
