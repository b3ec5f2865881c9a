//! Plays of music with times, which imitate no dataset: a user keeps to one genre for some weeks, and then to another.
//!
//! Old plays of a user tell little of the next one, and without times all genres of a user look alike. The same user plays the
//! same artist several times. The links to predict are the plays of the last weeks.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::{Shape, SynthError, Writer};

const USERS: usize = 600;
const ARTISTS: usize = 320;
const GENRES: usize = 8;
const WEEKS: usize = 26;
const DAYS: usize = 7;
/// Plays of a user in a week.
const PLAYS: usize = 3;
/// Share of the weeks in which a user turns to another genre.
const CHANGE: f64 = 0.2;
/// Share of the plays that are of the user's genre for certain.
const TASTE: f64 = 0.8;
/// The weeks before which plays are training and validation links.
const SPLIT: [usize; 2] = [20, 23];
/// Name of the split.
const NAME: &str = "weeks";

/// User, artist and day.
type Play = (usize, usize, usize);

pub(super) fn write(out: &mut Writer<'_>, generator: &str, mut rng: ChaCha8Rng) -> Result<(), SynthError> {
    let shape = Shape::Plays;
    out.line(format_args!("format = 1\nname = \"{shape}\"\ntitle = \"synthetic plays of music with times\""));
    out.line(format_args!("task = \"link-prediction\"\ngenerator = \"{generator}\""));
    let rng = &mut rng;
    let mut genre: Vec<usize> = (0..USERS).map(|_| rng.random_range(0..GENRES)).collect();
    let mut plays: Vec<Play> = vec![];
    for week in 0..WEEKS {
        for (user, genre) in genre.iter_mut().enumerate() {
            if rng.random::<f64>() < CHANGE {
                *genre = (*genre + rng.random_range(1..GENRES)) % GENRES;
            }
            for _ in 0..PLAYS {
                let of = if rng.random::<f64>() < TASTE { *genre } else { rng.random_range(0..GENRES) };
                // Artists of a genre are those of the same remainder.
                let artist = of + GENRES * rng.random_range(0..ARTISTS / GENRES);
                plays.push((user, artist, week * DAYS + rng.random_range(0..DAYS)));
            }
        }
    }
    plays.sort_unstable_by_key(|&(user, artist, day)| (day, user, artist));
    for (name, count) in [("user", USERS), ("artist", ARTISTS)] {
        out.line(format_args!("\n[[vertex_type]]\nname = \"{name}\"\ncount = {count}"));
    }
    let [first, second] = SPLIT.map(|week| plays.partition_point(|play| play.2 < week * DAYS));
    let train = &plays[..first];
    out.line(format_args!(
        "\n[[relation]]\nname = \"plays\"\nsrc = \"user\"\ndst = \"artist\"\nedges = {first}\nfile = \"plays.npy\"\n\
         time = \"plays.day.npy\""
    ));
    let column = |part: &[Play], of: fn(&Play) -> usize| part.iter().map(|play| of(play) as i32).collect::<Vec<i32>>();
    let ends = [column(train, |play| play.0), column(train, |play| play.1)].concat();
    out.npy("plays.npy", &[2, first], &ends)?;
    out.npy("plays.day.npy", &[first], &column(train, |play| play.2))?;
    out.line(format_args!("\n[[link_split]]\nname = \"{NAME}\""));
    for (name, part) in [("val", &plays[first..second]), ("test", &plays[second..])] {
        let file = format!("{NAME}.{name}.npy");
        // Relation 0 holds the links.
        let rows = [column(part, |play| play.0), vec![0; part.len()], column(part, |play| play.1)].concat();
        out.npy(&file, &[3, part.len()], &rows)?;
        let days = format!("{NAME}.{name}.day.npy");
        out.npy(&days, &[part.len()], &column(part, |play| play.2))?;
        out.line(format_args!("{name} = \"{file}\"\n{name}_edges = {}\n{name}_time = \"{days}\"", part.len()));
    }
    Ok(())
}
