"""Closed word lists of the extractive backbone: function words, common verbs with their forms, small talk, kin, calendar.

They stand in for a part-of-speech tagger, whose models cannot be had without a download. Lists only; the rules that use
them are in `analysis`, `keywords`, `restate`, `dates` and `answer`.
"""

from __future__ import annotations

PRONOUNS = frozenset(
    "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers "
    "herself it its itself they them their theirs themselves who whom whose which what this that these those there "
    "here someone somebody something anyone anybody anything everyone everybody everything nothing nobody none one "
    "ones ya u y'all other others another each both either neither".split()
)
DETERMINERS = frozenset(
    "a an the my our your his her its their this that these those some any no every each another both all such "
    "what which whose".split()
)
PREPOSITIONS = frozenset(
    "about above across after against along among around as at before behind below beneath beside besides between "
    "beyond by despite down during except for from in inside into like near of off on onto out outside over past per "
    "since than through throughout till to toward towards under until up upon via with within without w".split()
)
CONJUNCTIONS = frozenset(
    "and or but nor so yet because cause 'cause cuz if unless while whereas although though when whenever where "
    "wherever how why whether that as & plus then else also".split()
)
AUXILIARIES = frozenset(
    "am is are was were be been being do does did doing done have has had having can could will would shall should may "
    "might must ought gonna wanna gotta ain't isn't aren't wasn't weren't don't doesn't didn't haven't hasn't hadn't "
    "can't couldn't won't wouldn't shouldn't mustn't cannot dont cant im ive i'm i've i'll i'd you're you've you'll "
    "you'd he's she's it's he'd she'd he'll she'll it'll we're we've we'll we'd they're they've they'll they'd that's "
    "there's here's what's who's how's where's let's lets thats theres s t re ve ll d m".split()
)
ADVERBS = frozenset(
    "not n't very really so too just quite pretty super even still already ever never always often sometimes usually "
    "again also only almost maybe perhaps probably definitely totally absolutely actually honestly literally simply "
    "finally recently lately currently soon now then once twice today yesterday tomorrow tonight ago back away "
    "together forward far else instead anyway though however well kinda sorta lil bit little much many more most less "
    "least few several enough rather lots lot plenty tons ton loads bunch couple half around yes yeah yep yup no nope "
    "ok okay oh wow hey hi hello hmm haha lol btw omg whoa woah phew oops aw aww woohoo yay man dude please thanks "
    "thank bye cheers anymore somewhere anywhere everywhere nowhere especially exactly truly deeply extremely "
    "incredibly completely early late later earlier ahead apart alone right alright sure long hard".split()
)
EVALUATIVE = frozenset(
    "good great awesome amazing cool nice lovely wonderful fantastic fun funny beautiful gorgeous stunning incredible "
    "excellent perfect best better bad worse worst sweet cute adorable happy sad glad excited exciting thrilled proud "
    "grateful thankful lucky blessed tough difficult easy hard important special interesting inspiring impressive "
    "rewarding fulfilling refreshing powerful meaningful thoughtful kind crazy insane wild weird strange scary "
    "worried nervous busy tired sorry sure able ready big small huge tiny large new old young own same different "
    "whole full real true favorite favourite main major total certain various possible available welcome worth okay "
    "fine simple free recent upcoming next last past final first second third other such many much few several more "
    "most less enough top unique pleased curious hopeful optimistic passionate supportive strong brave delicious "
    "tasty yummy relaxing calming peaceful memorable unforgettable magical epic sick dope neat rad solid keen "
    "stoked swamped hectic rough short long high low early late hot cold warm fresh bright ideal ultimate overall "
    "necessary crucial vital essential key challenging alive close deep wide quick slow".split()
)
VAGUE_NOUNS = frozenset(
    "thing things stuff lot lots way ways time times day days week weeks weekend month months year years moment "
    "moments hour hours minute minutes morning afternoon evening night today yesterday tomorrow kind kinds sort type "
    "part parts piece bit one ones place places person people guy guys folks man dude friend friends someone lot "
    "reason idea ideas sense point fact case question questions answer word words chat talk life world feeling "
    "feelings experience experiences chance opportunity step steps side end start beginning rest number amount "
    "couple bunch ton tons plenty while ago news update story luck congrats congratulations thanks pic pics photo "
    "photos picture pictures image images photography shot look looks everything anything something nothing "
    "progress mind heart journey passion dream dreams goal goals plan plans memory memories vibe vibes joy love hope "
    "happiness support encouragement help strength power energy inspiration motivation adventure adventures topic "
    "issue issues problem problems situation job work result results difference impact effort efforts bit sec "
    "honor pleasure blast kick ups downs deal matter truth choice change changes challenge challenges group "
    "background front top middle view close-up".split()
)
GREETINGS = frozenset(
    "look check pic photo picture "
    "hey hi hello bye goodbye thanks thank thx congrats congratulations wow cheers welcome yeah yep yup yes no nope ok "
    "okay sure absolutely totally definitely exactly agree agreed great awesome amazing cool nice good glad happy "
    "sounds sound see talk soon later chat take care luck wishes hear going doing been well how what's up hows things "
    "long appreciate appreciated proud sorry lovely sweet kind words mean means means lot meant looking forward "
    "wait can't know let's keep it goes believe excited best hope fun enjoy love morning evening afternoon day "
    "wonderful fantastic incredible impressive beautiful right true course haha lol oh ah aw aww hmm man dude buddy "
    "pal guys mate bro everyone there always so too very really much more it's that's you're i'm you i we me us my "
    "your our this that here's here to the a an and or but for of in on at be is are was were do did does have has "
    "had will would not all any some about by with just if as from like catch later anytime anything".split()
)

