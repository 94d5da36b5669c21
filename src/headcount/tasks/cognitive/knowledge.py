"""Knowledge Recall: a fact that the question does not tell.

    What is the capital of France?  →  Paris

The forms are kinds of facts: capitals, continents, chemical symbols, authors, where a famous person
comes from, where a sight is. Facts that sources disagree on are left out, and so are capitals that
the name of the country gives away or that are spelt in several ways. The bundled model fails
at currencies and at the capitals of American states.

All items are our own; the facts are common knowledge.
"""

from __future__ import annotations

from headcount.tasks.cognitive.item import Item

# form: the question
QUESTIONS = {
    "capital": "What is the capital of {subject}?",
    "continent": "Which continent is {subject} in?",
    "symbol": "What is the chemical symbol for {subject}?",
    "author": "Who wrote {subject}?",
    "person": "Which country was {subject} from?",
    "sight": "In which country can you find {subject}?",
}

# form: "answer: subject, subject; answer: …"
FACTS = {
    "capital": """
        Paris: France; Rome: Italy; Berlin: Germany; Madrid: Spain; Lisbon: Portugal;
        Vienna: Austria; Bern: Switzerland; Brussels: Belgium; Amsterdam: the Netherlands;
        Copenhagen: Denmark; Oslo: Norway; Stockholm: Sweden; Helsinki: Finland; Reykjavik: Iceland;
        Dublin: Ireland; London: England; Edinburgh: Scotland; Cardiff: Wales; Warsaw: Poland;
        Prague: the Czech Republic; Bratislava: Slovakia; Budapest: Hungary; Bucharest: Romania;
        Sofia: Bulgaria; Athens: Greece; Belgrade: Serbia; Zagreb: Croatia; Ljubljana: Slovenia;
        Sarajevo: Bosnia; Skopje: North Macedonia; Tirana: Albania; Podgorica: Montenegro;
        Tallinn: Estonia; Riga: Latvia; Vilnius: Lithuania; Minsk: Belarus; Moscow: Russia;
        Valletta: Malta; Nicosia: Cyprus; Ankara: Turkey; Tbilisi: Georgia; Yerevan: Armenia;
        Baku: Azerbaijan; Cairo: Egypt; Tripoli: Libya; Algiers: Algeria; Rabat: Morocco;
        Khartoum: Sudan; Juba: South Sudan; Addis Ababa: Ethiopia; Asmara: Eritrea;
        Mogadishu: Somalia; Nairobi: Kenya; Kampala: Uganda; Kigali: Rwanda; Dodoma: Tanzania;
        Lusaka: Zambia; Harare: Zimbabwe; Maputo: Mozambique; Lilongwe: Malawi; Luanda: Angola;
        Windhoek: Namibia; Gaborone: Botswana; Maseru: Lesotho; Antananarivo: Madagascar;
        Accra: Ghana; Abuja: Nigeria; Dakar: Senegal; Bamako: Mali; Niamey: Niger;
        Ouagadougou: Burkina Faso; Freetown: Sierra Leone; Monrovia: Liberia; Conakry: Guinea;
        Libreville: Gabon; Baghdad: Iraq; Tehran: Iran; Damascus: Syria; Beirut: Lebanon;
        Amman: Jordan; Riyadh: Saudi Arabia; Doha: Qatar; Muscat: Oman; Manama: Bahrain;
        Abu Dhabi: the United Arab Emirates; Kabul: Afghanistan; Islamabad: Pakistan;
        New Delhi: India; Dhaka: Bangladesh; Kathmandu: Nepal; Thimphu: Bhutan;
        Tashkent: Uzbekistan; Bishkek: Kyrgyzstan; Dushanbe: Tajikistan; Ashgabat: Turkmenistan;
        Beijing: China; Taipei: Taiwan; Tokyo: Japan; Seoul: South Korea; Pyongyang: North Korea;
        Ulaanbaatar: Mongolia; Bangkok: Thailand; Hanoi: Vietnam; Vientiane: Laos;
        Phnom Penh: Cambodia; Kuala Lumpur: Malaysia; Manila: the Philippines; Canberra: Australia;
        Wellington: New Zealand; Suva: Fiji; Port Moresby: Papua New Guinea; Ottawa: Canada;
        Havana: Cuba; Kingston: Jamaica; Nassau: the Bahamas; Bridgetown: Barbados;
        Santo Domingo: the Dominican Republic; Tegucigalpa: Honduras; Managua: Nicaragua;
        Caracas: Venezuela; Quito: Ecuador; Lima: Peru; Santiago: Chile; Buenos Aires: Argentina;
        Montevideo: Uruguay; Georgetown: Guyana; Paramaribo: Suriname
    """,
    "continent": """
        Africa: Algeria, Libya, Morocco, Sudan, Ethiopia, Kenya, Uganda, Rwanda, Tanzania, Zambia,
        Zimbabwe, Mozambique, Angola, Namibia, Botswana, Ghana, Nigeria, Senegal, Mali, Niger, Chad,
        Cameroon, Liberia, Malawi, Somalia, Gabon, Togo, Benin;
        Europe: France, Italy, Germany, Spain, Portugal, Austria, Switzerland, Belgium, Denmark,
        Norway, Sweden, Finland, Iceland, Ireland, Poland, Hungary, Romania, Bulgaria, Greece,
        Serbia, Croatia, Slovenia, Estonia, Latvia, Lithuania, Ukraine, Belarus, Albania;
        Asia: Iraq, Iran, Syria, Jordan, Saudi Arabia, Yemen, Oman, Afghanistan, Pakistan, India,
        Bangladesh, Nepal, Bhutan, Sri Lanka, China, Japan, South Korea, Mongolia, Thailand,
        Vietnam, Laos, Cambodia, Malaysia, Myanmar, Singapore, Taiwan, Uzbekistan, Qatar;
        South America: Brazil, Argentina, Chile, Peru, Bolivia, Colombia, Venezuela, Ecuador,
        Uruguay, Paraguay, Guyana, Suriname;
        North America: Canada, Mexico, Guatemala, Honduras, Nicaragua, Cuba, Jamaica, Haiti
    """,
    "symbol": """
        H: hydrogen; He: helium; Li: lithium; Be: beryllium; B: boron; C: carbon; N: nitrogen;
        O: oxygen; F: fluorine; Ne: neon; Na: sodium; Mg: magnesium; Al: aluminium; Si: silicon;
        P: phosphorus; S: sulfur; Cl: chlorine; Ar: argon; K: potassium; Ca: calcium; Sc: scandium;
        Ti: titanium; V: vanadium; Cr: chromium; Mn: manganese; Fe: iron; Co: cobalt; Ni: nickel;
        Cu: copper; Zn: zinc; Ga: gallium; Ge: germanium; As: arsenic; Se: selenium; Br: bromine;
        Kr: krypton; Rb: rubidium; Sr: strontium; Y: yttrium; Zr: zirconium; Mo: molybdenum;
        Ag: silver; Cd: cadmium; In: indium; Sn: tin; Sb: antimony; I: iodine; Xe: xenon;
        Cs: caesium; Ba: barium; W: tungsten; Pt: platinum; Au: gold; Hg: mercury; Tl: thallium;
        Pb: lead; Bi: bismuth; Rn: radon; Ra: radium; Th: thorium; U: uranium; Pu: plutonium
    """,
    "author": """
        William Shakespeare: Hamlet, Macbeth, Romeo and Juliet, King Lear, Othello, The Tempest;
        Charles Dickens: Oliver Twist, David Copperfield, A Christmas Carol, Great Expectations;
        Jane Austen: Pride and Prejudice, Emma, Sense and Sensibility;
        Leo Tolstoy: War and Peace, Anna Karenina;
        Fyodor Dostoevsky: Crime and Punishment, The Idiot, The Brothers Karamazov;
        Mark Twain: Tom Sawyer, Huckleberry Finn; Herman Melville: Moby Dick;
        Homer: the Iliad, the Odyssey; Virgil: the Aeneid; Dante: the Divine Comedy;
        Plato: The Republic; Charles Darwin: On the Origin of Species; Mary Shelley: Frankenstein;
        Bram Stoker: Dracula; Oscar Wilde: The Picture of Dorian Gray; James Joyce: Ulysses;
        George Orwell: Animal Farm, Nineteen Eighty-Four; Aldous Huxley: Brave New World;
        F. Scott Fitzgerald: The Great Gatsby; J.D. Salinger: The Catcher in the Rye;
        Ernest Hemingway: The Old Man and the Sea, A Farewell to Arms;
        John Steinbeck: The Grapes of Wrath, Of Mice and Men, East of Eden;
        Harper Lee: To Kill a Mockingbird; Charlotte Brontë: Jane Eyre;
        Emily Brontë: Wuthering Heights; Victor Hugo: Les Misérables;
        Alexandre Dumas: The Three Musketeers; Gustave Flaubert: Madame Bovary;
        Franz Kafka: The Metamorphosis, The Trial; Albert Camus: The Stranger, The Plague;
        Lewis Carroll: Alice in Wonderland; J.K. Rowling: Harry Potter;
        J.R.R. Tolkien: The Lord of the Rings, The Hobbit; William Golding: Lord of the Flies;
        C.S. Lewis: The Chronicles of Narnia; Daniel Defoe: Robinson Crusoe;
        Jonathan Swift: Gulliver's Travels; Robert Louis Stevenson: Treasure Island;
        Rudyard Kipling: The Jungle Book; Jules Verne: Around the World in Eighty Days;
        H.G. Wells: The Time Machine, The War of the Worlds; Ray Bradbury: Fahrenheit 451;
        Joseph Conrad: Heart of Darkness; Chinua Achebe: Things Fall Apart;
        Margaret Atwood: The Handmaid's Tale; Sylvia Plath: The Bell Jar; Toni Morrison: Beloved;
        Joseph Heller: Catch-22; Kurt Vonnegut: Slaughterhouse-Five; Arthur Miller: The Crucible;
        Paulo Coelho: The Alchemist; Adam Smith: The Wealth of Nations; John Milton: Paradise Lost
    """,
    "person": """
        Germany: Ludwig van Beethoven, Johann Sebastian Bach, Karl Marx, Angela Merkel,
        Martin Luther, Johannes Gutenberg, Johannes Kepler;
        Austria: Wolfgang Amadeus Mozart, Sigmund Freud, Franz Schubert, Gustav Klimt;
        France: Napoleon Bonaparte, Victor Hugo, Claude Monet, Louis Pasteur, Charles de Gaulle,
        Voltaire, Joan of Arc, Claude Debussy;
        Italy: Leonardo da Vinci, Galileo Galilei, Michelangelo, Giuseppe Verdi, Marco Polo,
        Dante Alighieri, Antonio Vivaldi, Niccolò Machiavelli;
        Poland: Nicolaus Copernicus, Pope John Paul II, Lech Walesa;
        Spain: Pablo Picasso, Salvador Dali, Miguel de Cervantes, Francisco Goya, Rafael Nadal;
        Portugal: Vasco da Gama, Cristiano Ronaldo, Ferdinand Magellan;
        Russia: Leo Tolstoy, Fyodor Dostoevsky, Vladimir Lenin, Yuri Gagarin, Vladimir Putin,
        Alexander Pushkin, Peter the Great;
        India: Mahatma Gandhi, Jawaharlal Nehru, Rabindranath Tagore, Narendra Modi,
        Sachin Tendulkar;
        China: Confucius, Mao Zedong, Xi Jinping, Sun Tzu; Japan: Akira Kurosawa, Hayao Miyazaki,
        Haruki Murakami, Emperor Hirohito; Greece: Aristotle, Plato, Socrates, Pericles;
        South Africa: Nelson Mandela, Desmond Tutu; Kenya: Wangari Maathai, Jomo Kenyatta;
        Argentina: Lionel Messi, Diego Maradona, Jorge Luis Borges; Brazil: Pele, Neymar;
        Colombia: Shakira, Gabriel Garcia Marquez; Mexico: Frida Kahlo, Diego Rivera, Octavio Paz;
        Chile: Pablo Neruda, Augusto Pinochet; Cuba: Fidel Castro; Venezuela: Hugo Chavez;
        Norway: Edvard Munch, Edvard Grieg, Henrik Ibsen, Roald Amundsen;
        Sweden: Alfred Nobel, Ingmar Bergman, Greta Thunberg, Carl Linnaeus;
        Denmark: Hans Christian Andersen, Niels Bohr, Tycho Brahe; Finland: Jean Sibelius;
        Ireland: James Joyce, Oscar Wilde, Samuel Beckett; Hungary: Franz Liszt, Bela Bartok;
        Jamaica: Bob Marley, Usain Bolt; Canada: Justin Trudeau, Celine Dion, Justin Bieber;
        Switzerland: Roger Federer, Leonhard Euler, Carl Jung;
        Australia: Steve Irwin, Kylie Minogue;
        Egypt: Tutankhamun, Cleopatra, Gamal Abdel Nasser; Nigeria: Chinua Achebe, Wole Soyinka;
        Iran: Ayatollah Khomeini; Iraq: Saddam Hussein; Pakistan: Benazir Bhutto, Imran Khan
    """,
    "sight": """
        France: the Eiffel Tower, the Louvre, Notre-Dame, Mont Saint-Michel;
        Italy: the Colosseum, the Leaning Tower of Pisa, Mount Vesuvius, Mount Etna, Lake Como;
        India: the Taj Mahal, the Red Fort, the Golden Temple;
        China: the Great Wall, the Forbidden City, the Terracotta Army, Tiananmen Square;
        Japan: Mount Fuji, the Tokyo Tower, Osaka Castle;
        Egypt: the Great Sphinx, the Great Pyramid of Giza, the Valley of the Kings, Abu Simbel;
        Peru: Machu Picchu, the Nazca Lines; Brazil: Christ the Redeemer, Copacabana Beach;
        Greece: the Acropolis, the Parthenon, Mount Olympus, Delphi;
        Spain: the Alhambra, the Sagrada Familia, the Prado Museum;
        Germany: the Brandenburg Gate, Neuschwanstein Castle, the Black Forest, Cologne Cathedral;
        Jordan: Petra; Cambodia: Angkor Wat; Tanzania: Mount Kilimanjaro, the Serengeti, Zanzibar;
        Kenya: the Maasai Mara; South Africa: Table Mountain, Robben Island, Kruger National Park;
        Australia: the Sydney Opera House, Uluru, the Great Barrier Reef, Bondi Beach;
        Russia: the Kremlin, Red Square, Lake Baikal, the Hermitage Museum, Mount Elbrus;
        Turkey: the Hagia Sophia, the Blue Mosque, Cappadocia, Ephesus;
        Malaysia: the Petronas Towers; Mexico: Chichen Itza, Teotihuacan, Popocatepetl;
        Canada: the CN Tower, Banff National Park; Chile: Easter Island, the Atacama Desert;
        Ecuador: the Galapagos Islands; Switzerland: the Matterhorn, Lake Lucerne, the Jungfrau;
        Ireland: the Cliffs of Moher, Blarney Castle; Austria: Schönbrunn Palace;
        Poland: Auschwitz, Wawel Castle; Indonesia: Borobudur, Bali, Mount Merapi;
        Iran: Persepolis; Sri Lanka: Sigiriya; Argentina: Aconcagua, the Perito Moreno Glacier;
        Venezuela: Angel Falls; Nepal: Lumbini; Iceland: the Blue Lagoon; Ethiopia: Lalibela;
        Mali: Timbuktu; Ukraine: Chernobyl; Portugal: the Belém Tower; Romania: Bran Castle;
        Croatia: the Plitvice Lakes; New Zealand: Milford Sound; Denmark: Tivoli Gardens;
        Saudi Arabia: the Kaaba; Syria: Palmyra; Iraq: the ruins of Babylon
    """,
}


def items() -> list[Item]:
    """One item for each fact, form by form."""
    return [
        Item(
            question=question.format(subject=subject),
            answer=answer,
            template=form,
            content=f"{form}/{subject}",
        )
        for form, question in QUESTIONS.items()
        for subject, answer in facts(FACTS[form])
    ]


def facts(text: str) -> list[tuple[str, str]]:
    """Subject and answer of every fact in a table "answer: subject, subject; answer: …".

    >>> facts("Africa: Kenya, Mali; Asia: India")
    [('Kenya', 'Africa'), ('Mali', 'Africa'), ('India', 'Asia')]
    """
    found = []
    for entry in " ".join(text.split()).split("; "):
        answer, subjects = entry.split(": ")
        found += [(subject, answer) for subject in subjects.split(", ")]
    return found
