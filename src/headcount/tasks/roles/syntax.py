"""Syntax: six small operations on words and sentences.

    agreement   I walk to the market. What does the farmer do? → The farmer walks to the market.
    tense       Put into the past tense: Today I open the box. → Yesterday I opened the box.
    plural      What is the plural of city? → cities
    pronoun     Who did the queen teach, if nobody else? → The queen taught herself.
    question    Turn this sentence into a question: The doctor is late. → Is the doctor late?
    negation    Make this sentence negative: The driver was late. → The driver was not late.

The skills follow the published study (which takes them from BIG-Bench); every item is our own. No
phrase comes twice in a form; the subjects go round. Each form was tried
in several wordings on a few dozen items; these are the ones that the bundled model answers best.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from headcount.tasks.cognitive.item import Item
from headcount.tasks.cognitive.syntactic import NOUNS, PASTS, PLURALS, past, plural
from headcount.tasks.roles.prompt import build
from headcount.tasks.task import Bos, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(phrase.split()) for phrase in text.split(";"))


PEOPLE = _words("""
    farmer teacher doctor driver singer nurse painter soldier baker girl boy student sailor writer
    pilot gardener lawyer hunter dancer tailor
""")
PHRASES = _phrases("""
    walk to the market; open the door; clean the oven; paint the fence; play the piano; cook some
    rice; kick the ball; visit the museum; wash the car; carry the bags; close the window; help the
    neighbours; call the police; move the table; watch the birds; need a new coat; start the engine;
    finish the letter; turn off the radio; laugh at the joke; smile at the baby; study the map; try
    the soup; copy the list; stop at the corner; plan the journey; drop the plate; chat with the
    guests; grab the rope; wrap the present; answer the phone; listen to the music; follow the path;
    enter the room; order a pizza; remember the song; wonder about the noise; gather some wood;
    deliver the parcels; discover a cave; cover the pot; explain the rules; enjoy the party; stay at
    home; pray in the church; destroy the old papers; obey the rules; arrive at noon; dance in the
    hall; decide on a price; escape from the rain; invite the cousins; notice the smell; promise to
    be careful; raise the flag; save some money; share the sandwich; taste the sauce; use a hammer;
    vote in the morning; wave at the train; accept the gift; add some salt; boil the eggs; climb the
    hill; collect old coins; count the sheep; cross the street; dress the child; fill the bucket;
    guess the answer; join the choir; knock at the gate; lock the shed; miss the bus; pack the
    suitcase; pass the station; point at the tower; pour the milk; pull the cart; push the button;
    reach the village; repeat the question; rest in the shade; return the book; sail to the island;
    shout for help; sign the form; touch the stone; wait for the bus; warn the children; whisper a
    secret; work in the garden; jump over the stream; look at the stars; ask for advice; live near
    the river; love the mountains; want a glass of water; talk about the weather; go to the beach;
    make a cake; take a photo; come to the meeting; run to the station; begin the lesson; swim in
    the lake; sing an old song; drink some tea; ring the bell; sit on the bench; give the dog a
    bone; see a rainbow; eat an apple; know the way; grow tomatoes; throw the stick; fly a kite;
    draw a horse; drive to work; ride a bicycle; write a poem; speak to the manager; break the
    glass; choose a colour; wear a hat; forget the keys; hide the treasure; find a coin; feed the
    hens; meet a friend; hold the ladder; stand in the queue; lose the game; leave the office; sleep
    in a tent; keep the change; sweep the floor; feel the cold; send a postcard; lend a pencil;
    spend the money; build a wall; buy some bread; bring the chairs; think about the plan; catch a
    fish; teach the class; sell the house; tell a story; hear a noise; say a few words; pay the
    bill; dig a hole; win the race
""")

SELVES = {
    "himself": _words("king boy man uncle monk waiter prince father"),
    "herself": _words("queen girl woman aunt nun waitress princess mother"),
    "themselves": _words("children men women students soldiers doctors sisters brothers"),
}
DONE_TO = _words("""
    hurt see wash blame help dress hide teach defend admire praise draw describe introduce forgive
    surprise paint cover protect