_VERB_BASES = (
    "accept achieve act add admire adopt advise agree aim allow answer appear apply appreciate approach arrive ask "
    "attend bake base battle bet blend book boost bond borrow bounce call camp cancel capture care carve celebrate "
    "challenge change chat check cheer chill choose clean clear climb close collect color combine compare complete "
    "connect consider contact contain continue contribute convince cook cope count cover crack create cross cycle dance "
    "deal decide decorate dedicate deliver depend describe deserve design destress develop discover discuss donate "
    "drop earn edit embrace encounter encourage end enjoy enter escape excite exercise expect experience explain explore "
    "express face fail fill finish fish fix focus follow force gain garden gather graduate grab greet guess guide "
    "handle hang happen hate help hike hire hope host imagine improve include inspire install interest introduce invest "
    "invite involve join journey jump keep kick kid knock laugh launch learn let lift like listen live locate look "
    "love manage mark master matter mention mentor miss move motivate name need notice nurture offer open order organize "
    "own pack paint participate pass perform photograph pick plan plant play practice practise prefer prepare present "
    "print produce promote protect provide pull purchase push race raise reach react realize receive recharge recommend "
    "record recover reduce reflect refresh relate relax release remember remind remodel renovate repair research reset "
    "respect respond rest return review ride rock rescue sail save search seem serve share shop shout show sign sketch "
    "skate ski sign smell smile sound spark spread star start stay step stick stop struggle study succeed suggest "
    "support suppose surf surprise surround swap switch talk taste test thank train transform transition translate "
    "travel treat try turn unwind update upgrade use visit volunteer wait walk want warn wash watch welcome wish wonder "
    "work worry yell lead date marry retire enroll apologize propose recommend bike jog lift snowboard swim overcome "
    "mix catch stand mean symbolize represent signify"
).split()

