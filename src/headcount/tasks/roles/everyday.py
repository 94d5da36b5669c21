"""What everyone knows: the tables behind the Common Sense questions.

A row is `answer: clue; clue; …`; rows are parted by "|". Answers that could serve for each other's
clues share a line of ALIKE, so that none is a wrong option for another. All are our own.
"""

from __future__ import annotations

QUESTIONS = {
    "kind": "What kind of thing is {clue}?",
    "use": "What do you use to {clue}?",
    "place": "Where do you {clue}?",
    "person": "Who {clue}?",
    "animal": "Which animal {clue}?",
    "colour": "What colour {clue}?",
    "material": "What {clue} usually made of?",
    "feeling": "How do you feel when {clue}?",
    "body": "Which part of the body {clue}?",
    "action": "What do you do with {clue}?",
}

KINDS = """
    bird: a robin; an eagle; a sparrow; an owl; a penguin; a pigeon; a parrot; a swan; a crow; an
        ostrich; a seagull; a flamingo; a hawk; a peacock
    | fish: a salmon; a trout; a tuna; a cod; a goldfish; a herring; a sardine; a carp
    | insect: an ant; a bee; a wasp; a mosquito; a beetle; a butterfly; a grasshopper; a cockroach;
        a moth
    | reptile: a lizard; a crocodile; a tortoise; a cobra; an iguana
    | dog: a poodle; a bulldog; a terrier; a beagle; a collie; a dachshund; a greyhound
    | fruit: an apple; a banana; a pear; a grape; a cherry; a peach; a lemon; a mango; a strawberry;
        a melon; a plum; a pineapple
    | vegetable: a carrot; a potato; a cabbage; an onion; a cucumber; a turnip; a leek; a
        cauliflower; a radish
    | tree: an oak; a birch; a willow; a maple; a beech; an elm; a poplar
    | flower: a rose; a tulip; a daisy; a lily; a daffodil; an orchid; a sunflower; a carnation
    | tool: a hammer; a screwdriver; a wrench; a saw; a chisel; a shovel; a rake; a pair of pliers
    | weapon: a sword; a rifle; a pistol; a spear; a cannon; a dagger; a machine gun
    | vehicle: a car; a bus; a truck; a van; a tractor; a taxi; a motorcycle; an ambulance
    | boat: a canoe; a ferry; a yacht; a kayak; a gondola
    | musical instrument: a piano; a violin; a guitar; a trumpet; a flute; a cello; a clarinet; a
        trombone; a harp; a saxophone; a banjo
    | furniture: a chair; a table; a sofa; a bookcase; a wardrobe; an armchair; a desk
    | clothing: a shirt; a coat; a skirt; a sweater; a jacket; a blouse; a pair of jeans
    | shape: a circle; a square; a triangle; a rectangle; a pentagon; a hexagon
    | building: a church; a castle; a hotel; a cathedral; a skyscraper; a barn; a cottage
    | dance: the waltz; the tango; the polka; the foxtrot; the samba
    | metal: gold; silver; iron; copper; steel; zinc; aluminium
    | drink: tea; coffee; lemonade; beer; wine; orange juice; whisky; hot chocolate
    | sport: football; tennis; basketball; hockey; golf; baseball; volleyball; rugby
    | game: chess; poker; hide-and-seek; bingo
    | colour: red; blue; yellow; purple; brown; pink
    | meat: beef; pork; ham; bacon; veal
    | cheese: cheddar; mozzarella; parmesan; gouda
    | fabric: silk; cotton; linen; velvet; denim; nylon
    | month: January; June; September; November; February; July
    | day: Monday; Tuesday; Thursday; Saturday; Sunday
    | season: winter; summer; autumn
    | language: French; German; Spanish; Italian; Japanese
    | emotion: anger; fear; joy; sadness; jealousy
    | disease: measles; cholera; malaria; influenza
    | spice: cinnamon; nutmeg; turmeric; paprika
    | planet: Mars; Jupiter; Saturn; Venus
    | number: seven; twelve; twenty; a hundred
"""

