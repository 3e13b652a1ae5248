//! A machine's screen, read without knowing its font: lines of text are recognised by which of their letters are alike.
//!
//! ```text
//!   screendump ─► pixels ─► cells of 8 × 16 ─► glyphs ─► one letter per glyph, one glyph per letter ─► the lines are there
//! ```

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use qemu::{Deadline, Vm};

/// Size of a letter of the kernel's usual font (`lib/fonts/font_8x16.c`), in pixels.
const WIDTH: usize = 8;
const HEIGHT: usize = 16;

/// Which pixels of a cell are lit, row by row.
type Glyph = [u8; HEIGHT];

/// A text screen, as rows of glyphs.
#[derive(Debug, Clone)]
pub struct Screen(Vec<Vec<Glyph>>);

/// Which letter a glyph is, as far as is known.
#[derive(Debug, Clone, Default)]
struct Alphabet {
    letters: HashMap<Glyph, char>,
    glyphs: HashMap<char, Glyph>,
}

impl Screen {
    /// The machine's screen as it is now; the dump goes to `file`.
    ///
    /// # Errors
    /// When the machine has no screen.
    pub fn of(vm: &mut Vm, file: &Path, deadline: Deadline) -> anyhow::Result<Self> {
        vm.qmp().screendump(file, deadline)?;
        Self::read(&std::fs::read(file).context("read the screen's dump")?)
    }

    /// Whether rows of the screen begin with these lines, each letter drawn alike in all of them and no two letters alike.
    /// Ambiguous where the lines are few and short.
    #[must_use]
    pub fn shows(&self, lines: &[&str]) -> bool {
        self.extends(&Alphabet::blank(), lines)
    }

    /// Whether the first rows of the screen begin with these lines, one by one.
    #[must_use]
    pub fn begins(&self, lines: &[&str]) -> bool {
        let drawn = |known: Alphabet, (row, line): (&Vec<Glyph>, &&str)| known.with(row, line);
        self.0.len() >= lines.len() && self.0.iter().zip(lines).try_fold(Alphabet::blank(), drawn).is_some()
    }

    fn extends(&self, known: &Alphabet, lines: &[&str]) -> bool {
        let Some((line, rest)) = lines.split_first() else { return true };
        self.0.iter().any(|row| known.with(row, line).is_some_and(|more| self.extends(&more, rest)))
    }

    /// From a portable pixmap (netpbm's `P6`, 8 bits a colour).
    fn read(pixmap: &[u8]) -> anyhow::Result<Self> {
        let mut rest = pixmap;
        let mut word = || {
            let end = rest.iter().position(u8::is_ascii_whitespace).context("a pixmap has a head")?;
            let (word, after) = rest.split_at(end);
            rest = &after[1..];
            Ok::<_, anyhow::Error>(String::from_utf8_lossy(word).into_owned())
        };
        ensure!(word()? == "P6", "no pixmap");
        let (width, height): (usize, usize) = (word()?.parse()?, word()?.parse()?);
        ensure!(word()? == "255", "a pixmap of another depth");
        ensure!(rest.len() >= width * height * 3, "the pixmap is cut");
        let lit = |x: usize, y: usize| rest[(y * width + x) * 3..][..3].iter().any(|colour| *colour > 0x40);
        let glyph = |column: usize, row: usize| {
            std::array::from_fn(|y| {
                let bits = (0..WIDTH).map(|x| u8::from(lit(column * WIDTH + x, row * HEIGHT + y)));
                bits.fold(0, |byte, bit| byte << 1 | bit)
            })
        };
        let row = |row| (0..width / WIDTH).map(|column| glyph(column, row)).collect();
        Ok(Self((0..height / HEIGHT).map(row).collect()))
    }
}

impl Alphabet {
    fn blank() -> Self {
        let nothing = [0; HEIGHT];
        Self { letters: [(nothing, ' ')].into(), glyphs: [(' ', nothing)].into() }
    }

    /// With what `row` adds, if it begins with `line`.
    fn with(&self, row: &[Glyph], line: &str) -> Option<Self> {
        let mut all = self.clone();
        for (column, letter) in line.chars().enumerate() {
            let glyph = *row.get(column)?;
            if *all.letters.entry(glyph).or_insert(letter) != letter
                || *all.glyphs.entry(letter).or_insert(glyph) != glyph
            {
                return None;
            }
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A screen of these lines in a font where each letter is a byte's bits.
    fn pixmap(lines: &[&str]) -> Vec<u8> {
        let width = 40 * WIDTH;
        let mut bytes = format!("P6\n{width} {}\n255\n", lines.len() * HEIGHT).into_bytes();
        for line in lines {
            let letters = format!("{line:40}").into_bytes();
            for _ in 0..HEIGHT {
                let byte = |letter: &u8| if *letter == b' ' { 0 } else { *letter };
                let bits = letters.iter().map(byte).flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
                bytes.extend(bits.flat_map(|bit| [bit * 0xaa; 3]));
            }
        }
        bytes
    }

    #[test]
    fn lines_are_recognised_by_their_letters() {
        let screen = Screen::read(&pixmap(&["noise", "  state      Running", "  name       m-caa4b6b73c43"])).unwrap();
        assert!(screen.shows(&["  name       m-caa4b6b73c43", "  state      Running"]));
        assert!(screen.shows(&["  name       m-caa4"]), "only a beginning is looked for");
        assert!(screen.begins(&["noise", "  state"]) && !screen.begins(&["  state"]));
        assert!(!screen.begins(&["noise", "  state", "  name", ""]), "more lines than the screen has");
        for other in ["  name       m-caa4b6b73c44", " name        m-caa4b6b73c43"] {
            assert!(!screen.shows(&[other]), "{other}");
        }
        // As a line of its own it could be, but its letters are drawn otherwise elsewhere.
        assert!(
            screen.shows(&["  stqte      Running"]) && !screen.shows(&["  stqte      Running", "  name       m-caa4"])
        );
    }

    #[test]
    fn what_is_no_pixmap_is_refused() {
        let good = pixmap(&["a"]);
        for bad in [&b""[..], b"P5\n1 1\n255\n\0", &good[..good.len() - 1], b"P6\n8 16\n65535\n"] {
            assert!(Screen::read(bad).is_err());
        }
    }
}
