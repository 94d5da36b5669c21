"""Retrieval: which of the facts just told is asked for?

    Anna lives in Rome. Anna works as a nurse. Anna bought a lamp. What is Anna's job?  →  nurse

Three facts about one person, in any order, and a question about one of them. The forms are the ten
attributes (job, town, pet, …); the content is the attribute and its value, and the person and the
other facts are drawn once for each content. The values of the other facts are the foils.

All items are our own. The bundled model wants an example of nearly every attribute (ten shots).
Fewer shots, or four facts instead of three, cost it some accuracy, and so do facts that all say
"Anna's job is …"; facts about several people are too hard for it.
"""

from __future__ import annotations

import random

from headcount.tasks.cognitive.item import Item
from headcount.tasks.ioi import NAMES

FACTS = 3  # in each question


def _list(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split(","))


# attribute: the fact, the question. "a" becomes "an" where the value asks for it.
ATTRIBUTES = {
    "job": ("{name} works as a {value}.", "What is {name}'s job?"),
    "home": ("{name} lives in {value}.", "Where does {name} live?"),
    "birth": ("{name} was born in {value}.", "Where was {name} born?"),
    "pet": ("{name} has a pet {value}.", "What pet does {name} have?"),
    "food": ("{name} likes to eat {value}.", "What does {name} like to eat?"),
    "instrument": ("{name} plays the {value}.", "What instrument does {name} play?"),
    "colour": ("{name}'s favourite colour is {value}.", "What is {name}'s favourite colour?"),
    "hobby": ("{name}'s hobby is {value}.", "What is {name}'s hobby?"),
    "subject": ("{name} studied {value}.", "What did {name} study?"),
    "purchase": ("{name} bought a {value}.", "What did {name} buy?"),
}