USES = """
    scissors: cut paper; cut out a paper star; trim your fringe
    | knife: slice bread; chop an onion; carve a roast; butter toast
    | saw: cut down a tree; cut a plank in two
    | hammer: drive in a nail; bang a tent peg into the ground
    | screwdriver: turn a screw; tighten a loose screw
    | shovel: dig a hole; clear snow from the path; move a heap of sand
    | key: unlock the front door; open a padlock
    | pen: sign a contract; write with ink
    | pencil: write so that you can rub it out; make a sketch in grey lines
    | eraser: rub out a pencil mark; remove a mistake in pencil
    | ruler: draw a straight line; measure the length of a pencil
    | broom: sweep the floor; sweep up dead leaves
    | vacuum cleaner: suck dust out of the carpet; clean a carpet with electricity
    | mop: wipe a wet floor; wash the kitchen floor
    | towel: dry yourself after a shower; dry your wet hands
    | umbrella: stay dry in the rain; keep the rain off your head
    | toothbrush: brush your teeth; clean your teeth at night
    | comb: untangle your hair; part your hair neatly
    | soap: wash your hands; get dirt off your skin
    | shampoo: wash your hair; get your hair clean in the shower
    | razor: shave your beard; shave your legs
    | needle: sew on a button; mend a torn sock with thread
    | iron: smooth a wrinkled shirt; press your trousers
    | thermometer: measure your temperature; find out how hot it is
    | scale: weigh yourself; find out how heavy a parcel is
    | clock: see what time it is at home; wake up at seven by its alarm
    | calendar: look up which day of the week it is; plan the days of the month
    | compass: find north; keep your direction in the desert
    | map: plan a route through a strange city; find the way to a village
    | telescope: look at the moon and the stars; see the rings of Saturn
    | microscope: look at bacteria; see tiny cells
    | camera: take photographs; shoot holiday pictures
    | telephone: call a friend; speak to someone far away
    | radio: listen to the news without pictures; tune in to a music station
    | oven: bake a cake; roast a turkey
    | kettle: boil water for tea; heat water for a cup of tea
    | fridge: keep milk cold; keep food cool
    | toaster: make toast; brown a slice of bread
    | corkscrew: open a bottle of wine; pull out a cork
    | spoon: eat soup; stir your tea; eat ice cream from a bowl
    | fork: eat spaghetti; pick up a piece of meat from your plate
    | ladder: climb up to the roof; reach a high window from outside
    | rope: tie up a boat; pull a car out of the mud
    | bucket: carry water from the well; hold water for mopping
    | candle: light a room without electricity; decorate a birthday cake with small flames
    | matches: light a fire; strike a flame
    | torch: see in a dark cave; shine a beam of light at night
    | glue: stick two pieces of paper together; repair a broken vase
    | lawnmower: cut the grass; mow the lawn
    | watering can: water the flowers; pour water on the plants
    | fishing rod: catch a trout; catch fish from a pier
    | parachute: land safely after jumping from a plane; fall slowly from the sky
    | pillow: rest your head in bed; make a soft place for your head
    | blanket: keep warm in bed; cover yourself on a cold night
    | mirror: see your own face; check how you look
    | calculator: add up large numbers; work out a long sum by machine
    | stamp: pay for posting a letter; send a postcard by mail
    | bandage: cover a wound; wrap a bleeding finger
    | tent: sleep outdoors at a campsite; camp in the forest
    | helmet: protect your head on a bicycle; protect your head on a building site
"""

