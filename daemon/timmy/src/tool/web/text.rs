//! The text of a page.
//!
//! Owns what is left of HTML when a model is to read it: words, links and the shape of lists. A
//! page is never more than looked at once from beginning to end. Must not know where it is from.

/// What isn't there to be read.
const HIDDEN: &[&str] = &[
    "script", "style", "template", "svg", "noscript", "iframe", "object",
];
/// Elements that stand on lines of their own.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "dd",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "html",
    "main",
    "nav",
    "ol",
    "option",
    "p",
    "pre",
    "section",
    "table",
    "title",
    "tr",
    "ul",
];
const HEADINGS: &[&str] = &["h1", "h2", "h3", "h4", "h5", "h6"];
/// Ends of lines after one another.
const MOST_EMPTY: usize = 2;
/// A link's address is told up to here.
const MOST_LINK: usize = 300;
/// An entity's name is no longer.
const MOST_ENTITY: usize = 10;
const ENTITIES: &[(&str, &str)] = &[
    ("amp", "&"),
    ("apos", "'"),
    ("bull", "•"),
    ("copy", "©"),
    ("gt", ">"),
    ("hellip", "…"),
    ("laquo", "«"),
    ("ldquo", "“"),
    ("lsquo", "‘"),
    ("lt", "<"),
    ("mdash", "—"),
    ("middot", "·"),
    ("nbsp", " "),
    ("ndash", "–"),
    ("quot", "\""),
    ("raquo", "»"),
    ("rdquo", "”"),
    ("rsquo", "’"),
];

/// The text of some HTML.
pub(super) fn of(html: &str) -> String {
    let mut page = HtmlText::default();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        page.words(&rest[..at]);
        rest = &rest[at..];
        rest = if let Some(comment) = rest.strip_prefix("<!--") {
            after(comment, "-->")
        } else if let Some(tag) = Tag::read(rest) {
            let behind = &rest[tag.length..];
            if HIDDEN.contains(&tag.name.as_str()) && !tag.closes {
                after_element(behind, &tag.name)
            } else {
                page.tag(&tag);
                behind
            }
        } else {
            // A `<` that is only one.
            page.words("<");
            &rest[1..]
        };
    }
    page.words(rest);
    page.text.trim().to_owned()
}

fn after<'a>(text: &'a str, end: &str) -> &'a str {
    text.find(end).map_or("", |at| &text[at + end.len()..])
}

/// What comes behind an element that isn't shown; its end tag is looked for in any case.
fn after_element<'a>(text: &'a str, name: &str) -> &'a str {
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        rest = &rest[at + 2..];
        let found = rest.as_bytes().get(..name.len());
        if found.is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes())) {
            return after(rest, ">");
        }
    }
    ""
}

struct Tag {
    name: String,
    closes: bool,
    link: Option<String>,
    /// From `<` to `>`.
    length: usize,
}

impl Tag {
    fn read(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('<')?;
        let closes = inner.starts_with('/');
        let named = inner.strip_prefix('/').unwrap_or(inner);
        let begins = |c: char| c.is_ascii_alphabetic() || c == '!' || c == '?';
        named.starts_with(begins).then_some(())?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "!?-:".contains(c);
        let name_end = named.find(|c| !is_name(c)).unwrap_or(named.len());
        let attributes = &named[name_end..];
        // A `>` within quotes doesn't end it.
        let mut quote = None;
        let mut last = ' ';
        let end = attributes.char_indices().find(|(_, c)| {
            match quote {
                Some(open) if open == *c => quote = None,
                None if last == '=' && matches!(c, '"' | '\'') => quote = Some(*c),
                _ => {}
            }
            if !c.is_whitespace() {
                last = *c;
            }
            quote.is_none() && *c == '>'
        });
        let before = text.len() - attributes.len();
        let end = end.map(|(at, _)| at);
        let name = named[..name_end].to_ascii_lowercase();
        let within = &attributes[..end.unwrap_or(attributes.len())];
        let link = (name == "a" && !closes).then(|| link(within)).flatten();
        Some(Self {
            name,
            closes,
            link,
            length: end.map_or(text.len(), |end| before + end + 1),
        })
    }
}

