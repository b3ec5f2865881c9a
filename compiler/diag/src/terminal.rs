//! Escapes untrusted text for terminals.
//!
//! A source, a dataset or a path may contain escape sequences, which move the cursor, clear the screen or change the
//! title of a window, and characters that reorder the text around them. All text shown to users passes through
//! [`escaped`]; files and machine-readable output do not. The colours of reports are added afterwards.

use std::borrow::Cow;

/// Replaces control characters by their escapes, such as `\u{1b}`. Newlines and tabs remain.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_obeyed(c) && c != '\n' && c != '\t')
}

/// As [`escaped`], for text on a single line: newlines are escaped too.
pub fn escaped_line(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_obeyed(c) && c != '\t')
}

/// Is this a control character, or an invisible one that affects the display of others? The latter reorder text
/// ("Trojan Source", Boucher & Anderson 2021) or make two names look alike.
pub(crate) fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn escape(text: &str, unsafe_here: impl Fn(char) -> bool) -> Cow<'_, str> {
    let Some(first) = text.find(&unsafe_here) else { return Cow::Borrowed(text) };
    let mut safe = String::with_capacity(text.len() + 8);
    safe.push_str(&text[..first]);
    for c in text[first..].chars() {
        if unsafe_here(c) { safe.extend(c.escape_unicode()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::{escaped, escaped_line};

    #[test]
    fn escapes_what_a_terminal_obeys() {
        assert_eq!(escaped("a\u{1b}[31mb\u{7f}\u{9b}2J\rc"), r"a\u{1b}[31mb\u{7f}\u{9b}2J\u{d}c");
        assert_eq!(escaped("\u{202e}gnp\u{2066}"), r"\u{202e}gnp\u{2066}");
        assert_eq!(escaped_line("a\nb"), r"a\u{a}b");
    }

    #[test]
    fn leaves_text_as_it_is() {
        let text = "Grüße, 图\t│ → …\n";
        assert!(matches!(escaped(text), std::borrow::Cow::Borrowed(same) if same == text));
    }
}
