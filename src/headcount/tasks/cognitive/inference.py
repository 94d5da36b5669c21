"""Inference: one step from what is told to what must then be so.

    Anna is visiting Cairo this week. Which country is Anna in?  →  Egypt

One fact about a person, and a question whose answer follows from it and from what everyone knows:
the country of a town, the nationality of someone from a country, the language of a country, the job
of someone who does something for a living. The person is drawn once for each content.

All items are our own; the facts are common knowledge. Towns whose name is as well known from
another country are left out, and so are countries with several usual names. The bundled model
mostly fails to tell the state of an American town, and chains of two rules leave it at chance.
"""

from __future__ import annotations

import random

from headcount.tasks.cognitive.item import Item
from headcount.tasks.cognitive.knowledge import facts
from headcount.tasks.ioi import NAMES

# form: fact and question
QUESTIONS = {
    "country": "{name} is visiting {subject} this week. Which country is {name} in?",
    "nationality": "{name} comes from {subject}. What is {name}'s nationality?",
    "language": "{name} grew up in {subject}. Which language does {name} speak?",
    "job": "{name} {subject} for a living. What is {name}'s job?",
}

# form: "answer: subject, subject; answer: …"
FACTS = {
    "country": """
        France: Paris, Lyon, Marseille, Bordeaux, Toulouse, Strasbourg, Nantes, Lille, Cannes;
        Italy: Rome, Milan, Venice, Naples, Florence, Turin, Bologna, Genoa, Palermo, Verona, Pisa;
        Germany: Berlin, Munich, Hamburg, Frankfurt, Cologne, Stuttgart, Dresden, Leipzig, Bremen,
        Nuremberg; Spain: Madrid, Barcelona, Seville, Bilbao, Malaga, Zaragoza, Salamanca;
        Portugal: Lisbon, Porto, Coimbra; Belgium: Brussels, Antwerp, Ghent, Bruges;
        Switzerland: Zurich, Geneva, Basel, Bern, Lausanne, Lucerne;
        Austria: Vienna, Salzburg, Innsbruck, Graz, Linz;
        Poland: Warsaw, Krakow, Gdansk, Wroclaw, Poznan; Hungary: Budapest, Debrecen, Szeged;
        Romania: Bucharest, Timisoara, Brasov; Bulgaria: Sofia, Plovdiv, Varna; Serbia: Belgrade;
        Croatia: Zagreb, Dubrovnik; Greece: Athens, Thessaloniki, Sparta, Corinth;
        Turkey: Istanbul, Ankara, Izmir, Antalya; Russia: Moscow, Saint Petersburg, Novosibirsk,
        Vladivostok, Kazan, Sochi, Murmansk, Volgograd; Ukraine: Kyiv, Lviv, Kharkiv;
        Sweden: Stockholm, Gothenburg, Malmo, Uppsala; Norway: Oslo, Bergen, Trondheim, Stavanger;
        Denmark: Copenhagen, Aarhus, Odense; Finland: Helsinki, Tampere, Turku;
        Iceland: Reykjavik; Ireland: Dublin, Cork, Galway, Limerick; Estonia: Tallinn, Tartu;
        Latvia: Riga; Lithuania: Vilnius, Kaunas; Egypt: Cairo, Alexandria, Luxor, Aswan, Giza;
        Morocco: Casablanca, Marrakesh, Rabat, Fez, Tangier; Tunisia: Tunis, Sousse;
        Algeria: Algiers, Oran; Libya: Benghazi; Sudan: Khartoum; Somalia: Mogadishu;
        Kenya: Nairobi, Mombasa, Kisumu; Nigeria: Lagos, Abuja, Kano, Ibadan; Ghana: Accra, Kumasi;
        Ethiopia: Addis Ababa; South Africa: Cape Town, Johannesburg, Durban, Pretoria;
        Tanzania: Dar es Salaam, Dodoma; Uganda: Kampala, Entebbe; Senegal: Dakar;
        Zimbabwe: Harare, Bulawayo; Zambia: Lusaka; Angola: Luanda; Rwanda: Kigali;
        Japan: Tokyo, Osaka, Kyoto, Hiroshima, Nagasaki, Sapporo, Yokohama, Kobe, Nagoya, Fukuoka;
        China: Beijing, Shanghai, Shenzhen, Guangzhou, Wuhan, Chengdu, Nanjing, Harbin, Tianjin;
        India: Mumbai, Delhi, Kolkata, Chennai, Bangalore, Jaipur, Pune, Lucknow, Varanasi, Agra;
        Pakistan: Karachi, Lahore, Islamabad, Peshawar; Bangladesh: Dhaka, Chittagong;
        Nepal: Kathmandu; Sri Lanka: Colombo, Kandy; Afghanistan: Kabul, Kandahar, Herat;
        Iran: Tehran, Isfahan, Shiraz, Tabriz; Iraq: Baghdad, Basra, Mosul, Fallujah;
        Syria: Damascus, Aleppo, Homs; Lebanon: Beirut; Jordan: Amman;
        Saudi Arabia: Riyadh, Jeddah, Mecca, Medina; Qatar: Doha; Israel: Tel Aviv, Haifa;
        Thailand: Bangkok, Chiang Mai, Phuket; Vietnam: Hanoi, Da Nang, Saigon;
        Malaysia: Kuala Lumpur, Malacca; Indonesia: Jakarta, Surabaya, Bandung, Yogyakarta;
        South Korea: Seoul, Busan, Incheon; North Korea: Pyongyang; Mongolia: Ulaanbaatar;
        Cambodia: Phnom Penh, Siem Reap; Laos: Vientiane; Uzbekistan: Tashkent, Samarkand;
        Kazakhstan: Almaty; Taiwan: Taipei, Kaohsiung;
        Australia: Sydney, Melbourne, Brisbane, Perth, Adelaide, Canberra, Darwin, Hobart, Cairns;
        New Zealand: Auckland, Wellington, Christchurch, Dunedin, Queenstown;
        Canada: Toronto, Montreal, Vancouver, Ottawa, Calgary, Edmonton, Winnipeg, Saskatoon;
        Mexico: Guadalajara, Monterrey, Cancun, Acapulco, Tijuana, Puebla, Oaxaca; Cuba: Havana;
        Jamaica: Montego Bay; Brazil: Rio de Janeiro, Sao Paulo, Brasilia, Recife, Manaus,
        Curitiba, Porto Alegre; Argentina: Buenos Aires, Mendoza, Ushuaia; Chile: Valparaiso,
        Antofagasta; Peru: Lima, Cusco, Arequipa; Colombia: Bogota, Medellin, Cali;
        Venezuela: Caracas, Maracaibo; Ecuador: Quito, Guayaquil; Bolivia: La Paz, Cochabamba;
        Uruguay: Montevideo; Paraguay: Asuncion
    """,
    "nationality": """
        French: France; Italian: Italy; German: Germany; Spanish: Spain; Portuguese: Portugal;
        Austrian: Austria; Swiss: Switzerland; Belgian: Belgium; Dutch: the Netherlands;
        Danish: Denmark; Norwegian: Norway; Swedish: Sweden; Finnish: Finland; Icelandic: Iceland;
        Irish: Ireland; Polish: Poland;
        Slovak: Slovakia; Hungarian: Hungary; Romanian: Romania;
        Bulgarian: Bulgaria; Greek: Greece; Serbian: Serbia; Croatian: Croatia; Albanian: Albania;
        Bosnian: Bosnia; Estonian: Estonia; Latvian: Latvia; Lithuanian: Lithuania; Russian: Russia;
        Ukrainian: Ukraine; Belarusian: Belarus; Turkish: Turkey; Armenian: Armenia;
        Egyptian: Egypt; Libyan: Libya; Algerian: Algeria; Moroccan: Morocco; Tunisian: Tunisia;
        Sudanese: Sudan; Ethiopian: Ethiopia; Kenyan: Kenya; Ugandan: Uganda;
        Rwandan: Rwanda; Tanzanian: Tanzania; Zambian: Zambia; Zimbabwean: Zimbabwe;
        Angolan: Angola; Namibian: Namibia; South African: South Africa; Ghanaian: Ghana;
        Nigerian: Nigeria; Senegalese: Senegal; Cameroonian: Cameroon; Congolese: the Congo;
        Malian: Mali; Liberian: Liberia; Iraqi: Iraq; Iranian: Iran; Syrian: Syria;
        Lebanese: Lebanon; Jordanian: Jordan; Israeli: Israel;
        Kuwaiti: Kuwait; Afghan: Afghanistan; Pakistani: Pakistan; Indian: India;
        Bangladeshi: Bangladesh; Sri Lankan: Sri Lanka; Chinese: China;
        Taiwanese: Taiwan; Japanese: Japan; Mongolian: Mongolia; Thai: Thailand;
        Vietnamese: Vietnam; Cambodian: Cambodia; Burmese: Burma; Malaysian: Malaysia;
        Indonesian: Indonesia; Filipino: the Philippines; Australian: Australia; Fijian: Fiji;
        Canadian: Canada; American: the United States; Mexican: Mexico; Guatemalan: Guatemala;
        Cuban: Cuba; Jamaican: Jamaica; Haitian: Haiti; Brazilian: Brazil;
        Chilean: Chile; Peruvian: Peru; Bolivian: Bolivia; Colombian: Colombia;
        Venezuelan: Venezuela; Ecuadorian: Ecuador; Uruguayan: Uruguay; Paraguayan: Paraguay
    """,
    "language": """
        Spanish: Mexico, Argentina, Chile, Colombia, Cuba, Venezuela, Ecuador, Uruguay, Honduras,
        Nicaragua, Panama, Guatemala, Costa Rica, Peru;
        Arabic: Egypt, Saudi Arabia, Iraq, Jordan, Kuwait, Yemen, Libya, Syria, Lebanon, Tunisia,
        Oman, Qatar; Portuguese: Brazil, Portugal, Mozambique; German: Austria, Germany;
        English: Australia, Jamaica, the United States, England; Hebrew: Israel;
        French: France; Italian: Italy; Greek: Greece; Polish: Poland; Russian: Russia;
        Turkish: Turkey; Japanese: Japan; Chinese: China; Korean: South Korea, North Korea;
        Thai: Thailand; Vietnamese: Vietnam; Swedish: Sweden; Danish: Denmark; Norwegian: Norway;
        Finnish: Finland; Hungarian: Hungary; Dutch: the Netherlands; Khmer: Cambodia;
        Bengali: Bangladesh; Romanian: Romania; Bulgarian: Bulgaria; Icelandic: Iceland
    """,
    "job": """
        baker: bakes bread; pilot: flies planes; teacher: teaches children at a school;
        firefighter: puts out fires; dentist: repairs people's teeth; farmer: grows wheat and corn;
        butcher: cuts and sells meat; fisherman: catches fish at sea; nurse: helps the doctors;
        plumber: repairs water pipes; electrician: repairs electric wires; mechanic: repairs cars;
        carpenter: builds tables from wood; painter: paints houses; tailor: sews suits;
        waiter: serves meals in a restaurant; chef: cooks meals in a restaurant;
        florist: sells flowers; librarian: works in a library; barber: shaves and trims beards;
        photographer: takes photographs; astronaut: flies into space; soldier: serves in the army;
        sailor: works on a ship; judge: hears cases in court; surgeon: operates on patients;
        pharmacist: sells medicines; architect: designs buildings; gardener: tends gardens;
        miner: digs coal; shepherd: looks after sheep; poet: writes poems; dancer: dances ballet;
        singer: sings songs; actor: acts in plays; journalist: writes for a newspaper;
        translator: translates books; jeweller: sells rings and necklaces; magician: does magic;
        blacksmith: makes horseshoes; beekeeper: keeps bees; banker: works in a bank;
        programmer: writes computer programs; cleaner: cleans offices; postman: delivers letters;
        taxi driver: drives a taxi; sculptor: makes statues; potter: makes clay pots;
        detective: solves crimes; optician: sells glasses; locksmith: repairs locks
    """,
}


def items() -> list[Item]:
    """One item for each fact, form by form."""
    return [
        Item(
            question=question.format(name=_name(form, subject), subject=subject),
            answer=answer,
            template=form,
            content=f"{form}/{subject}",
        )
        for form, question in QUESTIONS.items()
        for subject, answer in facts(FACTS[form])
    ]


def _name(form: str, subject: str) -> str:
    return random.Random(f"inference {form} {subject}").choice(NAMES)
