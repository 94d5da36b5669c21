"""Semantic Understanding: what does a word mean?

    What kind of thing is an apple?     →  fruit
    A violin is a kind of what?         →  instrument

Two forms of question about the kind that a thing belongs to, each with its own things. There is no
kind "animal" beside bird, fish, insect and dog, so that one answer is right. All items are our own.

Opposites ("What is the opposite of hot?") were tried with the bundled model and dropped: .52
correct alone, .40 beside the kinds; it often gives the word back as it is.
"""

from __future__ import annotations

from itertools import cycle

from headcount.tasks.cognitive.item import Item

QUESTIONS = {
    "thing": "What kind of thing is {thing}?",
    "kind": "{thing} is a kind of what?",
}


def _kinds(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Lines of `kind: members`; a line without a kind continues the one above."""
    rows: list[tuple[str, tuple[str, ...]]] = []
    for line in text.strip().splitlines():
        kind, _, members = line.rpartition(":")
        rows.append((kind.strip() or rows[-1][0], tuple(members.split())))
    return tuple(rows)


# Things that are counted: "an apple".
COUNTED = _kinds("""
    fruit: apple banana pear peach plum cherry mango lemon grape melon strawberry raspberry
        blueberry apricot pineapple papaya fig cranberry blackberry nectarine tangerine
        watermelon pomegranate guava lychee persimmon mandarin quince clementine
    vegetable: carrot potato onion cabbage cauliflower turnip radish leek parsnip artichoke cucumber
        pumpkin pea bean
    bird: sparrow eagle owl robin parrot pigeon crow hawk falcon seagull swan duck goose penguin
        ostrich flamingo pelican woodpecker raven dove vulture stork heron canary peacock magpie
        nightingale cuckoo finch pheasant albatross toucan puffin quail
        partridge condor emu
    fish: salmon trout tuna cod herring mackerel sardine halibut carp eel haddock anchovy flounder
        sturgeon piranha barracuda shark
    insect: ant bee wasp beetle butterfly moth mosquito grasshopper dragonfly ladybird termite
        cockroach locust flea housefly hornet bumblebee
    tree: oak pine maple birch willow elm cedar spruce fir beech poplar sycamore redwood
        cypress eucalyptus sequoia larch aspen hawthorn alder rowan baobab
    flower: rose tulip daisy lily orchid daffodil carnation marigold dandelion iris peony petunia
        pansy poppy chrysanthemum crocus hyacinth snowdrop geranium begonia magnolia primrose
        bluebell azalea dahlia
    tool: hammer saw screwdriver wrench drill chisel axe shovel spade rake crowbar hoe trowel
        hacksaw mallet spanner sickle pickaxe
    instrument: piano guitar violin flute drum trumpet cello harp clarinet saxophone trombone banjo
        oboe tuba accordion ukulele mandolin bassoon tambourine xylophone harmonica viola
        piccolo lute bugle
    vehicle: car bus truck lorry van tram bicycle motorcycle scooter taxi tractor ambulance jeep
        limousine
    furniture: chair table sofa bed desk wardrobe cupboard bookcase stool armchair bench dresser
        couch cabinet sideboard
    clothing: shirt coat jacket skirt dress sweater sock jumper cardigan blouse scarf raincoat glove
    weapon: sword gun rifle spear dagger pistol cannon bomb missile grenade revolver
    dog: poodle beagle terrier labrador dalmatian chihuahua greyhound spaniel rottweiler dachshund
        collie pug corgi
    dance: waltz tango polka foxtrot samba rumba
    shape: circle square triangle rectangle pentagon hexagon octagon oval cube sphere cone cylinder
""")
# Things that are not: "iron".
UNCOUNTED = _kinds("""
    vegetable: broccoli spinach lettuce celery asparagus kale
    metal: iron gold silver copper tin zinc aluminium nickel steel platinum titanium bronze brass
        tungsten chromium cobalt magnesium uranium lithium
    sport: football tennis basketball hockey rugby cricket baseball golf volleyball badminton
        swimming boxing wrestling skiing archery judo karate gymnastics fencing rowing lacrosse
        softball surfing handball bowling diving sailing
    drink: tea coffee milk lemonade beer wine cider whisky vodka cocoa rum gin champagne cola brandy
        tequila
    disease: measles malaria cholera influenza tuberculosis polio smallpox pneumonia diabetes cancer
        typhoid leprosy asthma mumps hepatitis rabies bronchitis arthritis scurvy
    cheese: cheddar brie mozzarella parmesan gouda feta camembert ricotta edam
    pasta: spaghetti macaroni lasagne ravioli penne linguine fettuccine tortellini
    fabric: cotton silk wool linen velvet denim satin polyester nylon
    spice: cinnamon nutmeg turmeric paprika cumin saffron cardamom
    gas: oxygen nitrogen hydrogen helium methane neon argon
    planet: Mars Venus Jupiter Saturn Neptune Uranus
    religion: Christianity Islam Buddhism Hinduism Judaism Sikhism
    science: physics chemistry biology geology astronomy botany zoology
    emotion: anger joy fear sadness happiness envy jealousy grief disgust
""")


def items() -> list[Item]:
    """All items, kind after kind; the forms take turns."""
    things = [
        *((f"{_article(thing)} {thing}", thing, kind) for kind, row in COUNTED for thing in row),
        *((thing, thing, kind) for kind, row in UNCOUNTED for thing in row),
    ]
    return [
        Item(_sentence(QUESTIONS[form].format(thing=phrase)), kind, form, thing)
        for (phrase, thing, kind), form in zip(things, cycle(QUESTIONS), strict=False)
    ]


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" and not noun.startswith(("eu", "uk", "un")) else "a"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
