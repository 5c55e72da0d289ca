//! English sentence parts: notes on an invented harbour town, written for this project.

use super::{
    Dice,
    sentence::{Part, Sentence, parts},
};

/// Requests to write on, the most explicit first.
pub(super) const CLOSINGS: &[&str] = &[
    "\n\nContinue these notes in the same voice. Write plain prose in full paragraphs, without headings or \
     lists, at least two thousand words, and do not stop early or comment on the task.",
    "\n\nContinue this text in plain prose for at least two thousand words.",
    "\n\nWrite a very long story.",
    " Go on.",
];

const SPACE: Part = Part::new(" ");
const COMMA: Part = Part::new(", ");

/// Appends a whole sentence.
pub(super) fn push_sentence(sentence: &mut Sentence, dice: &mut Dice) {
    match dice.below(5) {
        0 => {
            sentence.extend([dice.pick(OPENERS), COMMA]);
            push_clause(sentence, dice);
            sentence.extend([SPACE, dice.pick(CIRCUMSTANCES)]);
        }
        1 => {
            push_clause(sentence, dice);
            sentence.extend([COMMA, dice.pick(JOINERS), SPACE]);
            push_clause(sentence, dice);
        }
        2 => {
            sentence.extend([dice.pick(CIRCUMSTANCES), COMMA]);
            push_clause(sentence, dice);
        }
        3 => {
            sentence.push(const { Part::new("Although ") });
            push_clause(sentence, dice);
            sentence.push(COMMA);
            push_clause(sentence, dice);
            sentence.extend([SPACE, dice.pick(CIRCUMSTANCES)]);
        }
        _ => {
            push_clause(sentence, dice);
            sentence.extend([SPACE, dice.pick(CIRCUMSTANCES), COMMA, dice.pick(AFTERTHOUGHTS)]);
        }
    }
    sentence.push(const { Part::new(".") });
}

fn push_clause(sentence: &mut Sentence, dice: &mut Dice) {
    sentence.extend([dice.pick(SUBJECTS), SPACE, dice.pick(VERBS), SPACE, dice.pick(OBJECTS)]);
}

static SUBJECTS: &[Part] = &parts([
    "the harbour master",
    "an old surveyor",
    "the night ferry",
    "her younger brother",
    "the town council",
    "a visiting engineer",
    "the baker on the corner",
    "our neighbour",
    "the lighthouse keeper",
    "a group of students",
    "the archive",
    "the morning train",
    "nobody in the office",
    "the retired teacher",
    "a careful reader",
    "the orchard",
    "the new clerk",
    "every second household",
    "the repair crew",
    "the choir",
    "a small committee",
    "the river",
    "the librarian",
    "an unknown donor",
    "the weather station",
    "the carpenter",
    "his former employer",
    "the market",
    "one of the sailors",
    "the village doctor",
    "a distant cousin",
    "the gardener",
    "the printing shop",
    "the last visitor",
    "a patient observer",
    "the stone bridge",
    "the school",
    "the fishing fleet",
    "the post office",
    "a quiet stranger",
]);

static VERBS: &[Part] = &parts([
    "described",
    "had already forgotten",
    "slowly repaired",
    "counted",
    "was careful to avoid",
    "admired",
    "kept a record of",
    "brought back",
    "measured",
    "had long expected",
    "paid for",
    "quietly replaced",
    "asked about",
    "could not explain",
    "drew a map of",
    "promised to return",
    "depended on",
    "wrote a letter about",
    "inherited",
    "looked after",
    "almost lost",
    "refused to sell",
    "compared",
    "rediscovered",
    "was proud of",
    "postponed",
    "painted",
    "set aside",
    "talked at length about",
    "took apart",
    "borrowed",
    "watched over",
    "carried",
    "had no use for",
    "wanted to understand",
    "made a copy of",
    "sent for",
    "learned to value",
    "waited for",
    "sorted",
]);

static OBJECTS: &[Part] = &parts([
    "the broken clock",
    "a box of old photographs",
    "the price of salt",
    "three wooden boats",
    "the winter timetable",
    "a collection of maps",
    "the western wall",
    "the missing pages",
    "a field of barley",
    "the first steam engine",
    "the sound of the bells",
    "a handful of coins",
    "the long correspondence",
    "an unfinished novel",
    "the water supply",
    "the names of the streets",
    "a set of brass instruments",
    "the entire harvest",
    "the rules of the game",
    "a narrow staircase",
    "the colours of the evening sky",
    "every visitor's question",
    "the cost of the new roof",
    "a chain of small islands",
    "the recipe for dark bread",
    "the habits of migrating birds",
    "a borrowed umbrella",
    "the plan for the square",
    "the oldest tree in the park",
    "a letter without a sender",
    "the silence of the hills",
    "the daily measurements",
    "a bundle of dry wood",
    "the story of the flood",
    "the keys to the cellar",
    "a faded blue coat",
    "the noise from the workshop",
    "the accounts of the year before",
    "a simple wooden chair",
    "the light across the bay",
]);

static CIRCUMSTANCES: &[Part] = &parts([
    "before the rain came",
    "at the end of a long week",
    "in the back room of the inn",
    "without saying a word",
    "on the road to the coast",
    "as the tide went out",
    "during the coldest month",
    "for reasons of their own",
    "with surprising patience",
    "in spite of the late hour",
    "under the old railway arch",
    "after the second meeting",
    "close to the edge of the forest",
    "when the shops had closed",
    "in a single afternoon",
    "with the help of two friends",
    "far from any town",
    "between the two wars",
    "as everybody could see",
    "by the light of a lamp",
    "on the third of May",
    "beside the empty fountain",
    "in almost complete darkness",
    "long before breakfast",
    "along the canal",
    "at very little expense",
    "while the kettle boiled",
    "in the spring of that year",
    "from the window of the tower",
    "to the great relief of the family",
    "once the fog had lifted",
    "against all advice",
]);

static OPENERS: &[Part] = &parts([
    "According to the diary",
    "As far as anyone remembers",
    "On the following day",
    "To be fair",
    "In other words",
    "Some years later",
    "For the time being",
    "By a happy accident",
    "Not surprisingly",
    "As a rule",
    "In the opinion of the mayor",
    "Strangely enough",
    "With hindsight",
    "From then on",
    "Seen from a distance",
    "If the report is right",
    "At first",
    "Towards evening",
    "In the meantime",
    "Much to our surprise",
]);

static JOINERS: &[Part] = &parts([
    "and",
    "but",
    "so",
    "while",
    "because",
    "until",
    "and yet",
    "just as",
    "even though",
    "and from that moment",
    "which is why",
    "and at the same time",
]);

static AFTERTHOUGHTS: &[Part] = &parts([
    "or so it seemed",
    "and that was that",
    "though few people noticed",
    "as had been agreed",
    "which pleased everyone",
    "and not for the first time",
    "at least in theory",
    "and the matter was closed",
    "much as before",
    "with one small exception",
    "to nobody's surprise",
    "and it rained all night",
]);