IRREGULAR = {
    form: base
    for base, forms in {
        "be": "am is are was were been being",
        "become": "became becoming",
        "begin": "began begun beginning",
        "break": "broke broken breaking",
        "bring": "brought bringing",
        "build": "built building",
        "buy": "bought buying",
        "catch": "caught catching",
        "choose": "chose chosen choosing",
        "come": "came coming",
        "cut": "cutting",
        "do": "does did done doing",
        "draw": "drew drawn drawing",
        "drink": "drank drunk drinking",
        "drive": "drove driven driving",
        "eat": "ate eaten eating",
        "fall": "fell fallen falling",
        "feel": "felt feeling",
        "fight": "fought fighting",
        "find": "found finding",
        "fly": "flew flown flying",
        "forget": "forgot forgotten forgetting",
        "get": "got gotten getting",
        "give": "gave given giving",
        "go": "goes went gone going",
        "grow": "grew grown growing",
        "hang": "hung hanging",
        "have": "has had having",
        "hear": "heard hearing",
        "hide": "hid hidden hiding",
        "hit": "hitting",
        "hold": "held holding",
        "hurt": "hurting",
        "keep": "kept keeping",
        "know": "knew known knowing",
        "lead": "led leading",
        "leave": "left leaving",
        "lend": "lent lending",
        "lose": "lost losing",
        "make": "made making",
        "mean": "meant meaning",
        "meet": "met meeting",
        "overcome": "overcame",
        "pay": "paid paying",
        "put": "putting",
        "quit": "quitting",
        "read": "reading",
        "ride": "rode ridden riding",
        "ring": "rang rung ringing",
        "rise": "rose risen rising",
        "run": "ran running",
        "say": "said saying",
        "see": "saw seen seeing",
        "sell": "sold selling",
        "send": "sent sending",
        "set": "setting",
        "shoot": "shot shooting",
        "show": "showed shown showing",
        "sing": "sang sung singing",
        "sit": "sat sitting",
        "sleep": "slept sleeping",
        "speak": "spoke spoken speaking",
        "spend": "spent spending",
        "stand": "stood standing",
        "steal": "stole stolen stealing",
        "stick": "stuck sticking",
        "swim": "swam swum swimming",
        "take": "took taken taking",
        "teach": "taught teaching",
        "tell": "told telling",
        "think": "thought thinking thinkin",
        "throw": "threw thrown throwing",
        "understand": "understood understanding",
        "wear": "wore worn wearing",
        "win": "won winning",
        "write": "wrote written writing",
    }.items()
    for form in forms.split()
}


def _doubles(verb: str) -> bool:
    return len(verb) <= 4 and verb[-1] not in "aeiouwxy" and verb[-2] in "aeiou" and verb[-3:-2] not in tuple("aeiou")


def _inflect(verb: str) -> list[str]:
    if verb.endswith("e"):
        return [verb + "s", verb + "d", verb[:-1] + "ing"]
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return [verb[:-1] + "ies", verb[:-1] + "ied", verb + "ing"]
    end = verb + verb[-1] if _doubles(verb) else verb
    return [verb + ("es" if verb.endswith(("s", "x", "ch", "sh")) else "s"), end + "ed", end + "ing"]


_BASES = frozenset(_VERB_BASES) | frozenset(IRREGULAR.values()) - {"be", "do", "have"}
VERB_BASE = {base: base for base in _BASES} | {form: base for base in _BASES for form in _inflect(base)} | IRREGULAR
"""Verb form -> base form, for the verbs listed above."""

PAST_FORMS = frozenset(form for form in VERB_BASE if form.endswith("ed") and form not in _BASES) | frozenset(
    form for form, base in IRREGULAR.items() if not form.endswith(("ing", "s")) and base != "be"
)

NOUN_OR_VERB = frozenset(
    "act answer base battle book call camp care challenge change chat color cook cover dance deal design drop end "
    "exercise experience face fish focus force garden guide hike help hope host interest journey jump kick kid lift "
    "look love mark master matter mentor move name need offer order own paint pass photograph pick plan plant play "
    "practice present print purchase race record release repair research respect rest return review ride rock rescue "
    "search share shop show sign sketch smell smile sound spark star start step stick stop struggle study support "
    "surprise switch talk taste test train transition travel treat turn update upgrade use visit volunteer wait walk "
    "watch wish wonder work worry lead date bike run drink drive fall fight fly hold read shot swim throw win break "
    "building drawing feeling meeting painting beginning setting writing cut catch stand mix thought found leaves".split()
)
"""Base forms that are as often nouns; the word in front decides (see `analysis.tag`)."""

