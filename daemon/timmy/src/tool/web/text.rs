//! The text of a page.
//!
//! Owns what is left of HTML when a model is to read it: words, links and the shape of lists and tables.
//! What is a tag, a comment or an entity says `html5gum`, as a browser would. It looks at each byte
//! once and builds no tree, so no page is too deep. Must not know where the page is from.

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};

/// What isn't there to be read.
const HIDDEN: &str = "script style template svg noscript iframe object";
/// Elements that stand on lines of their own.
const BLOCKS: &str = "address article aside blockquote body dd div dl dt fieldset figure footer form \
    header hr html main nav option p section table title";
/// Ends of lines after one another.
const MOST_EMPTY: usize = 2;
/// A link's address is told up to here.
const MOST_LINK: usize = 300;
/// A list within as many others is told at the same place.
const MOST_DEPTH: usize = 4;

/// The text of some HTML.
pub(super) fn of(html: &str) -> String {
    let mut emitter = DefaultEmitter::default();
    // What stands in a script, a style or a title is no tag.
    emitter.naively_switch_states(true);
    let mut page = HtmlText::default();
    for token in Tokenizer::new_with_emitter(html, emitter).flatten() {
        match token {
            Token::StartTag(tag) => page.begins(&tag),
            Token::EndTag(tag) => page.ends(&tag.name),
            Token::String(words) if page.hidden.is_none() => {
                page.words(&String::from_utf8_lossy(&words));
            }
            _ => {}
        }
    }
    page.text.trim().to_owned()
}

fn link(tag: &StartTag<()>) -> Option<String> {
    let value = tag.attributes.get(b"href".as_slice())?;
    let value = String::from_utf8_lossy(value);
    let value = value.trim();
    let scheme = value.split(':').next().unwrap_or_default();
    let is_of_use = !value.starts_with('#') && !scheme.eq_ignore_ascii_case("javascript");
    let end = value.floor_char_boundary(MOST_LINK);
    (is_of_use && !value.is_empty()).then(|| value[..end].to_owned())
}

fn is_one_of(names: &str, name: &[u8]) -> bool {
    names.split(' ').any(|one| one.as_bytes() == name)
}

#[derive(Default)]
struct HtmlText {
    text: String,
    /// In what isn't shown, and how often it was begun.
    hidden: Option<(Vec<u8>, usize)>,
    /// How deep in `pre`, where white space counts.
    kept_as_is: usize,
    link: Option<String>,
    /// The lists around, and the next number in those that have any.
    lists: Vec<Option<u64>>,
    /// Of this row.
    cells: usize,
    /// Where the last sign of an item or a heading ends: what comes first in it stays beside it.
    sign: usize,
}

impl HtmlText {
    fn words(&mut self, text: &str) {
        if self.kept_as_is > 0 {
            self.text.push_str(text);
            return;
        }
        if text.starts_with(char::is_whitespace) {
            self.space();
        }
        let mut words = text.split_whitespace();
        if let Some(first) = words.next() {
            self.text.push_str(first);
        }
        for word in words {
            self.text.push(' ');
            self.text.push_str(word);
        }
        if text.ends_with(char::is_whitespace) {
            self.space();
        }
    }

    fn space(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with(char::is_whitespace) {
            self.text.push(' ');
        }
    }

    /// As many ends of lines as there have to be.
    fn lines(&mut self, wanted: usize) {
        let content = self.text.trim_end_matches([' ', '\n']).len();
        if content > 0 {
            let there = self.text[content..].matches('\n').count();
            self.text.truncate(content);
            self.text
                .push_str(&"\n".repeat(wanted.max(there).min(MOST_EMPTY)));
        }
    }

