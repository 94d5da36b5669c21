"""Decision-making: what is the best place to go to?

    Where should Anna go to buy bread?                  →  bakery
    Peter wants to see lions. Where should Peter go?    →  zoo

Two forms of question, each with its own wishes. No wish comes twice; the names go round and are no
part of the content. Shops for one kind of goods (shoe store, toy store) are one answer, store, and
places with two spellings (theatre) are left out. All items are our own.

Two other forms were tried with the bundled model and dropped: the thing to use ("Peter wants to
draw a straight line. What should Peter use?", .37 to .47 correct) and the person to call ("Laura
has a toothache. Who should Laura call?", .33 to .47).
"""

from __future__ import annotations

from itertools import cycle

from headcount.tasks.cognitive.item import Item

QUESTIONS = {
    "where": "Where should {name} go to {wish}?",
    "wants": "{name} wants to {wish}. Where should {name} go?",
}


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _table(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Lines of `place: wish; wish; …`, where a wish may run on into the next line."""
    rows = []
    for row in text.strip().split("|"):
        place, _, wishes = " ".join(row.split()).partition(": ")
        rows.append((place, tuple(wish.strip() for wish in wishes.split(";"))))
    return tuple(rows)


NAMES = _words("Anna Peter Laura Daniel Emma James Lucy Robert Julia Simon Helen Paul Maria")
PLACES = _table("""
    bakery: buy bread; buy fresh rolls; order a birthday cake; buy croissants; buy a warm loaf; buy
        muffins; buy a baguette; buy doughnuts; order a wedding cake; buy a fresh bun; buy apple
        tarts
    | library: borrow a book; read old newspapers; return a borrowed novel; study in silence; look
        for a rare book; borrow a cookbook; read an encyclopedia; renew a borrowed book; borrow a
        book of fairy tales; get a reader's card
    | hospital: have an operation; see a surgeon; get an X-ray; have a baby; have a broken leg
        treated; visit a sick uncle; be treated after an accident; have a heart operation; give
        blood; have a tumour removed; see a newborn cousin
    | bank: open an account; withdraw money; ask for a loan; deposit a cheque; get a mortgage; save
        money; exchange dollars for euros; cash a cheque; pay in a large sum; ask about interest
        rates
    | airport: catch a plane; fly to another country; board a flight to Rome; watch planes take off;
        meet a friend who comes by plane; catch a flight; check in luggage for a flight; travel by
        plane
    | beach: swim in the sea; build a sandcastle; collect seashells; surf the waves; lie on the
        sand; get a suntan; hear the waves; look for crabs; play volleyball on the sand; watch the
        tide come in; walk barefoot by the sea
    | museum: see ancient statues; look at dinosaur bones; see a mummy; see old paintings; look at
        Roman coins; see a famous sculpture; learn about ancient Egypt; see a suit of armour; see a
        Viking sword; look at fossils; see a work by Picasso
    | cinema: watch a new film; see a movie on a big screen; watch a film premiere; eat popcorn and
        see a movie
    | zoo: see lions; see an elephant; look at the monkeys; see giraffes; see a tiger; look at the
        zebras; see a polar bear; see a rhinoceros; look at gorillas; see kangaroos; see a
        crocodile; see pandas
    | school: learn to read; learn the alphabet; meet the teacher; learn with other children; learn
        spelling; learn to write; hand in homework; sit in a classroom; learn sums
    | university: study law; get a degree; study medicine; become a professor; attend a lecture;
        study philosophy; study engineering; get a doctorate; study history with professors; become
        a scientist
    | restaurant: eat dinner; order a steak; have a three-course meal; try Italian food; eat sushi;
        order lobster; taste Mexican food; have a romantic dinner; eat out with friends; order
        spaghetti; celebrate with a fine meal; try Chinese food
    | gym: lift weights; run on a treadmill; build muscles; do a workout; use an exercise bike; get
        fit; train with dumbbells; do push-ups; join a fitness class; use a rowing machine
    | park: walk the dog; feed the ducks; have a picnic; fly a kite; sit on a bench under the trees;
        jog in the fresh air; throw a frisbee; ride a bike on quiet paths
    | playground: play on the swings; go down a slide; ride the seesaw; climb the monkey bars; play
        in a sandbox
    | pharmacy: buy medicine; pick up a prescription; buy aspirin; buy cough syrup; get painkillers;
        buy antibiotics; buy vitamins; buy cold tablets; buy eye drops; buy sleeping pills; buy
        bandages
    | post office: send a letter; buy stamps; mail a parcel; send a postcard; mail a package; send a
        registered letter; mail a birthday card
    | stadium: watch a football match; cheer for a team; see a big baseball game; watch the cup
        final; see a soccer game; watch a rugby match
    | church: attend mass; sing hymns; hear a sermon; speak to the priest; be baptised; pray; light
        a candle for the dead; hear a choir sing psalms; hear the organ; take communion; confess
        sins; speak to the vicar
    | mosque: hear the imam; attend Friday prayers; pray towards Mecca; read the Koran with others
    | farm: milk a cow; feed the pigs; collect eggs from the hens; ride on a tractor; see lambs;
        pick corn; see chickens and cows; help with the harvest; buy fresh eggs
    | hotel: rent a room for the night; stay overnight in a strange city; book a suite; sleep while
        on a business trip; stay during a holiday
    | pool: swim laps; practise the backstroke; learn to swim; jump off a diving board; swim indoors
    | salon: get a haircut; get blonde highlights; have a manicure; get a new hairstyle; get a perm
    | supermarket: buy milk and eggs; buy food for the week; buy rice; buy cereal; buy sugar; buy
        groceries; buy frozen peas; buy flour and butter; buy canned soup; buy cheese; buy toilet
        paper; buy pasta and tomatoes; buy orange juice
    | store: buy a hammer; buy boots; buy a winter coat; buy a sofa; buy a shirt; buy a jigsaw
        puzzle; buy a lamp; buy a pair of jeans; buy a television; buy a teddy bear; buy batteries;
        buy a new phone; buy a backpack; buy a blanket; buy a vacuum cleaner; buy a hat; buy a
        necklace; buy a bicycle; buy an umbrella
    | bookstore: buy a novel; buy a dictionary; buy a book of poems; have a new novel signed; buy a
        travel guide; buy a crime novel
    | gas station: fill the tank of the car; buy fuel; fill up before a long drive; buy petrol
    | police station: report a theft; report a stolen car; confess to a crime; report a burglary;
        report a missing child; hand in a stolen wallet
    | garden: plant tulips; water the flowers; pull out weeds; grow carrots; pick roses; plant
        seeds; trim the hedge; grow tomatoes; dig a flower bed
    | kitchen: cook soup; bake a pie; wash the dishes; boil an egg; fry an onion; make a sandwich;
        peel potatoes; make breakfast; roast a chicken; bake cookies; make tea; chop onions; heat up
        some soup; cook rice
    | bathroom: take a shower; take a hot bath; wash both hands; flush the toilet; brush some teeth;
        look for the toothbrush; shave
    | bedroom: take a nap; sleep until morning; change into pyjamas; make the bed; lie down; rest on
        a soft pillow; go to bed; get dressed in the morning
    | forest: pick wild mushrooms; see wild deer; gather firewood; walk among tall trees; hear an
        owl; see foxes and squirrels; camp under the trees; listen to wild birds; see wolves in the
        wild; cut down a pine
    | desert: see wild camels; see sand dunes; see a cactus in the wild; walk where it never rains;
        ride a camel
    | casino: play roulette; play the slot machines; gamble; play blackjack for money; play poker
        for money; bet on the dice; win a jackpot; play baccarat
    | aquarium: see sharks behind glass; look at jellyfish; see sea horses; watch tropical fish; see
        an octopus; see dolphins; look at stingrays; see a giant squid; see seals in a tank
    | circus: see clowns; watch acrobats; see a lion tamer; watch the trapeze artists; see a
        juggler; see elephants do tricks; see a tightrope walker
    | bar: drink a beer; order a cocktail; drink whisky with friends; have a glass of wine; drink a
        martini
    | embassy: apply for a visa; get help from diplomats abroad; meet the ambassador
    | prison: visit an inmate; see a convict in a cell; interview a jailed thief; visit a murderer
    | cemetery: visit a grave; lay flowers on a tomb; see where the dead are buried; attend a burial
    | court: attend a trial; hear the judge; testify as a witness; sue a neighbour; hear the jury's
        verdict
    | vineyard: pick grapes; see how wine is made
    | observatory: look through a giant telescope; study the stars with astronomers
    | amusement park: ride a roller coaster; ride the Ferris wheel; ride a merry-go-round; eat
        cotton candy and ride bumper cars
    | lake: row a boat; fish for trout; go canoeing; skip stones on still water
    | mountain: climb to a snowy summit; climb with ropes to a high peak; ski down a snowy slope
    | office: do paperwork; meet the boss; attend a business meeting; work at a desk
    | laundromat: wash a heap of clothes; use a coin washing machine; dry wet laundry
    | train station: catch an express to London; buy a railway ticket; wait on the platform
""")


def items() -> list[Item]:
    """All items, place after place; the forms take turns."""
    forms, names = cycle(QUESTIONS), cycle(NAMES)
    found = []
    for place, wishes in PLACES:
        for wish in wishes:
            form, name = next(forms), next(names)
            question = QUESTIONS[form].format(name=name, wish=wish)
            found.append(Item(question, place, form, wish))
    return found