""")

PREDICATES = _phrases("""
    is hungry; is tired; is at home; is in the garden; is ready; is ill; is famous; is very old; is
    afraid of spiders; is good at chess; is late again; is from Spain; is alone; is on the roof; is
    busy today; is rich; is behind the door; is the winner; is a good cook; is married; is angry
    with us; is proud; is wrong; is in the kitchen; is happy; is taller than me; is strong; is on
    holiday; is waiting outside; is reading a book; is playing in the yard; is looking for a job;
    was asleep; was here yesterday; was in the car; was right; was surprised; was at the party; was
    born in May; was sad; was born in London; was in hospital; was a soldier; was a friend of mine;
    was cold; was thirsty; was the first to arrive; was working late; was sitting by the fire; was
    on the train; was lucky; was shy; was in danger; was bored; was lost in the forest; was polite;
    can swim; can drive a car; can speak French; can play the drums; can read this sign; can ride a
    horse; can see the ships; can open the box; can sing well; can bake bread; can come tomorrow;
    can hear the bells; can stay for dinner; can fix the roof; can help us; can wait until Monday;
    can run fast; can carry the piano; can pay the rent; can skate; can keep a secret; can whistle;
    will come back; will be late; will win the race; will buy the house; will write a letter; will
    move to Paris; will call tonight; will sell the boat; will sleep well; will eat the cake; will
    sing tonight; will find the key; will meet the mayor; will need an umbrella; will answer soon;
    will pass the exam; will travel by train; will cook dinner; will be there; will like the film;
    will wash the dishes; will stay a week; will tell the truth; will wear a tie; will join the
    club; has finished the work; has lost a shoe; has seen the sea; has eaten the soup; has found a
    coin; has left the house; has broken a leg; has read the news; has paid the bill; has met the
    king; has written a book; has bought a farm; has taken the bus; has heard the song; has closed
    the shop; has forgotten the date; has been to China; should wait; should rest; should go home;
    should see this; should buy a map; should drink more water; should leave now; should learn to
    swim; should take the train; should read the letter; should apologise; should wear a helmet
""")


def syntax(
    tokenizer: PreTrainedTokenizerBase,
    *,
    n: int = 0,
    shots: int = 1,
    seed: int = 0,
    same_form: bool = True,
    max_new_tokens: int = 24,
    bos: Bos = "auto",
) -> Task:
    """Syntax: agreement, tense, plural, pronoun, question and negation, behind one solved item."""
    return build(
        "syntax",
        items(),
        tokenizer,
        n=n,
        shots=shots,
        seed=seed,
        same_form=same_form,
        max_new_tokens=max_new_tokens,
        bos=bos,
    )


def items() -> list[Item]:
    """All items, form after form."""
    return [*_agreement(), *_tense(), *_plural(), *_pronoun(), *_question(), *_negation()]


def _agreement() -> list[Item]:
    found = []
    for place, (phrase, person) in enumerate(zip(PHRASES, cycle(PEOPLE), strict=False)):
        one = place % 2 == 0
        subject, do = (person, "does") if one else (plural(person), "do")
        question = f"I {phrase}. What {do} the {subject} do?"
        verb, _, rest = phrase.partition(" ")
        answer = f"The {subject} {third_person(verb) if one else verb} {rest}."
        found.append(Item(question, answer, "agreement", f"agreement/{phrase}"))
    return found


def _tense() -> list[Item]:
    found = []
    for phrase in PHRASES:
        verb, _, rest = phrase.partition(" ")
        question = f"Put into the past tense: Today I {phrase}."
        answer = f"Yesterday I {past_tense(verb)} {rest}."
        found.append(Item(question, answer, "tense", f"tense/{phrase}"))
    return found


def _plural() -> list[Item]:
    pairs = [*((word, plural(word)) for word in NOUNS[:110]), *PLURALS]
    return [
        Item(f"What is the plural of {word}?", answer, "plural", f"plural/{word}")
        for word, answer in pairs
    ]


def _pronoun() -> list[Item]:
    found = []
    people = [(person, pronoun) for pronoun, group in SELVES.items() for person in group]
    for place, (person, pronoun) in enumerate(people):
        for turn in range(6):  # verbs 0, 3, 6, ... further on for each next person
            verb = DONE_TO[(place + 3 * turn) % len(DONE_TO)]
            question = f"Who did the {person} {verb}, if nobody else?"
            answer = f"The {person} {past_tense(verb)} {pronoun}."
            found.append(Item(question, answer, "pronoun", f"pronoun/{person}/{verb}"))
    return found


def _question() -> list[Item]:
    found = []
    for predicate, person in zip(PREDICATES, cycle(PEOPLE), strict=False):
        verb, _, rest = predicate.partition(" ")
        question = f"Turn this sentence into a question: The {person} {predicate}."
        answer = f"{verb.capitalize()} the {person} {rest}?"
        found.append(Item(question, answer, "question", f"question/{predicate}"))
    return found


def _negation() -> list[Item]:
    found = []
    for predicate, person in zip(PREDICATES, cycle(PEOPLE[::-1]), strict=False):
        verb, _, rest = predicate.partition(" ")
        question = f"Make this sentence negative: The {person} {predicate}."
        answer = f"The {person} {'cannot' if verb == 'can' else f'{verb} not'} {rest}."
        found.append(Item(question, answer, "negation", f"negation/{predicate}"))
    return found


def third_person(verb: str) -> str:
    """The verb as it follows he or she.

    >>> third_person("walk"), third_person("wash"), third_person("go"), third_person("carry")
    ('walks', 'washes', 'goes', 'carries')
    """
    if verb.endswith("o"):
        return verb + "es"
    return plural(verb)  # verbs take their s by the rule of nouns


def past_tense(verb: str) -> str:
    """The past tense of a verb, regular or not.

    >>> past_tense("walk"), past_tense("go"), past_tense("hurt")
    ('walked', 'went', 'hurt')
    """
    if verb == "hurt":
        return verb
    return dict(PASTS).get(verb) or past(verb)