    fn begins(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some((hidden, depth)) = &mut self.hidden {
            *depth += usize::from(hidden == name);
            return;
        }
        match name {
            // Only what isn't HTML may be over at once.
            b"svg" if tag.self_closing => {}
            name if is_one_of(HIDDEN, name) => self.hidden = Some((name.to_owned(), 1)),
            b"br" => self.text.push('\n'),
            b"a" => self.link = link(tag),
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.lines(2);
                self.sign("# ");
            }
            b"pre" => {
                self.lines(2);
                self.kept_as_is += 1;
            }
            b"ul" | b"ol" => {
                self.block();
                self.lists.push((name == b"ol").then_some(1));
            }
            b"li" => self.item(),
            b"tr" => {
                self.lines(1);
                self.cells = 0;
            }
            b"td" | b"th" => {
                if self.cells > 0 {
                    self.text.push('\t');
                }
                self.cells += 1;
            }
            name if is_one_of(BLOCKS, name) => self.block(),
            _ => {}
        }
    }

    fn ends(&mut self, name: &[u8]) {
        if let Some((hidden, depth)) = &mut self.hidden {
            // Only an end of the same name counts: what is begun within need not be ended.
            *depth -= usize::from(hidden == name);
            if *depth == 0 {
                self.hidden = None;
            }
            return;
        }
        match name {
            b"a" => {
                if let Some(link) = self.link.take() {
                    self.text.push_str(&format!(" ({link})"));
                }
            }
            b"pre" => {
                self.kept_as_is = self.kept_as_is.saturating_sub(1);
                self.lines(2);
            }
            b"ul" | b"ol" => {
                self.lists.pop();
                self.block();
            }
            b"li" | b"tr" => self.lines(1),
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => self.lines(2),
            name if is_one_of(BLOCKS, name) => self.block(),
            _ => {}
        }
    }

    /// On lines of its own. What is within a list stays together.
    fn block(&mut self) {
        if self.text.len() != self.sign {
            self.lines(if self.lists.is_empty() { 2 } else { 1 });
        }
    }

    fn item(&mut self) {
        self.lines(1);
        let depth = self.lists.len().saturating_sub(1).min(MOST_DEPTH);
        self.text.push_str(&"  ".repeat(depth));
        match self.lists.last_mut() {
            Some(Some(number)) => {
                let sign = format!("{number}. ");
                *number += 1;
                self.sign(&sign);
            }
            _ => self.sign("- "),
        }
    }

    fn sign(&mut self, sign: &str) {
        self.text.push_str(sign);
        self.sign = self.text.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn page_keeps_words_links_and_lists() {
        let html = "<!DOCTYPE html><html><head><title>A  page</title><style>p{x}</style>\
            <script>if (a < b) { alert('</p>') }</script></head><body><!-- no --><h1>Big</h1>\
            <p>One &amp; <b>two</b>,\n three&#33; &unknown; a < b</p><ul><li>x<li>y</ul>\
            <a class=c href=\"/z?a=1&amp;b\" title='>'>there</a>\
            <a href='#top'>top</a><a href=javascript:x>no</a>\
            <pre>  as\n    is</pre><table><tr><td>1</td><td>2</td></tr></table></body></html>";
        assert_eq!(
            of(html),
            "A page\n\n# Big\n\nOne & two, three! &unknown; a < b\n\n- x\n- y\n\n\
             there (/z?a=1&b)topno\n\n  as\n    is\n\n1\t2"
        );
    }

    #[test]
    fn fetch_keeps_the_shape_of_lists_and_tables() {
        let html = "<ol><li><p>one</p><ul><li>a<li>b</ul><li><div></div>two</ol><p>after\
            <table><tr><th>x<th>y<tr><td><td>2</table><h2><span>Head</span></h2>text";
        assert_eq!(
            of(html),
            "1. one\n  - a\n  - b\n2. two\n\nafter\n\nx\ty\n\t2\n\n# Head\n\ntext"
        );
    }

    #[test]
    fn fetch_reads_every_entity_as_a_browser_does() {
        let html = "&eacute;&nbsp;&euro;&#8364;&notin;&copy &#x110000;&unknown; a&b <a href='?x&copy=1'>y</a>";
        assert_eq!(of(html), "é €€∉© \u{fffd}&unknown; a&b y (?x&copy=1)");
    }

    #[test]
    fn fetch_shows_what_follows_what_is_hidden() {
        assert_eq!(of("a<svg/>b<svg><svg>c</svg>d</svg>e</svg>f"), "abef");
        assert_eq!(of("a<style><b></style>c<noscript><p>d</noscript>e"), "ace");
    }

    #[test]
    fn page_tag_never_closed_hides_the_rest() {
        assert_eq!(of("a<script>b"), "a");
        assert_eq!(of("a<!-- b"), "a");
        assert_eq!(of("a<p title=\"b>c"), "a");
        assert_eq!(of("a</p"), "a");
        assert_eq!(of("a<SCRIPT>b</ScRiPt >c"), "ac");
    }

    proptest! {
        #[test]
        #[ignore = "heavy"]
        fn any_page_is_read_to_its_end(
            html in "([<>/!\"'= &;#-]|<a href=|</a>|<script|</script|<!--|-->|<pre>|&#x1F600;|ä|x|\n){0,200}"
        ) {
            let text = of(&html);
            prop_assert!(text.len() <= 4 * html.len() + 8);
        }
    }

    #[test]
    #[ignore = "heavy"]
    fn a_page_made_to_be_slow_is_not() {
        let began = std::time::Instant::now();
        for part in [
            "<",
            "<a",
            "</",
            "<!--",
            "<p \"",
            "&",
            "<script></",
            "<a href=",
            "<div>",
            "<ul><li>",
            "<table><tr><td>x",
        ] {
            of(&part.repeat((1 << 19) / part.len()));
        }
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    }
}