# No value belongs to two attributes, so that a question has one answer.
VALUES = {
    "job": _list("""
        nurse, carpenter, teacher, lawyer, baker, plumber, pilot, dentist, farmer, butcher, tailor,
        barber, waiter, cashier, mechanic, electrician, engineer, architect, journalist,
        photographer, librarian, surgeon, pharmacist, accountant, banker, secretary, translator,
        chemist, gardener, florist, fisherman, sailor, soldier, judge, detective, firefighter,
        actor, dancer, singer, painter, sculptor, novelist, poet, editor, printer, miner, welder,
        builder, roofer, blacksmith, jeweller, potter, weaver, cook, cleaner, porter, guard,
        driver, postman, programmer, astronaut, clown, magician, priest, shepherd, receptionist
    """),
    "home": _list("""
        Rome, Paris, Berlin, Madrid, Vienna, Prague, Warsaw, Athens, Lisbon, Dublin, Oslo, Helsinki,
        Stockholm, Copenhagen, Budapest, Brussels, Amsterdam, Zurich, Geneva, Milan, Naples, Venice,
        Florence, Barcelona, Seville, Hamburg, Munich, Cologne, London, Manchester, Liverpool,
        Glasgow, Edinburgh, Moscow, Istanbul, Cairo, Nairobi, Lagos, Tokyo, Osaka, Beijing,
        Shanghai, Seoul, Bangkok, Mumbai, Delhi, Sydney, Melbourne, Toronto, Montreal, Boston,
        Chicago, Denver, Seattle, Houston, Dallas, Miami, Atlanta
    """),
    "birth": _list("""
        France, Italy, Spain, Germany, Poland, Sweden, Norway, Denmark, Finland, Iceland, Ireland,
        Portugal, Austria, Switzerland, Hungary, Romania, Bulgaria, Greece, Turkey, Russia, Ukraine,
        Egypt, Morocco, Kenya, Nigeria, Ghana, Ethiopia, Uganda, India, Pakistan, Nepal, China,
        Japan, Thailand, Vietnam, Indonesia, Malaysia, Iran, Iraq, Israel, Canada, Cuba, Jamaica,
        Brazil, Argentina, Chile, Peru, Colombia, Bolivia, Australia
    """),
    "pet": _list("""
        dog, cat, hamster, rabbit, parrot, canary, goldfish, turtle, tortoise, snake, lizard, gecko,
        iguana, ferret, mouse, rat, guinea pig, pony, donkey, goat, pig, duck, goose, hen, pigeon,
        dove, frog, toad, spider, chinchilla, hedgehog, monkey, fox, owl, crow, falcon, peacock,
        swan, llama, squirrel, crab, snail, poodle, terrier, beagle
    """),
    "food": _list("""
        pizza, pasta, rice, soup, salad, cheese, bread, butter, honey, chocolate, ice cream, yogurt,
        apples, bananas, grapes, cherries, strawberries, peaches, pears, plums, melons, lemons,
        mangoes, tomatoes, potatoes, carrots, onions, beans, peas, corn, spinach, cabbage, broccoli,
        mushrooms, olives, nuts, almonds, peanuts, eggs, bacon, ham, sausages, beef, lamb, salmon,
        tuna, shrimp, noodles, dumplings, pancakes, waffles, cookies, popcorn, pudding
    """),
    "instrument": _list("""
        piano, violin, cello, viola, guitar, banjo, harp, flute, clarinet, oboe, bassoon, trumpet,
        trombone, tuba, horn, saxophone, drums, organ, accordion, harmonica, mandolin, ukulele,
        lute, recorder, xylophone, tambourine, bagpipes, sitar, double bass, harpsichord
    """),
    "colour": _list("""
        red, blue, green, yellow, purple, pink, brown, black, white, grey, orange, gold, silver,
        violet, turquoise, crimson, scarlet, beige, indigo, magenta, maroon, lavender, navy, ivory,
        cream, amber
    """),
    "hobby": _list("""
        chess, tennis, football, golf, swimming, running, cycling, hiking, climbing, skiing,
        skating, sailing, rowing, surfing, diving, fishing, hunting, riding, boxing, wrestling,
        fencing, judo, yoga, dancing, singing, reading, writing, drawing, painting, pottery, sewing,
        knitting, weaving, cooking, baking, gardening, photography, astronomy, bird watching,
        juggling, camping, archery, basketball, volleyball, cricket, rugby
    """),
    "subject": _list("""
        history, geography, biology, chemistry, physics, mathematics, medicine, law, economics,
        philosophy, psychology, sociology, linguistics, literature, music, theology, politics,
        journalism, architecture, engineering, geology, botany, zoology, statistics, accounting,
        marketing, archaeology, anthropology, nursing, pharmacy, agriculture, education, design,
        French, German, Spanish, Latin, Greek, Russian, Chinese, Japanese, Arabic
    """),
    "purchase": _list("""
        lamp, book, ring, key, map, ball, coat, hat, cup, basket, watch, camera, ticket, bottle,
        pen, blanket, necklace, table, chair, sofa, bed, mirror, carpet, curtain, clock, candle,
        vase, knife, spoon, pan, kettle, oven, fridge, radio, phone, laptop, bicycle, car, boat,
        tent, rope, ladder, hammer, saw, shovel, bucket, broom, umbrella, suitcase, wallet, belt,
        scarf, shirt, dress, sweater, jacket, pillow, towel, brush, pencil, notebook, kite, doll
    """),
}


def items() -> list[Item]:
    """One item for each attribute and value."""
    return [_item(attribute, value) for attribute in VALUES for value in VALUES[attribute]]


def _item(attribute: str, value: str) -> Item:
    rng = random.Random(f"retrieval {attribute} {value}")
    name = rng.choice(NAMES)
    others = rng.sample([other for other in ATTRIBUTES if other != attribute], FACTS - 1)
    told = {attribute: value} | {other: rng.choice(VALUES[other]) for other in others}
    passage = [_fact(name, one, told[one]) for one in rng.sample(list(told), FACTS)]
    return Item(
        question=" ".join([*passage, ATTRIBUTES[attribute][1].format(name=name)]),
        answer=value,
        template=attribute,
        content=f"{attribute}/{value}",
        foils=tuple(told[other] for other in others),
    )


def _fact(name: str, attribute: str, value: str) -> str:
    fact = ATTRIBUTES[attribute][0]
    if value[0] in "aeiou" and value != "ukulele":
        fact = fact.replace(" a {value}", " an {value}")
    return fact.format(name=name, value=value)