PLACES = """
    library: borrow books; return a book that you have borrowed
    | bakery: buy fresh bread; buy rolls in the morning
    | hospital: have an operation; visit a patient after surgery
    | pharmacy: buy medicine; pick up a prescription
    | bank: open a savings account; ask for a loan
    | post office: post a parcel; buy stamps
    | airport: board a plane; check in for a flight
    | train station: wait for a train; find a railway platform
    | harbour: see ships unload; moor a boat
    | cinema: watch a film on a big screen; eat popcorn and see a new movie
    | theatre: see actors on a stage; watch a play by Shakespeare
    | museum: look at dinosaur bones; see ancient statues
    | zoo: see lions in cages; look at giraffes and elephants
    | school: sit in class as a child; learn to read and write
    | university: study for a degree; hear a professor lecture
    | church: hear a sermon on Sunday; attend mass
    | restaurant: order a meal from a waiter; read the menu and order dinner
    | hotel: rent a room for the night; stay on a business trip
    | gym: lift weights; run on a treadmill
    | stadium: watch a big football match; cheer with thousands of fans
    | beach: build a sandcastle; collect seashells; lie in the sand by the sea
    | pool: jump off a diving board; swim lengths
    | forest: pick wild mushrooms; walk among a thousand trees
    | farm: milk cows; see pigs and a tractor
    | desert: see camels and sand dunes; ride a camel for days without rain
    | mountain: climb to the summit; ski down the slopes
    | kitchen: cook dinner; wash the dishes; fry an egg at home
    | bathroom: take a shower; brush your teeth at home
    | bedroom: sleep at night; keep your pyjamas
    | garage: park the car at home; keep the car at night
    | cemetery: visit a grave; bury the dead
    | prison: lock up criminals; meet convicts behind bars
    | court: face a judge; hear the jury give its verdict
    | casino: play roulette; gamble for money
    | circus: see clowns and acrobats; watch a man tame lions in a ring
    | playground: go down a slide as a child; sit on a swing
    | supermarket: push a trolley past the shelves; buy food for the whole week
    | petrol station: fill up the car; buy fuel
    | police station: report a theft; see an officer about a crime
    | hairdresser: get your hair cut; have your hair dyed
    | butcher: buy sausages; buy a pound of fresh mince
    | dentist: have a tooth pulled; have a cavity filled
    | optician: have your eyes tested; buy a pair of glasses
    | vineyard: pick grapes; see how wine grapes grow
    | aquarium: see sharks behind glass; watch tropical fish in tanks
    | oven: put a cake to bake; roast a chicken
    | freezer: keep ice cream; store frozen peas
    | wardrobe: hang your shirts; keep your dresses at home
    | wallet: carry banknotes; keep your credit cards
"""

