//! The fenced blocks of a document.
//!
//! Owns how a block is marked: by a comment on the line before it. Must not know what is done with it.

use std::path::{Path, PathBuf};

/// What the comment before a block says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Nothing.
    None,
    /// `<!-- ci: run -->`
    Run,
    /// `<!-- ci: output -->`: what the block before it printed, but for times and names made up.
    Output,
    /// `<!-- ci: output in any order -->`: the same, but for the order of its lines.
    OutputInAnyOrder,
    /// `<!-- not run: needs X -->`, with X.
    NotRun(String),
}

#[derive(Clone, Debug)]
pub struct Block {
    pub document: PathBuf,
    /// Of its first line, from 1.
    pub line: usize,
    pub language: String,
    pub mark: Mark,
    pub text: String,
}

impl Block {
    pub fn place(&self) -> String {
        format!("{}:{}", self.document.display(), self.line)
    }
}

pub fn of(document: &Path, text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut inside, mut mark) = (false, Mark::None);
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(language) => {
                inside = true;
                found.push(Block {
                    document: document.to_owned(),
                    line: number + 2,
                    language: language.to_owned(),
                    mark: std::mem::replace(&mut mark, Mark::None),
                    text: String::new(),
                });
            }
            None if inside => {
                let block = found.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => mark = mark_of(line),
        }
    }
    assert!(!inside, "{}: a block has no end", document.display());
    found
}

fn mark_of(line: &str) -> Mark {
    let comment = line
        .strip_prefix("<!-- ")
        .and_then(|rest| rest.strip_suffix(" -->"));
    match comment {
        Some("ci: run") => Mark::Run,
        Some("ci: output") => Mark::Output,
        Some("ci: output in any order") => Mark::OutputInAnyOrder,
        Some(other) => match other.strip_prefix("not run: needs ") {
            Some(needs) => Mark::NotRun(needs.to_owned()),
            None => Mark::None,
        },
        None => Mark::None,
    }
}