fn link(attributes: &str) -> Option<String> {
    let at = attributes.to_ascii_lowercase().find("href=")? + "href=".len();
    let value = &attributes[at..];
    let value = match value.chars().next()? {
        quote @ ('"' | '\'') => value[1..].split(quote).next()?,
        _ => value.split_ascii_whitespace().next()?,
    };
    let is_of_use =
        !value.starts_with('#') && !value.to_ascii_lowercase().starts_with("javascript:");
    let end = value.floor_char_boundary(MOST_LINK);
    (is_of_use && !value.is_empty()).then(|| decoded(&value[..end]))
}

#[derive(Default)]
struct HtmlText {
    text: String,
    /// How deep in `pre`, where white space counts.
    kept_as_is: usize,
    link: Option<String>,
}

impl HtmlText {
    fn words(&mut self, html: &str) {
        let text = decoded(html);
        if self.kept_as_is > 0 {
            self.text.push_str(&text);
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

    fn tag(&mut self, tag: &Tag) {
        match (tag.name.as_str(), tag.closes) {
            ("br", _) => self.text.push('\n'),
            ("li", false) => {
                self.lines(1);
                self.text.push_str("- ");
            }
            ("li", true) => self.lines(1),
            ("td" | "th", true) => self.text.push('\t'),
            ("pre", false) => {
                self.lines(2);
                self.kept_as_is += 1;
            }
            ("pre", true) => {
                self.kept_as_is = self.kept_as_is.saturating_sub(1);
                self.lines(2);
            }
            ("a", false) => self.link.clone_from(&tag.link),
            ("a", true) => {
                if let Some(link) = self.link.take() {
                    self.text.push_str(&format!(" ({link})"));
                }
            }
            ("tr", _) => self.lines(1),
            (name, closes) if HEADINGS.contains(&name) => {
                self.lines(2);
                self.text.push_str(if closes { "" } else { "# " });
            }
            (name, _) if BLOCKS.contains(&name) => self.lines(2),
            _ => {}
        }
    }
}

/// Text with its entities made characters.
fn decoded(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find('&') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let reach = rest.floor_char_boundary(MOST_ENTITY + 2);
        let entity = rest[1..reach].split_once(';').map(|(name, _)| name);
        match entity.and_then(|name| Some((name, character(name)?))) {
            Some((name, character)) => {
                text.push_str(&character);
                rest = &rest[name.len() + 2..];
            }
            None => {
                text.push('&');
                rest = &rest[1..];
            }
        }
    }
    text.push_str(rest);
    text
}

fn character(name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => number.parse().ok(),
        };
        return code.and_then(char::from_u32).map(String::from);
    }
    let found = ENTITIES.iter().find(|(known, _)| *known == name);
    found.map(|(_, character)| (*character).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_links_and_lists_are_left_of_a_page() {
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
    fn what_is_never_closed_hides_the_rest_and_no_more() {
        assert_eq!(of("a<script>b"), "a");
        assert_eq!(of("a<!-- b"), "a");
        assert_eq!(of("a<p title=\"b>c"), "a");
        assert_eq!(of("a</p"), "a");
        assert_eq!(of("a<SCRIPT>b</ScRiPt >c"), "ac");
    }

    proptest! {
        #[test]
        fn any_page_is_read_to_its_end(
            html in "([<>/!\"'= &;#-]|<a href=|</a>|<script|</script|<!--|-->|<pre>|&#x1F600;|ä|x|\n){0,200}"
        ) {
            let text = of(&html);
            prop_assert!(text.len() <= 4 * html.len() + 8);
        }
    }

    #[test]
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
        ] {
            of(&part.repeat((1 << 19) / part.len()));
        }
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    }
}