PEOPLE = """
    firefighter: puts out fires; comes when a house is burning; drives a fire engine
    | police officer: arrests thieves; writes speeding tickets; handcuffs criminals
    | doctor: examines sick people; writes prescriptions; tells patients what is wrong with them
    | surgeon: operates on patients; performs a heart transplant
    | nurse: looks after patients on a ward; helps the doctor and gives injections
    | dentist: fills teeth; pulls out a rotten tooth; checks your teeth
    | vet: treats sick animals; cures dogs and cats
    | teacher: teaches children at school; gives pupils homework; marks spelling tests
    | professor: lectures at a university; examines university students
    | baker: bakes bread; gets up at night to make rolls
    | butcher: sells meat; makes sausages
    | chef: runs the kitchen of a restaurant; cooks the meals in a hotel
    | waiter: brings the food to your table; takes your order in a restaurant
    | farmer: milks cows; grows wheat; drives a tractor over the fields
    | fisherman: catches fish for a living; goes out to sea with nets
    | gardener: plants flowers in the park; trims hedges for a living
    | pilot: flies a plane; lands a jet
    | astronaut: travels to space; walks on the moon; lives on a space station
    | captain: commands a ship; is the last to leave a sinking ship
    | soldier: fights in a war; serves in the army
    | judge: sentences criminals in court; passes sentence in a trial
    | lawyer: defends you in court; advises clients about the law
    | plumber: repairs leaking pipes; unblocks the drain
    | electrician: repairs the wiring in a house; installs sockets and switches
    | carpenter: makes things out of wood; builds wooden cabinets
    | mechanic: repairs cars; mends car engines
    | tailor: makes suits; shortens trousers for customers
    | hairdresser: cuts your hair; dyes hair for a living
    | painter: paints portraits; makes pictures in oil
    | photographer: takes pictures at a wedding; works with a camera and a flash
    | sculptor: carves statues; makes figures out of marble
    | author: writes novels; wins a prize for a book
    | journalist: writes for a newspaper; reports the news
    | singer: sings songs on stage; performs an opera with a trained voice
    | conductor: leads an orchestra; stands before the orchestra with a baton
    | actor: plays roles in films; learns lines for a play
    | librarian: lends books; puts books back on library shelves
    | postman: delivers letters; brings the mail to your house
    | priest: reads mass; hears confessions
    | king: wears a crown; rules a kingdom
    | thief: steals things; picks pockets; breaks into houses at night
    | detective: solves crimes; looks for clues about a murder
    | miner: digs coal under the ground; works in a coal mine
    | optician: sells glasses; tests your eyes and fits lenses
    | pharmacist: sells medicine; hands out pills in a chemist's shop
    | architect: designs houses; draws the plans of a building
    | astronomer: studies the stars; looks at planets through a telescope
    | magician: pulls a rabbit out of a hat; does tricks with cards on stage
    | clown: wears a red nose in the circus; makes children laugh in the circus
    | referee: blows the whistle in a football match; shows a player the red card
    | lifeguard: rescues swimmers; watches over swimmers on the beach
    | babysitter: looks after children while their parents are out
    | orphan: has lost both parents; has no mother and no father
    | cowboy: rides a horse and herds cattle; throws a lasso
    | tourist: visits foreign cities for fun; takes a sightseeing tour on holiday
    | president: leads a republic; lives in the White House
"""

ANIMALS = """
    dog: barks; wags its tail when it is happy; fetches sticks; guards the house
    | wolf: howls at the moon and hunts in packs; ate Little Red Riding Hood's grandmother
    | cat: meows; purrs; catches mice in the house
    | cow: moos; gives us milk
    | pig: oinks; gives us bacon; rolls in the mud on a farm
    | sheep: gives us wool; says baa
    | horse: neighs; wears a saddle; gallops and has a mane; runs races with a jockey
    | donkey: brays and carries loads
    | zebra: has black and white stripes; looks like a striped horse
    | chicken: lays the eggs that we eat; clucks
    | duck: quacks; waddles on land and swims in a pond
    | lion: is called the king of the jungle; has a big mane and roars
    | tiger: has orange fur with black stripes; is a big striped cat
    | elephant: has a trunk; has tusks and big ears; is the largest on land
    | giraffe: has a very long neck; eats leaves from the tops of trees
    | camel: has a hump; carries people through the desert
    | kangaroo: carries its young in a pouch; hops around in Australia
    | monkey: swings from branch to branch; loves bananas and has a long tail
    | bear: loves honey and has thick fur; sleeps in its den all winter
    | panda: eats bamboo; is black and white and lives in China
    | rabbit: has long ears and eats carrots; hops and has a fluffy tail
    | mouse: squeaks and eats cheese; is a tiny rodent with a long tail
    | squirrel: collects nuts; has a bushy tail and climbs trees
    | hedgehog: rolls into a ball of spines; is small and prickly
    | frog: croaks; starts life as a tadpole; catches flies with its tongue by the pond
    | snake: hisses and has no legs; slithers
    | turtle: carries its shell and swims in the sea; hides inside its shell
    | snail: carries its house and leaves a trail of slime; is very slow and has a spiral shell
    | spider: has eight legs; spins a web
    | bee: makes honey; lives in a hive; buzzes from flower to flower
    | butterfly: comes from a caterpillar; has four colourful wings
    | ant: lives in a colony in the ground; carries crumbs to its anthill
    | mosquito: bites you and sucks your blood; spreads malaria
    | shark: has sharp teeth and scares swimmers; has a fin that sticks out of the sea
    | whale: is the largest in the sea; has a blowhole and weighs a hundred tonnes
    | dolphin: leaps out of the waves and is very clever; does tricks in a sea park
    | octopus: has eight arms; squirts ink
    | crab: walks sideways; has claws and lives on the beach
    | penguin: is a bird that swims and lives on the ice; looks as if it wore a black suit
    | owl: hoots; hunts at night and turns its head around
    | parrot: is a bird that can learn to talk; repeats what you say
    | peacock: spreads a fan of colourful feathers
    | bat: sleeps upside down; flies at night but is no bird
    | beaver: builds dams; fells trees with its teeth
    | crocodile: lies in the river with its huge jaws open
"""