ACTIVITIES = frozenset(
    "act bake bike camp celebrate climb cook cycle dance draw exercise fish garden hike jog knit meditate paint perform "
    "photograph play read ride run sail sing skate sketch ski snowboard surf swim teach train travel volunteer walk "
    "write build design box draw read meet".split()
)
"""Verbs whose -ing form names something one does, and so may be a keyword."""

SAME_WORD = {
    "kid": "child",
    "kids": "child",
    "children": "child",
    "mom": "mother",
    "mum": "mother",
    "mama": "mother",
    "moms": "mother",
    "dad": "father",
    "dads": "father",
    "fam": "family",
    "families": "family",
    "pic": "photo",
    "pics": "photo",
    "picture": "photo",
    "pictures": "photo",
    "edu": "education",
    "bday": "birthday",
    "grandma": "grandmother",
    "grandpa": "grandfather",
    "buddy": "friend",
    "buddies": "friend",
    "pal": "friend",
    "movie": "film",
    "movies": "film",
    "favourite": "favorite",
    "colour": "color",
    "colours": "color",
    "bike": "bicycle",
    "biking": "bicycle",
    "men": "man",
    "women": "woman",
    "people": "person",
    "folks": "person",
    "feet": "foot",
    "mice": "mouse",
    "job": "work",
    "tv": "television",
    "vacation": "holiday",
    "trip": "travel",
    "roadtrip": "travel",
    "purchase": "buy",
    "purchased": "buy",
    "purchases": "buy",
    "begin": "start",
    "began": "start",
    "begun": "start",
}
"""Everyday variants that are matched as one word."""

IRREGULAR_PLURALS = {
    "children": "child",
    "people": "person",
    "men": "man",
    "women": "woman",
    "feet": "foot",
    "mice": "mouse",
    "wives": "wife",
    "knives": "knife",
    "lives": "life",
    "leaves": "leaf",
    "shelves": "shelf",
    "loaves": "loaf",
    "wolves": "wolf",
    "heroes": "hero",
    "potatoes": "potato",
    "tomatoes": "tomato",
    "movies": "movie",
    "cookies": "cookie",
    "series": "series",
    "species": "species",
    "shoes": "shoe",
    "kids": "kid",
}

KIN = frozenset(
    "family mother father mom dad mum sister brother son daughter kids kid children child husband wife partner "
    "boyfriend girlfriend fiance fiancee friend friends cousin cousins aunt uncle grandma grandpa grandmother "
    "grandfather niece nephew parents parent siblings colleague colleagues coworkers neighbor neighbors mentor mentors "
    "coach teacher teammates boss roommate team".split()
)

NUMBER_WORDS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split()
    )
} | {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "hundred": 100, "dozen": 12}

NEGATIONS = frozenset(
    "not no never none nothing nobody neither nor without n't cannot cant dont isn't aren't wasn't weren't don't "
    "doesn't didn't haven't hasn't hadn't can't couldn't won't wouldn't shouldn't ain't nope nowhere hardly".split()
)

CHANGE_CUES = frozenset(
    "changed change cancelled canceled cancel cancelling instead rescheduled postponed moved switched swapped "
    "actually anymore longer quit stopped dropped declined turned changed".split()
)

MONTHS = {
    name: number
    for number, names in enumerate(
        [
            "january jan",
            "february feb",
            "march mar",
            "april apr",
            "may",
            "june jun",
            "july jul",
            "august aug",
            "september sept sep",
            "october oct",
            "november nov",
            "december dec",
        ],
        start=1,
    )
    for name in names.split()
}
WEEKDAYS = {
    name: number
    for number, names in enumerate(
        [
            "monday mon",
            "tuesday tues tue",
            "wednesday wed",
            "thursday thurs thu",
            "friday fri",
            "saturday sat",
            "sunday sun",
        ]
    )
    for name in names.split()
}
CALENDAR = frozenset(MONTHS) - {"may", "mar"} | frozenset(WEEKDAYS) - {"sat", "sun", "wed"}

FUNCTION = PRONOUNS | DETERMINERS | PREPOSITIONS | CONJUNCTIONS | AUXILIARIES | ADVERBS