COLOURS = """
    green: is grass; are leaves in spring; is a cucumber; is broccoli; is spinach; is
        lettuce; are peas
    | yellow: is a banana; is a lemon; is the yolk of an egg; is a canary; is butter; is a sunflower
    | red: is blood; is a ripe tomato; is a fire engine; is a strawberry; is a stop sign; is a ripe
        cherry; is ketchup
    | white: is snow; is milk; is salt; is a wedding dress; is a polar bear; is flour; is a swan;
        is cotton
    | blue: is a clear sky at noon; is the sea on a sunny day; is a pair of jeans
    | black: is coal; is a crow; is a witch's cat; is tar; is a panther; is liquorice
    | orange: is a carrot; is a pumpkin; is a basketball; is a tangerine
    | brown: is chocolate; is soil; is a coffee bean; is toast; is a chestnut
    | grey: is an elephant; is ash; is a rain cloud; is concrete; is a dolphin
    | pink: is a flamingo; is bubble gum; is a piglet
    | purple: is an aubergine; is an amethyst
"""

MATERIALS = """
    glass: is a window; is a wine bottle; is a jam jar; is a light bulb; is a mirror; is a lens
    | wood: is a log; is a door; is a violin; is a fence; is a matchstick; is a baseball bat
    | paper: is a newspaper; is a page of a book; is an envelope; is a cardboard box
    | leather: is a saddle; are boots; is a belt; is a football; is a briefcase
    | rubber: is a tyre; is an eraser; is a balloon; is an elastic band
    | gold: is a wedding ring; is a champion's medal; is a king's crown
    | iron: is a horseshoe; is an anchor; is a cannonball
    | steel: is a railway track; is a razor blade; is a tank
    | wax: is a candle; is a crayon
    | wool: is a sweater; is a knitted hat; is a knitted scarf
    | cotton: is a T-shirt; are jeans; is a bed sheet
    | brick: is a chimney; is a house wall
    | stone: is a gravestone; is a pyramid; is a castle wall
    | plastic: is a shopping bag; is a toothbrush; is a Lego piece; is a credit card
    | ice: is an iceberg; is an icicle
    | snow: is a snowman; is an igloo
    | flour: is bread; is pasta; is a pancake
    | milk: is cheese; is yogurt; is butter
    | grapes: is wine; are raisins
    | potatoes: are French fries; are crisps
    | apples: is cider; is apple sauce
    | eggs: is an omelette; is a meringue
    | tomatoes: is ketchup
    | sand: is a sandcastle; is a dune
    | clay: is a flowerpot; is a roof tile
    | water: is rain; is steam; is a cloud; is dew
    | feathers: is a duvet filling; is a bird's coat
"""

FEELINGS = """
    hungry: you have not eaten all day; your stomach rumbles; you missed breakfast and lunch; you
        smell dinner after a long hike
    | thirsty: you have had nothing to drink; you run in the desert without water; your mouth is
        dry; you have eaten very salty chips
    | tired: you have not slept all night; you have worked for twelve hours; it is long past your
        bedtime; you wake up far too early
    | cold: you stand in the snow without a coat; you swim in icy water; the heating is off in
        winter; you have no gloves in a snowstorm
    | hot: you sit in a sauna; you wear a coat in summer; you stand in the midday sun of the desert
    | happy: you win a prize; you pass an exam; your friends give you a party; you hear good news;
        your team wins; you get a puppy
    | proud: your child wins a medal; you finish a marathon
    | excited: you are about to go on a great holiday; it is the night before your birthday
    | relieved: you find your lost wallet
    | sad: your dog dies; your best friend moves away; you hear bad news; your team loses; you break
        your favourite toy; a loved one dies
    | lonely: you have no friends; you spend the holidays alone; nobody ever calls you
    | disappointed: the trip that you looked forward to is called off
    | angry: someone steals your bike; someone lies to you; someone scratches your car; your
        brother breaks your phone
    | jealous: someone flirts with your girlfriend; your sister gets a bigger present
    | scared: you see a ghost; a lion runs towards you; you hear a noise in a dark house; you hang
        from a cliff; you watch a horror film alone
    | nervous: you are about to give a speech; you wait for an exam to begin; you sit outside the
        dentist's room
    | bored: you have nothing to do; the lecture goes on for hours; you watch paint dry; you wait at
        the station for hours with no book
    | embarrassed: your trousers split in public; you forget your lines on stage; you call your
        teacher mum
    | sick: you have the flu; you eat rotten fish; you have a high fever; you eat too much candy
    | surprised: friends jump out and shout happy birthday; a stranger gives you flowers
    | guilty: you have stolen something; you have lied to your mother; you cheat in an exam
"""

BODY = """
    eyes: do you see with; do you close to sleep; do glasses help; are full of tears when you cry
    | ears: do you hear with; do you cover when it is loud; do earrings hang from
    | nose: do you smell with; do you blow when you have a cold; runs when you have a cold
    | teeth: do you chew with; does a dentist look after; do you bite with
    | tongue: do you taste with; do you stick out to be rude; do you lick with
    | mouth: do you open to yawn; do you put food into
    | heart: pumps blood; beats faster when you run
    | lungs: do you breathe with; fill with air
    | brain: do you think with; is inside the skull
    | stomach: digests food; rumbles when you are hungry
    | feet: do you put in shoes; do you stand on; do socks keep warm
    | knees: do you bend to kneel; do you pray on
    | legs: do trousers cover; do you run with
    | hands: do you clap with; do gloves keep warm; do you wash before a meal
    | fingers: do you type with; do you count on; does a ring go on
    | wrist: do you wear a watch on; does a bracelet go on
    | neck: do you wear a scarf around; does a necklace go on; joins the head to the body
    | head: do you wear a hat on; do you nod with; does a crown go on
    | hair: does a comb go through; does a barber cut; do you wash with shampoo
    | back: do you carry a rucksack on; do you lie on to look at the sky
    | shoulders: do you shrug
    | waist: do you wear a belt around
    | skin: covers the whole body
"""

ACTIONS = """
    read it: a book; a newspaper; a magazine; a poem; a novel
    | eat it: a sandwich; a pizza; an apple; a biscuit; a slice of cake; a steak
    | drink it: a glass of milk; a cup of tea; a beer; a lemonade; a cup of cocoa
    | wear it: a coat; a hat; a dress; a sweater; a scarf; a necklace
    | drive it: a car; a bus; a lorry; a taxi
    | ride it: a bicycle; a horse; a pony; a motorbike
    | play it: a guitar; a piano; a violin; a flute; a board game; a trumpet
    | sing it: a song; a hymn; a carol; a lullaby
    | watch it: a film; a television show; a movie; a soap opera
    | sit on it: a chair; a stool; a bench; a sofa; an armchair
    | sleep in it: a bed; a sleeping bag; a hammock
    | write with it: a pen; a pencil; a piece of chalk
    | climb it: a ladder; a tree; a mountain
    | throw it: a ball; a frisbee; a spear; a snowball
    | spend it: money; a dollar; a gift voucher
    | solve it: a puzzle; a riddle; a crossword; an equation
    | fly it: a kite; a plane; a helicopter
    | smoke it: a cigarette; a cigar; a pipe
    | open it: a door; an umbrella; a present; a window
    | light it: a candle; a matchstick; a campfire; a lantern
    | answer it: a question; a phone call; an email
    | ring it: a doorbell; a church bell
    | send it: a postcard; a parcel; a telegram
    | sail it: a yacht; a dinghy
"""

ALIKE = {
    "kind": """
        fruit, vegetable, tree, flower; tool, weapon; vehicle, boat; metal, colour;
        fabric, clothing; dance, sport, game
    """,
    "use": """
        scissors, knife, saw, hammer, screwdriver, shovel, lawnmower, razor, corkscrew, spoon, fork,
        bucket, watering can, kettle, needle; pen, pencil, ruler, eraser;
        broom, vacuum cleaner, mop; soap, shampoo; towel, blanket, pillow, tent;
        clock, calendar, compass, map, camera, telephone, radio, torch, candle, matches, calculator,
        telescope, microscope, mirror; oven, toaster; ladder, rope
    """,
    "place": """
        bakery, pharmacy, post office, bank, supermarket, petrol station, garage, butcher, dentist,
        optician, hairdresser, hospital, wallet; airport, train station, harbour;
        cinema, theatre, stadium, museum, zoo, circus, aquarium, farm, forest, vineyard, mountain,
        desert; school, university, library; church, cemetery; prison, court, police station;
        restaurant, hotel, gym, pool, beach, playground, kitchen, bathroom, bedroom, oven, freezer,
        wardrobe, casino
    """,
    "person": """
        doctor, surgeon, nurse, dentist, vet, pharmacist, optician;
        teacher, professor, librarian, babysitter, astronomer; baker, chef, waiter, butcher;
        farmer, gardener, cowboy, fisherman; plumber, electrician, carpenter, mechanic, architect;
        firefighter, lifeguard, police officer, judge, lawyer, detective, king, president, priest,
        soldier, captain, pilot, astronaut; painter, photographer, sculptor, author, journalist,
        singer, conductor, actor, tourist, clown, magician
    """,
    "animal": """
        dog, wolf, cat, cow, pig, sheep, horse, donkey, zebra, chicken, duck, camel, rabbit;
        lion, tiger, elephant, giraffe, bear, panda, monkey, kangaroo, mouse, squirrel, hedgehog,
        beaver; snake, turtle, snail, octopus, crab, frog, spider; shark, whale, dolphin, crocodile;
        bee, butterfly, ant, mosquito, parrot, peacock, penguin, owl, bat
    """,
    "colour": "red, pink, orange, purple; blue, green; brown, black, grey",
    "material": """
        glass, wood, plastic, rubber, leather, iron, steel, brick, stone, clay, gold, sand;
        wool, cotton, feathers; ice, snow, water; flour, milk, eggs; grapes, apples
    """,
    "feeling": """
        hungry, thirsty, tired, cold, hot, sick, bored;
        happy, proud, excited, relieved, sad, lonely, disappointed, angry, jealous, scared, nervous,
        embarrassed, surprised, guilty
    """,
    "body": """
        nose, teeth, tongue, mouth, lungs; feet, knees, legs; hands, fingers, wrist;
        neck, head, hair, brain, back, shoulders, waist
    """,
    "action": """
        read it, send it, answer it, open it, solve it, ring it, spend it; drive it, ride it;
        play it, sing it; sit on it, sleep in it, climb it
    """,
}

FACTS = {
    "kind": KINDS,
    "use": USES,
    "place": PLACES,
    "person": PEOPLE,
    "animal": ANIMALS,
    "colour": COLOURS,
    "material": MATERIALS,
    "feeling": FEELINGS,
    "body": BODY,
    "action": ACTIONS,
}
